"""Faults at the lake: kills between all durable steps, killed compactors, damaged files, a full disk.

The kill orders run log and lake in this process and stop them after chosen durable steps
(tests/support/gateway_kills.py); everything else is the real command.
Whatever happens, each delta is there once, and `verify` proves the snapshot.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from driftline.deltas import ColumnDelta, RowDelta, TableSchema
from driftline.lake import Lake, compact, flush, register, verify
from driftline.lake._read.state import all_deltas
from faults.tools import Tally, driftline, mutate

TESTS = Path(__file__).resolve().parent.parent / "tests"
SCHEMA = TableSchema("todos", [{"name": "title", "type": "string"}, {"name": "n", "type": "number"}])

Kind = Callable[[Path, random.Random, int, Tally], None]


def run(seed: int, rounds: int) -> Iterator[Tally]:
    """One tally a kind of fault."""
    kinds: dict[str, Kind] = {
        "kills between durable steps": killed_steps,
        "killed compactors": killed_compactors,
        "killed compactor on Spark": killed_on_spark,
        "mutated Delta logs": mutated("_delta_log/*.json"),
        "mutated Parquet files": mutated("*.parquet"),
        "mutated envelopes": mutated_envelopes,
        "full disk": full_disk,
    }
    for name, kind in kinds.items():
        tally = Tally(name)
        with tempfile.TemporaryDirectory(prefix="driftline-faults-") as folder:
            kind(Path(folder), random.Random(f"{seed} {name}"), rounds, tally)
        yield tally


def killed_steps(folder: Path, chance: random.Random, rounds: int, tally: Tally) -> None:
    """Two kills at random among flushes, schemas that come and widen, and logs that are restored."""
    sys.path.insert(0, str(TESTS))
    from support.gateway_kills import SCHEMAS, Steps, World, counted, misfitting, until_done

    for number in range(rounds):
        root = folder / str(number)
        root.mkdir()
        world, steps = World(root), Steps(*sorted(chance.sample(range(1, 60), 2)))
        kills = sorted(steps.kills)
        with counted(steps):
            for step in range(6):
                world.push(*misfitting(step))
                match chance.randrange(4):
                    case 0:
                        until_done(partial(world.register, chance.choice(SCHEMAS)))
                    case 1 if not (root / "backup.sqlite").exists():
                        world.back_up()
                    case 2 if (root / "backup.sqlite").exists():
                        world.restore()
                until_done(world.flush)
            until_done(partial(world.register, SCHEMAS[2]))
            until_done(world.flush)
        tally.tried += 1
        for problem in world.problems():
            tally.loss(f"kills after steps {kills}: {problem}")
        shutil.rmtree(root)


def killed_compactors(folder: Path, chance: random.Random, rounds: int, tally: Tally) -> None:
    """`lake compact` killed at random moments; the snapshot before or after it is whole."""
    _killed(folder, chance, max(3, rounds // 5), tally, ["--engine", "local"], 2.5)


def killed_on_spark(folder: Path, chance: random.Random, rounds: int, tally: Tally) -> None:
    """The same once on Spark, where tasks write the files."""
    _killed(folder, chance, 1, tally, ["--engine", "spark", "--master", "local[2]"], 12.0)


def _killed(folder: Path, chance: random.Random, count: int, tally: Tally, options: list[str], longest: float) -> None:
    lake = _lake(folder / "lake", chance, 8)
    for number in range(count):
        flush(lake, "todos", _deltas(chance, 200, 10_000 + number * 300), gateway_id="gw", sequence=100 + number)
        wanted = Counter(each.delta_id for each in all_deltas(lake, "todos"))
        command = [sys.executable, "-m", "driftline", "lake", "compact", "--lake", lake.root, *options]
        process = subprocess.Popen(
            command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(chance.uniform(0.3, longest))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        tally.tried += 1
        _judge(lake, wanted, tally, f"kill {number}")


def mutated(pattern: str) -> Kind:
    """Files of a kind damaged: the command says so, or shows what it would have shown."""

    def kind(folder: Path, chance: random.Random, rounds: int, tally: Tally) -> None:
        lake = _lake(folder / "lake", chance, 3)
        compact(lake, "todos")
        before = driftline(Tally(""), ["lake", "materialize", "--table", "todos", "--lake", lake.root]).stdout
        files = sorted((folder / "lake/tables/todos").rglob(pattern))
        for number in range(max(5, rounds // 5)):
            path = chance.choice(files)
            whole = path.read_bytes()
            path.write_bytes(mutate(whole, chance))
            what = f"round {number}: {path.name} damaged"
            outcome = driftline(tally, ["lake", "materialize", "--table", "todos", "--lake", lake.root], what=what)
            _judge_output(tally, outcome.code, outcome.stdout, before, lake, what)
            path.write_bytes(whole)

    return kind


def _judge_output(tally: Tally, code: int | None, output: bytes, before: bytes, lake: Lake, what: str) -> None:
    """Another result with exit code 0 is a loss, unless `verify` notices the damage."""
    if code != 0 or output == before:
        return
    proof = driftline(Tally(""), ["lake", "verify", "--table", "todos", "--lake", lake.root])
    if proof.code == 0:
        tally.loss(f"{what}: another state with exit code 0, and verify proved it")


def mutated_envelopes(folder: Path, chance: random.Random, rounds: int, tally: Tally) -> None:
    """Envelopes carry the ids of their deltas: damage is told, or changes nothing."""
    lake = Lake(str(folder / "lake"))
    flush(lake, "todos", _deltas(chance, 40, 1), gateway_id="gw", sequence=1)
    before = driftline(Tally(""), ["lake", "materialize", "--table", "todos", "--lake", lake.root]).stdout
    [path] = (folder / "lake/tables/todos/envelopes").rglob("*.json")
    whole = path.read_bytes()
    for number in range(max(5, rounds // 5)):
        path.write_bytes(mutate(whole, chance))
        what = f"round {number}: an envelope damaged"
        outcome = driftline(tally, ["lake", "materialize", "--table", "todos", "--lake", lake.root], what=what)
        # An operation is no part of an id: a changed one is the damage that an id cannot show.
        if outcome.code == 0 and outcome.stdout != before and not _only_ops_differ(whole, path.read_bytes()):
            tally.loss(f"{what}: another state with exit code 0")


def _only_ops_differ(one: bytes, other: bytes) -> bool:
    def without_ops(data: bytes) -> list[dict[str, object]]:
        return [{**each, "op": ""} for each in json.loads(data)["deltas"]]

    try:
        return without_ops(one) == without_ops(other)
    except (ValueError, KeyError, TypeError):
        return False


def full_disk(folder: Path, chance: random.Random, rounds: int, tally: Tally) -> None:
    """Files may not grow any more: one clear line, and nothing half committed."""
    lake = _lake(folder / "lake", chance, 3)
    lines = folder / "deltas.jsonl"
    lines.write_text("\n".join(json.dumps(each.to_wire()) for each in _deltas(chance, 300, 50_000)))
    wanted = Counter(each.delta_id for each in all_deltas(lake, "todos"))
    for limit in (1, 2, 4, 8):
        for command in (["flush", str(lines)], ["compact", "--table", "todos"]):
            script = (
                f"ulimit -f {limit}; exec {sys.executable} -m driftline lake {' '.join(command)} --lake {lake.root}"
            )
            ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=120)
            tally.tried += 1
            if "Traceback" in ended.stderr:
                tally.traceback(f"{command[0]} at {limit} KiB: {ended.stderr[-300:]}")
            if ended.returncode == 0 and command[0] == "flush":
                wanted = Counter({*wanted, *(json.loads(line)["deltaId"] for line in lines.read_text().splitlines())})
            _judge(lake, wanted, tally, f"{command[0]} at {limit} KiB")


def _judge(lake: Lake, wanted: Counter[str], tally: Tally, what: str) -> None:
    found = Counter(each.delta_id for each in all_deltas(lake, "todos"))
    if found != wanted:
        tally.loss(f"{what}: {sum((wanted - found).values())} lost, {sum((found - wanted).values())} doubled")
    compact(lake, "todos")
    if not verify(lake, "todos").is_proved:
        tally.loss(f"{what}: the snapshot is not the replay of its deltas")


def _lake(root: Path, chance: random.Random, batches: int) -> Lake:
    lake = Lake(str(root))
    register(lake, SCHEMA)
    for number in range(batches):
        flush(lake, "todos", _deltas(chance, 100, 1 + number * 200), gateway_id="gw", sequence=number + 1)
    return lake


def _deltas(chance: random.Random, count: int, first: int) -> list[RowDelta]:
    made = []
    for number in range(count):
        dies = chance.random() < 0.2
        columns = [] if dies else [ColumnDelta("title", f"t{number}"), ColumnDelta("n", number)]
        row = f"r{chance.randrange(300)}"
        made.append(
            RowDelta.make(
                op="DELETE" if dies else "UPDATE",
                table="todos",
                row_id=row,
                client_id="c",
                columns=columns,
                hlc=first + number,
            )
        )
    return made
