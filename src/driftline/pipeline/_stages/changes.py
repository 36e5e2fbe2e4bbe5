"""The stages of a table that follows change events: read what is new, then load it (pipeline §8)."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from driftline.core._json import JsonObject
from driftline.core._objects import Place
from driftline.core._parts import LineRange
from driftline.errors import ChangesetError, PipelineError
from driftline.lake import registered
from driftline.lake._load.load import load_changes, positions_digest, refresh
from driftline.lake._store.snapshots import Positions, ReadFile
from driftline.pipeline.change_files import (
    Unread,
    age_of_changes,
    lines_of,
    list_changes,
    missing_files,
    needed_positions,
    unread_bytes,
)
from driftline.pipeline.diff_stages import disk_folder
from driftline.pipeline.load_stages import load_job
from driftline.pipeline.stages import Outcome, Stage, StageContext
from driftline.pipeline.table_plan import CHANGES, TablePlan

if TYPE_CHECKING:
    from driftline.changesets._cdc.convert import CdcTable, PieceFacts

_COUNTS = ("added", "removed", "changed")


def change_stages(plan: TablePlan) -> Iterator[Stage]:
    """Read the new events of a table's stream, then load them."""
    flow = plan.flow
    if flow.changes is None:
        return
    folder = plan.state / "events" / flow.name
    yield Stage(
        plan.name(CHANGES, "read"),
        partial(_read, plan),
        outputs={"events": folder / "changes.jsonl", "positions": folder / "changes-read.json"},
        options={
            "changes": asdict(flow.changes),
            "key": list(flow.key),
            "columns": dict(flow.columns),
            "schema": asdict(flow.schema_policy),
            "lake": plan.lake_options(),
        },
        gate=flow.fail_if,
        warn=flow.warn_if,
        extra_inputs=partial(_listed, plan),
        is_fresh=partial(_is_current, plan),
        measures=lambda: age_of_changes(plan.changes_address()),
    )
    yield Stage(
        plan.name(CHANGES, "deltas"),
        partial(_load, plan),
        needs=(plan.name(CHANGES, "read"),),
        options={"lake": plan.lake_options(), "columns": dict(flow.columns)},
        is_fresh=partial(_is_loaded, plan),
    )


def _listed(plan: TablePlan) -> JsonObject:
    return {each.name: each.mark for each in list_changes(plan.changes_address())}


def _is_current(plan: TablePlan, context: StageContext, facts: Mapping[str, Any]) -> bool:
    """What was read begins where the lake stands, or the lake has it already."""
    return positions_digest(plan.ledger().changes) in (facts["start"], facts["end"])


def _is_loaded(plan: TablePlan, context: StageContext, facts: Mapping[str, Any]) -> bool:
    ledger = plan.ledger()
    return positions_digest(ledger.changes) == facts["end"] and not ledger.others


def _read(plan: TablePlan, context: StageContext) -> Outcome:
    """Convert the bytes that the lake has not seen into events of a diff."""
    positions = _start(plan, context)
    files = list_changes(plan.changes_address())
    assert plan.flow.changes is not None
    in_order = not plan.flow.changes.partitioned
    with disk_folder(context) as scratch:
        unread, notes = unread_bytes(files, positions, scratch, in_order=in_order)
        reading = _Reading(plan, context, scratch, unread, in_order)
        parts, after = reading.convert(positions)
        if not after:
            raise PipelineError(f"{plan.flow.changes.address} holds no whole transaction yet", code="no_changes")
        after = needed_positions(after, files, in_order=in_order)
        context.outputs.path("positions").write_bytes(json.dumps(_positions_wire(after), indent=1).encode())
        with context.outputs.writing("events") as out:
            _join(out, reading.table.columns, parts)
    facts = {"start": positions_digest(positions), "end": positions_digest(after)}
    return Outcome(reading.counts(), facts, [*notes, *reading.notes()])


def _start(plan: TablePlan, context: StageContext) -> Positions:
    known = plan.ledger().changes
    if not context.full_refresh:
        return known
    gone = missing_files(list_changes(plan.changes_address()), known)
    if gone:
        raise PipelineError(
            f"files of changes were read and are gone, such as {gone[-1]}: a full refresh would lose their rows",
            code="missing_changes",
        )
    return {}


@dataclass(frozen=True, slots=True)
class _Piece:
    """A run of whole lines of a file, known by its name."""

    name: str
    lines: LineRange


