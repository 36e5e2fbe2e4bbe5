"""Random histories of snapshots, with runs and kills in between: `pipeline_histories.py FOLDER SEED COUNT [MASTER]`.

A history adds, changes, deletes and renames snapshots and changes key, types and columns; in some of them every
snapshot has columns of its own. Beside it a stream of change events grows, with unfinished lines and open transactions.
Every run is a fork; some do only selected stages, and some die by SIGKILL before or after one of their durable steps.
After each history the last run is left alone, and the lake must hold what plain Python reads from the snapshots that
are there and what the events led to. So must the declared states of every day; changesets and pages must be those of a
fresh pipeline, and one more run must find nothing to do. Prints how many histories, runs, kills and selections there
were.
"""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

DAYS = tuple(f"2026-03-{day:02d}" for day in range(1, 7))
LAYOUTS = (
    ("id", "region", "price"),
    ("id", "region", "price", "note"),
    ("id", "region", "cost"),
    ("region", "id", "price"),
)

Row = dict[str, str]


@dataclass
class World:
    """What the pipeline will find: snapshots by day, and what is declared."""

    folder: Path
    days: dict[str, dict[str, Row]] = field(default_factory=dict)
    layout: tuple[str, ...] = LAYOUTS[0]
    key: tuple[str, ...] = ("id",)
    number: bool = False
    layouts: dict[str, tuple[str, ...]] | None = None  # of each snapshot, where columns may come and go
    stream: Stream = field(default_factory=lambda: Stream())
    lake_types: set[tuple[str, str]] = field(default_factory=set)  # what its columns are, or may be after a kill

    def write(self) -> Path:
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        self.stream.write(self.folder / "cdc")
        wanted = {f"t-{day}.csv": self._text(rows, self.layout_of(day)) for day, rows in self.days.items()}
        for path in data.iterdir():
            if path.name not in wanted:
                path.unlink()
        for name, text in wanted.items():
            if not (data / name).exists() or (data / name).read_text() != text:
                (data / name).write_text(text)
        file = self.folder / "p.toml"
        columns = 'columns = { price = "number" }' if self.number else ""
        file.write_text(
            f'[pipeline]\nname = "p"\n[lake]\npath = "lake"\n[tables.t]\nsnapshots = "data/t-{{date}}.csv"\n'
            f"key = {json.dumps(list(self.key))}\n{columns}\ndeltas = true\ncompact = true\n{self._policy()}"
            'events = "out/{to}.md"\nevents_format = "markdown"\nchangeset = "out/{to}.changeset"\n'
            f"{''.join(map(self._state, (*sorted(self.days), None)))}"
            '[tables.c]\nchanges = "cdc"\nkey = "id"\ndeltas = true\ncompact = true\n'
        )
        return file

    @staticmethod
    def _state(day: str | None) -> str:
        as_of = f'as_of = "{day}"\n' if day else ""
        return f'[[tables.t.state]]\npath = "out/state-{day or "now"}.jsonl"\n{as_of}'

    def state(self, day: str) -> dict[str, dict]:
        """A declared state as it was written."""
        rows = map(json.loads, (self.folder / f"out/state-{day}.jsonl").read_text().splitlines())
        return {row.pop("_row_id"): row for row in rows}

    def _policy(self) -> str:
        return "" if self.layouts is None else 'on_new_column = "add"\non_missing_column = "null"\n'

    def layout_of(self, day: str) -> tuple[str, ...]:
        return self.layout if self.layouts is None else self.layouts.get(day, LAYOUTS[0])

    def _text(self, rows: dict[str, Row], layout: tuple[str, ...]) -> str:
        lines = [",".join(layout)] + [",".join(row.get(name, "") for name in layout) for row in rows.values()]
        return "\n".join(lines) + "\n"

    def expected(self, day: str) -> dict[str, dict]:
        """A snapshot as plain Python reads it."""
        with (self.folder / f"data/t-{day}.csv").open(newline="") as source:
            found = {}
            for row in csv.DictReader(source):
                parts = [row[name] for name in self.key]
                row_id = parts[0] if len(parts) == 1 else json.dumps(parts, separators=(",", ":"))
                found[row_id] = {name: self._typed(name, cell) for name, cell in row.items()}
            return found

    def _typed(self, name: str, cell: str) -> object:
        if name != "price" or not self.number:
            return cell
        return float(cell) if cell else None

    def needs_refresh(self) -> bool:
        """Whether a column is declared with another type than the lake's generation has it in."""
        declared = dict(self.types())
        return any(declared.get(name, kind) != kind for name, kind in self.lake_types)

    def types(self) -> set[tuple[str, str]]:
        layouts = [self.layout] if self.layouts is None else [self.layout_of(day) for day in self.days]
        names = {name for layout in layouts for name in layout}
        return {(name, "number" if name == "price" and self.number else "string") for name in names}