class _Reading:
    """The new bytes of a stream on their way to events."""

    def __init__(
        self, plan: TablePlan, context: StageContext, scratch: Path, unread: Sequence[Unread], in_order: bool
    ) -> None:
        self._plan, self._context, self._scratch = plan, context, scratch
        self._unread, self._in_order = unread, in_order
        self._facts: list[PieceFacts] = []
        self._added: list[str] = []
        self._pieces = [_Piece(each.name, lines) for each in unread for lines in each.pieces()]
        self.table = self._settle_columns()

    def convert(self, positions: Positions) -> tuple[list[Path], Positions]:
        """The parts with the events, and how far every file was read then."""
        facts, parts = self._run(self._pieces)
        cuts = _cuts(self._pieces, facts, in_order=self._in_order)
        whole: list[tuple[PieceFacts, Path]] = []
        stops: dict[str, int] = {}
        for piece, fact, part in zip(self._pieces, facts, parts, strict=True):
            stop = min(piece.lines.stop, cuts.get(piece.name, piece.lines.stop))
            if stop <= piece.lines.start:
                continue
            if stop < piece.lines.stop:  # a transaction is still open: what is before it is read once more
                [fact], [part] = self._run([replace(piece, lines=replace(piece.lines, stop=stop))])
            whole.append((fact, part))
            stops[piece.name] = stop
        self._facts = [fact for fact, _ in whole]
        self._check_names()
        read = {each.name: each.read_up_to(stops[each.name]) for each in self._unread if each.name in stops}
        return [part for _, part in whole], {**positions, **read}

    def counts(self) -> dict[str, int]:
        """What the events do to rows."""
        total: Counter[str] = Counter()
        for facts in self._facts:
            total.update(facts.counts)
        counts = {name: total[name] for name in _COUNTS}
        return {**counts, "different": sum(counts.values())}

    def notes(self) -> Iterator[str]:
        """What was passed over, and which columns are new."""
        yield from (f"column {name!r} was added" for name in self._added)
        others = sum((facts.others for facts in self._facts), Counter())
        if others:
            yield f"{others.total():,} events of other tables were passed over ({', '.join(sorted(others)[:5])})"
        truncated = sum(facts.truncated for facts in self._facts)
        if truncated:
            yield f"the table was truncated {truncated} times, which was passed over"

    def _settle_columns(self) -> CdcTable:
        """The columns that the lake knows; those of the events where it knows none, or where new ones are added."""
        from driftline.changesets._cdc.convert import CdcTable

        plan, changes, policy = self._plan, self._plan.flow.changes, self._plan.flow.schema_policy
        assert changes is not None
        schema = registered(plan.lake(), plan.flow.name)
        known = schema.names if schema is not None and plan.ledger().changes and not self._context.full_refresh else ()
        namespace, _, name = (changes.table or plan.flow.name).rpartition(".")
        table = CdcTable(
            name,
            plan.flow.key,
            tuple(known),
            plan.flow.columns,
            namespace or None,
            changes.source,
            changes.on_truncate == "skip",
            policy.on_new_column == "ignore",
            policy.on_missing_column == "null",
        )
        if known and policy.on_new_column != "add":
            return table
        seen = [each.columns for each in self._survey(table)]
        columns = dict.fromkeys([*known, *(name for names in seen for name in names)])
        self._added = [name for name in columns if known and name not in known]
        if not columns:
            self._refuse_nothing()
        missing = [name for name in plan.flow.key if name not in columns]
        if missing:
            raise PipelineError(
                f"the events of {name} have no column {missing[0]!r} for the key ({', '.join(columns)})", code="no_key"
            )
        return replace(table, columns=tuple(columns))

    def _survey(self, table: CdcTable) -> list[PieceFacts]:
        self._facts = list(_in_pieces(self._context, partial(_survey_piece, table, self._pieces), len(self._pieces)))
        return self._facts

    def _refuse_nothing(self) -> None:
        changes = self._plan.flow.changes
        assert changes is not None
        others = sum((facts.others for facts in self._facts), Counter())
        seen = f"events of {', '.join(sorted(others)[:5])}" if others else "no events"
        raise PipelineError(
            f"{changes.address} has {seen}, and none of {self._plan.flow.name}: name the table of the "
            'source, as changes_table = "public.orders"',
            code="no_changes",
        )

    def _run(self, pieces: Sequence[_Piece]) -> tuple[list[PieceFacts], list[Path]]:
        targets = [self._scratch / f"{place}-{piece.lines.stop}.part" for place, piece in enumerate(pieces)]
        kernel = partial(_convert_piece, self.table, list(pieces), targets)
        return list(_in_pieces(self._context, kernel, len(pieces))), targets

    def _check_names(self) -> None:
        """One name in two databases would be mixed up."""
        names = list(dict.fromkeys(name for facts in self._facts for name in facts.namespaces))
        if len(names) > 1:
            raise PipelineError(
                f"events of {self.table.name} come from {names[0]} and {names[1]}: name one, as changes_table = "
                f'"{names[0]}.{self.table.name}"',
                code="ambiguous_table",
            )


def _cuts(pieces: Sequence[_Piece], facts: Sequence[PieceFacts], *, in_order: bool) -> dict[str, int]:
    """Where files must not be read further, because a transaction begins there that has not ended yet.

    In a stream that is read in order a transaction may go on in the next piece; all that is behind its beginning waits.
    """
    opened: dict[str, tuple[int, str | None]] = {}  # the place of the piece, the id; by file where each is a stream
    for place, (piece, fact) in enumerate(zip(pieces, facts, strict=True)):
        stream = "" if in_order else piece.name
        goes_on = stream in opened and not fact.committed and opened[stream][1] == fact.open_id
        if fact.ending == -1:
            opened.pop(stream, None)
        elif fact.ending is not None and not goes_on:
            opened[stream] = place, fact.open_id
    cuts: dict[str, int] = {}
    for stream, (place, _) in opened.items():
        cuts[pieces[place].name] = facts[place].ending or 0
        if in_order:
            cuts |= {piece.name: 0 for piece in pieces[place + 1 :] if piece.name != pieces[place].name}
        assert stream in ("", pieces[place].name)
    return cuts


def _in_pieces(context: StageContext, kernel: Any, count: int) -> Iterable[PieceFacts]:
    """Run a kernel over every piece, here or in Spark's tasks."""
    from driftline.changesets._cdc.convert import PieceFacts

    if context.engine.is_spark and isinstance(context.state, Path):  # tasks see no disk of ours beside a store
        from driftline.spark._lake import in_tasks

        return (PieceFacts.from_wire(wire) for wire in in_tasks(context.engine.session(), count, kernel))
    return (PieceFacts.from_wire(kernel(number)) for number in range(count))


def _survey_piece(table: CdcTable, pieces: list[_Piece], number: int) -> JsonObject:
    from driftline.changesets._cdc.convert import survey

    piece = pieces[number]
    with _Named(piece.name):
        return survey(lines_of(piece.lines), table).to_wire()


def _convert_piece(table: CdcTable, pieces: list[_Piece], targets: list[Path], number: int) -> JsonObject:
    from driftline.changesets._cdc.convert import convert

    piece = pieces[number]
    with _Named(piece.name), open(targets[number], "wb") as out:
        return convert(lines_of(piece.lines), table, out.write).to_wire()


class _Named:
    """Says in which file a bad message stands, and what may be declared about it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, ChangesetError):
            remedy = {
                "schema_mismatch": ": declare on_new_column = add or ignore, or mend the source",
                "missing_column": ': declare on_missing_column = "null", or mend the source',
            }.get(error.code, "")
            raise PipelineError(f"{self._name}, {error.message}{remedy}", code=error.code) from error


def _join(out: BinaryIO, columns: Sequence[str], parts: Sequence[Path]) -> None:
    """The parts in their order, between the lines that begin and end the events of a diff."""
    names = list(columns)
    out.write(
        json.dumps({"type": "schema", "columns_a": names, "columns_b": names}, ensure_ascii=False).encode() + b"\n"
    )
    for part in parts:
        with open(part, "rb") as lines:
            shutil.copyfileobj(lines, out, 1 << 20)
    out.write(b'{"type":"stats"}\n')


def _load(plan: TablePlan, context: StageContext) -> Outcome:
    """Put what was read into the lake."""
    reading = context.stage.needs[0]
    events = context.made(reading, "events")
    after = _positions_of(json.loads(context.made(reading, "positions").read_bytes()))
    job = replace(load_job(plan, context, {}, is_text=True), is_typed=True)
    if context.full_refresh:
        refresh(job, _Whole(events))
    deltas = load_changes(job, context.needed[reading].facts["start"], after, events)
    return Outcome({"deltas": deltas}, {"end": positions_digest(after)})


@dataclass(frozen=True)
class _Whole:
    """Events as something that a new generation takes its columns from."""

    events: Place

    def difference(self) -> None:
        """There is nothing before it."""

    def whole(self) -> Place:
        """All that was read."""
        return self.events


def _positions_wire(positions: Positions) -> JsonObject:
    return {name: position.to_wire() for name, position in positions.items()}


def _positions_of(wire: Mapping[str, Any]) -> dict[str, ReadFile]:
    return {name: ReadFile(*entry) for name, entry in wire.items()}