@dataclass
class Stream:
    """Change events as wal2json writes them: a growing file, then the next one; `model` is what they lead to."""

    model: dict[str, dict[str, str]] = field(default_factory=dict)
    texts: list[str] = field(default_factory=lambda: [""])
    held_back: str = ""  # the end of a line, or of a transaction, that the source has not written yet

    def change(self, chance: random.Random) -> None:
        lines = []
        for _ in range(chance.randrange(1, 5)):
            key = str(chance.randrange(8))
            row = {"id": key, "v": chance.choice("abc")}
            if key in self.model and chance.random() < 0.4:
                del self.model[key]
                lines.append(self._line("D", identity={"id": key}))
            else:
                lines.append(self._line("U" if key in self.model else "I", columns=row))
                self.model[key] = row
        text = "".join([self._line("B"), *lines, self._line("C")]) if chance.random() < 0.5 else "".join(lines)
        self.catch_up()
        if chance.random() < 0.3:
            self.texts.append("")
        cut = chance.randrange(len(text) + 1) if chance.random() < 0.5 else len(text)
        self.texts[-1] += text[:cut]
        self.held_back = text[cut:]

    def catch_up(self) -> None:
        self.texts[-1] += self.held_back
        self.held_back = ""

    def write(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for number, text in enumerate(self.texts):
            place = folder / f"{number:03d}.jsonl"
            if not place.exists() or place.read_text() != text:
                place.write_text(text)

    @staticmethod
    def _line(action: str, **images: Row) -> str:
        sides = {side: [{"name": n, "value": v} for n, v in image.items()] for side, image in images.items()}
        return json.dumps({"action": action, **({"schema": "s", "table": "c"} if images else {}), **sides}) + "\n"


def stream_on(world: World, chance: random.Random) -> None:
    world.stream.change(chance)


def put(world: World, chance: random.Random) -> None:
    day = chance.choice(DAYS)
    if world.layouts is not None:
        world.layouts[day] = chance.choice(LAYOUTS)
    others = [rows for rows in world.days.values() if rows]
    rows = {key: dict(row) for key, row in chance.choice(others).items()} if others and chance.random() < 0.8 else {}
    for _ in range(chance.randrange(6)):
        key = str(chance.randrange(12))
        if key in rows and chance.random() < 0.3:
            del rows[key]
            continue
        rows[key] = {
            "id": key,
            "region": chance.choice(["n", "s"]),
            "price": chance.choice(["1", "1.0", "2.5", "", "7"]),
            "cost": chance.choice(["3", "4"]),
            "note": chance.choice(["", "x", "é"]),
        }
    world.days[day] = rows


def delete(world: World, chance: random.Random) -> None:
    if len(world.days) > 1:
        del world.days[chance.choice(sorted(world.days))]


def rename(world: World, chance: random.Random) -> None:
    old, new = chance.choice(sorted(world.days)), chance.choice(DAYS)
    layout = world.layout_of(old)
    world.days[new] = world.days.pop(old)
    if world.layouts is not None:
        world.layouts[new] = layout


def change_key(world: World, chance: random.Random) -> None:
    world.key = chance.choice([("id",), ("id", "region"), ("region", "id")])


def change_type(world: World, chance: random.Random) -> None:
    world.number = not world.number


def change_columns(world: World, chance: random.Random) -> None:
    world.layout = chance.choice(LAYOUTS)


CHANGES: tuple[tuple[Callable[[World, random.Random], None], int], ...] = (
    (put, 8),
    (delete, 4),
    (rename, 3),
    (change_key, 1),
    (change_type, 1),
    (change_columns, 1),
    (stream_on, 6),
)
SELECTIONS = (("t/*",), ("c/*",), ("*/diff",), ("*/deltas",), ("t/2026-03-0[1-3]/*",))


class Runs:
    """Runs of the pipeline, each in a fork, so that a kill is a kill and nothing is imported twice."""

    def __init__(self, master: str | None) -> None:
        self.master = master
        self.counts: Counter[str] = Counter()

    def run(self, world: World, chance: random.Random, *, killed: bool | None) -> None:
        """A run that dies or not; None is for the last one, which does everything."""
        file = world.write()
        refresh = world.needs_refresh()
        die_at = chance.randrange(1, 30) if killed else None
        patterns = chance.choice(SELECTIONS) if chance.random() < 0.25 and not refresh and killed is not None else ()
        status = self._fork(lambda: _run(file, self.master, refresh, die_at, patterns))
        self.counts["runs"] += 1
        self.counts["selections"] += bool(patterns)
        if os.WIFSIGNALED(status):
            assert die_at is not None, f"the run died by signal {os.WTERMSIG(status)}"
            self.counts["kills"] += 1
            world.lake_types |= world.types()
            return
        if patterns:  # what is not selected and not fresh blocks what needs it
            assert os.WEXITSTATUS(status) in (0, 2), f"the run ended with {os.WEXITSTATUS(status)}"
            world.lake_types |= world.types()
            return
        assert os.WEXITSTATUS(status) == 0, f"the run ended with {os.WEXITSTATUS(status)}"
        # Within one generation a column that is left out keeps its type for when it comes back.
        world.lake_types = world.types() if refresh else world.lake_types | world.types()

    def check(self, world: World) -> None:
        assert self._fork(lambda: _check(world)) == 0, f"the lake does not hold the snapshots in {world.folder}"

    def _fork(self, work: Callable[[], int]) -> int:
        child = os.fork()
        if child == 0:
            try:
                code = work()
            except BaseException:  # noqa: BLE001 - the fork must end here, whatever happened
                traceback.print_exc()
                code = 99
            sys.stderr.flush()
            os._exit(code)
        return os.waitpid(child, 0)[1]


def _run(file: Path, master: str | None, refresh: bool, die_at: int | None, patterns: tuple[str, ...]) -> int:
    from driftline.errors import DriftlineError
    from driftline.pipeline import load, run_pipeline
    from driftline.pipeline._run.run import Selection

    if die_at is not None:
        _die_at_step(die_at)
    try:
        record = run_pipeline(
            load(file),
            engine="spark" if master else "local",
            master=master,
            full_refresh=refresh,
            selection=Selection(patterns),
        )
    except DriftlineError as error:
        if error.code == "unknown_stage":
            return 0
        raise
    for stage in record.stages:
        if stage.problem:
            print(stage.stage, stage.problem, file=sys.stderr)
    return record.exit_code


def _die_at_step(number: int) -> None:
    """Die before or after the given durable step, whatever it is."""
    from driftline.lake._store import delta as delta_tables, schemas as registry
    from driftline.pipeline._run import records
    from driftline.pipeline._stages import outputs

    left = [number]

    def tick() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def guard(owner: object, name: str) -> None:
        original = getattr(owner, name)

        def wrapped(*arguments, **options):
            tick()
            result = original(*arguments, **options)
            tick()
            return result

        setattr(owner, name, wrapped)

    for owner, name in (
        (records.RecordStore, "keep_stage"),
        (outputs.Outputs, "commit"),
        (registry, "register"),
        (registry, "create"),
        (delta_tables.DeltaStore, "create"),
        (delta_tables._StoredDelta, "append"),
    ):
        guard(owner, name)


def _check(world: World) -> int:
    from driftline.lake import Lake, verify
    from driftline.lake._read.state import state_rows
    from driftline.lake._store.schemas import newest_snapshot
    from driftline.pipeline._declare.snapshots import parse_period

    lake = Lake(world.folder / "lake")
    newest = max(world.days)
    _assert_same(dict(state_rows(lake, "t")), world.expected(newest), world, "now")
    for day in sorted(world.days):
        _assert_same(dict(state_rows(lake, "t", as_of=parse_period(day).end)), world.expected(day), world, day)
        _assert_same(world.state(day), world.expected(day), world, f"the declared state of {day}")
    _assert_same(world.state("now"), world.expected(newest), world, "the declared state")
    assert dict(state_rows(lake, "c")) == world.stream.model, "the stream"
    if newest_snapshot(lake, "t") is not None:  # a table that was always empty has none
        assert verify(lake, "t").is_proved
    _check_outputs(world)
    return 0


def _check_outputs(world: World) -> None:
    """Nothing is left to do, and what was written in many runs is what one run would have written."""
    from driftline.pipeline import load, run_pipeline

    again = run_pipeline(load(world.folder / "p.toml"), engine="local")
    done = [f"{stage.stage} ({stage.why})" for stage in again.stages if stage.result != "kept"]
    assert not done, f"a run with nothing to do did {done}"
    fresh = replace(world, folder=world.folder / "fresh")
    assert run_pipeline(load(fresh.write()), engine="local").exit_code == 0
    for kind in ("md", "changeset"):
        for path in sorted((fresh.folder / "out").glob(f"*.{kind}")):
            held = (world.folder / "out" / path.name).read_bytes()
            assert held == path.read_bytes(), f"{path.name} is not what a fresh run writes"


def _assert_same(held: dict[str, dict], expected: dict[str, dict], world: World, what: str) -> None:
    """The same rows; where columns come and go, one that a snapshot does not have is null."""
    if world.layouts is not None:
        held, expected = (
            {key: {name: cell for name, cell in row.items() if cell is not None} for key, row in rows.items()}
            for rows in (held, expected)
        )
    assert held == expected, f"{what}: {held} instead of {expected}"


def history(folder: Path, seed: int, runs: Runs) -> None:
    chance = random.Random(seed)
    world = World(folder, layouts={} if chance.random() < 0.4 else None)
    world.stream.change(chance)
    world.stream.catch_up()
    put(world, chance)
    put(world, chance)
    changes, weights = zip(*CHANGES, strict=True)
    for _ in range(chance.randrange(2, 6)):
        for _ in range(chance.randrange(1, 4)):
            chance.choices(changes, weights)[0](world, chance)
        runs.run(world, chance, killed=chance.random() < 0.5)
    world.stream.catch_up()
    runs.run(world, chance, killed=None)
    runs.check(world)


def main(folder: str, seed: str, count: str, master: str | None = None) -> None:
    import numpy as np
    import polars  # noqa: F401 - what the forks would import, each for itself
    import pyarrow as pa

    import driftline.changesets._cdc.convert
    import driftline.lake._fold.compact
    import driftline.lake._read.state
    import driftline.pipeline._run.run
    import driftline.tables._vectorized  # noqa: F401

    pa.array(np.zeros(1))  # looks for pandas once, and not once in every fork
    runs = Runs(master)
    for number in range(int(seed), int(seed) + int(count)):
        try:
            history(Path(folder) / f"history-{number}", number, runs)
        except AssertionError as error:
            sys.exit(f"history {number}: {error}")
    print(json.dumps({"histories": int(count), **runs.counts}))


if __name__ == "__main__":
    main(*sys.argv[1:])
