"""The stages of a table that follows change events: read what is new, then load it (pipeline §8)."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from driftline.core import AGE, LineRange, decompressed, file_digest, io_errors, is_url, line_ranges
from driftline.errors import ChangesetError, PipelineError
from driftline.lake import ReadFile, ReadOffsets, load_changes, positions_digest, registered, reload
from driftline.pipeline._declare.snapshots import CHANGES, TableStages, newest_file
from driftline.pipeline._stages.diffs import scratch_folder
from driftline.pipeline._stages.lake import load_job
from driftline.pipeline._stages.stage import Outcome, Stage, StageContext
from driftline.sources import InputFile, StoredFile, list_urls

if TYPE_CHECKING:
    from driftline.changesets import CdcTable, PieceFacts

_CHUNK = 4 << 20
_PIECE_BYTES = 32 << 20
_HINT = "put it back as it was, or run once with --full-refresh, which reads every file anew"
_HINTS = {
    "schema_mismatch": ": declare on_new_column = add or ignore, or mend the source",
    "missing_column": ': declare on_missing_column = "null", or mend the source',
}
_COUNTS = ("added", "removed", "changed")
_COMPRESSED: dict[str, Literal["gzip", "zstd"]] = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}


def change_stages(plan: TableStages) -> Iterator[Stage]:
    """Read the new events of a table's stream, then load them."""
    flow = plan.flow
    assert flow.changes is not None
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
        extra_inputs=lambda: {each.name: each.mark for each in list_changes(plan.changes_address())},
        # What was read begins where the lake stands, or the lake has it already.
        is_fresh=lambda _, facts: positions_digest(plan.ledger().changes) in (facts["start"], facts["end"]),
        measures=partial(_age, plan),
    )
    yield Stage(
        plan.name(CHANGES, "deltas"),
        partial(_load, plan),
        needs=(plan.name(CHANGES, "read"),),
        options={"lake": plan.lake_options(), "columns": dict(flow.columns)},
        is_fresh=lambda _, facts: (
            not (ledger := plan.ledger()).others and positions_digest(ledger.changes) == facts["end"]
        ),
    )


def _read(plan: TableStages, context: StageContext) -> Outcome:
    """Convert the bytes that the lake has not seen into events of a diff."""
    positions = plan.ledger().changes
    files = list_changes(plan.changes_address())
    if context.full_refresh:
        gone = missing_files(files, positions)
        if gone:
            raise PipelineError(
                f"files of changes were read and are gone, such as {gone[-1]}: a full refresh would lose their rows",
                code="missing_changes",
            )
        positions = {}
    assert plan.flow.changes is not None
    in_order = not plan.flow.changes.partitioned
    with scratch_folder(context, on_disk=True) as scratch:
        unread, notes = unread_bytes(files, positions, scratch, in_order=in_order)
        reading = _Reading(plan, context, scratch, unread, in_order)
        parts, after = reading.convert(positions)
        if not after:
            raise PipelineError(f"{plan.flow.changes.address} holds no whole transaction yet", code="no_changes")
        after = needed_positions(after, files, in_order=in_order)
        wire = {name: position.to_wire() for name, position in after.items()}
        context.outputs.path("positions").write_bytes(json.dumps(wire, indent=1).encode())
        names = list(reading.table.columns)
        schema = json.dumps({"type": "schema", "columns_a": names, "columns_b": names}, ensure_ascii=False)
        with context.outputs.writing("events") as out:  # the parts in order, as the events of a diff
            out.write(schema.encode() + b"\n")
            for part in parts:
                with open(part, "rb") as lines:
                    shutil.copyfileobj(lines, out, 1 << 20)
            out.write(b'{"type":"stats"}\n')
    facts = {"start": positions_digest(positions), "end": positions_digest(after)}
    return Outcome(reading.counts(), facts, [*notes, *reading.notes()])


@dataclass(frozen=True, slots=True)
class _Piece:
    """A run of whole lines of a file, known by its name."""

    name: str
    lines: LineRange


class _Reading:
    """The new bytes of a stream on their way to events."""

    def __init__(
        self, plan: TableStages, context: StageContext, scratch: Path, unread: Sequence[Unread], in_order: bool
    ) -> None:
        self._plan, self._context, self._scratch = plan, context, scratch
        self._unread, self._in_order = unread, in_order
        self._facts: list[PieceFacts] = []
        self._added: list[str] = []
        self._pieces = [
            _Piece(each.name, lines)  # runs of whole lines that tasks can read side by side
            for each in unread
            for lines in line_ranges(each.path, _PIECE_BYTES, each.start, each.stop)
        ]
        self.table = self._resolve_columns()

    def convert(self, positions: ReadOffsets) -> tuple[list[Path], ReadOffsets]:
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
        names = list(dict.fromkeys(name for facts in self._facts for name in facts.namespaces))
        if len(names) > 1:  # one name in two databases would be mixed up
            raise PipelineError(
                f"events of {self.table.name} come from {names[0]} and {names[1]}: name one, as changes_table = "
                f'"{names[0]}.{self.table.name}"',
                code="ambiguous_table",
            )
        read = {each.name: each.read_up_to(stops[each.name]) for each in self._unread if each.name in stops}
        return [part for _, part in whole], {**positions, **read}

    def counts(self) -> dict[str, int]:
        """What the events do to rows."""
        counts = {name: sum(facts.counts[name] for facts in self._facts) for name in _COUNTS}
        return {**counts, "different": sum(counts.values())}

    def notes(self) -> Iterator[str]:
        """What was passed over, and which columns are new."""
        yield from (f"column {name!r} was added" for name in self._added)
        others = self._others()
        if others:
            yield f"{others.total():,} events of other tables were passed over ({', '.join(sorted(others)[:5])})"
        truncated = sum(facts.truncated for facts in self._facts)
        if truncated:
            yield f"the table was truncated {truncated} times, which was passed over"

    def _resolve_columns(self) -> CdcTable:
        """The columns of the table in the lake; those of the events where it has none, or where new ones are added."""
        from driftline.changesets import CdcTable

        plan, changes, policy = self._plan, self._plan.flow.changes, self._plan.flow.schema_policy
        assert changes is not None
        schema = registered(plan.lake(), plan.flow.name)
        known = schema.names if schema is not None and plan.ledger().changes and not self._context.full_refresh else ()
        namespace, _, name = (changes.table or plan.flow.name).rpartition(".")
        whose = (name, plan.flow.key, tuple(known), plan.flow.columns, namespace or None, changes.source)
        ignores_new, fills = policy.on_new_column == "ignore", policy.on_missing_column == "null"
        table = CdcTable(*whose, changes.on_truncate == "skip", ignores_new, fills)
        if known and policy.on_new_column != "add":
            return table
        kernel = partial(_facts_of_piece, table, self._pieces, None)
        self._facts = list(_in_pieces(self._context, kernel, len(self._pieces)))
        columns = dict.fromkeys([*known, *(name for each in self._facts for name in each.columns)])
        self._added = [name for name in columns if known and name not in known]
        if not columns:
            others = self._others()
            seen = f"events of {', '.join(sorted(others)[:5])}" if others else "no events"
            raise PipelineError(
                f"{changes.address} has {seen}, and none of {plan.flow.name}: name the table of the source, as "
                'changes_table = "public.orders"',
                code="no_changes",
            )
        missing = [name for name in plan.flow.key if name not in columns]
        if missing:
            raise PipelineError(
                f"the events of {name} have no column {missing[0]!r} for the key ({', '.join(columns)})", code="no_key"
            )
        return replace(table, columns=tuple(columns))

    def _others(self) -> Counter[str]:
        """How many events of other tables there are."""
        return sum((facts.others for facts in self._facts), Counter())

    def _run(self, pieces: Sequence[_Piece]) -> tuple[list[PieceFacts], list[Path]]:
        targets = [self._scratch / f"{place}-{piece.lines.stop}.part" for place, piece in enumerate(pieces)]
        kernel = partial(_facts_of_piece, self.table, list(pieces), targets)
        return list(_in_pieces(self._context, kernel, len(pieces))), targets


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
    if context.engine.is_spark and isinstance(context.state, Path):  # tasks see no disk of ours beside a store
        from driftline.spark import run_in_tasks

        return run_in_tasks(context.engine.session(), count, kernel)
    return map(kernel, range(count))


def _facts_of_piece(table: CdcTable, pieces: list[_Piece], targets: list[Path] | None, number: int) -> PieceFacts:
    """What a piece holds, converted into its target if there is one; of a bad message the words name the file."""
    from driftline.changesets import convert, survey

    piece = pieces[number]
    try:
        if targets is None:
            return survey(lines_of(piece.lines), table)
        with open(targets[number], "wb") as out:
            return convert(lines_of(piece.lines), table, out.write)
    except ChangesetError as error:
        raise PipelineError(f"{piece.name}, {error.message}{_HINTS.get(error.code, '')}", code=error.code) from error


def _load(plan: TableStages, context: StageContext) -> Outcome:
    """Put what was read into the lake."""
    reading = context.stage.needs[0]
    events = context.made(reading, "events")
    positions = json.loads(context.made(reading, "positions").read_bytes())
    after = {name: ReadFile(*entry) for name, entry in positions.items()}
    job = replace(load_job(plan, context, {}, is_text=True), is_typed=True)
    if context.full_refresh:
        reload(job, events)
    deltas = load_changes(job, context.needed[reading].facts["start"], after, events)
    return Outcome({"deltas": deltas}, {"end": positions_digest(after)})


# Files of change events: which of their bytes are new, and whether what was read is unchanged (pipeline §8).
@dataclass(frozen=True, slots=True)
class EventFile:
    """One file of a stream, by its name below the folder or prefix."""

    name: str
    file: InputFile

    @property
    def mark(self) -> str:
        """What it is by, without reading it."""
        return self.file.etag if isinstance(self.file, StoredFile) else f"{self.file.size}:{self.file.modified_ns}"

    def plain(self, scratch: Path) -> Path:
        """Its bytes as a file of this machine that tasks see: itself, or a copy without compression."""
        suffix = Path(self.name).suffix.lower()
        if not isinstance(self.file, StoredFile) and suffix not in _COMPRESSED:
            return Path(self.file.path)
        copy = scratch / f"{len(list(scratch.iterdir()))}.jsonl"
        with io_errors(self.name), self.file.open() as source, open(copy, "wb") as out:
            shutil.copyfileobj(decompressed(source, _COMPRESSED.get(suffix, "plain"), self.name), out, _CHUNK)
        return copy


@dataclass(frozen=True, slots=True)
class Unread:
    """The new bytes of a file: whole lines from `start` up to `stop`; `rest` bytes after them are no whole line yet."""

    name: str
    path: Path
    start: int
    stop: int
    rest: int
    mark: str

    def read_up_to(self, offset: int) -> ReadFile:
        """The position after reading so far."""
        is_all = offset == self.stop and not self.rest
        return ReadFile(offset, file_digest(self.path, offset), self.mark if is_all else "")


def list_changes(given: str) -> list[EventFile]:
    """The files of a folder or a prefix in the order of their names; hidden ones and writers' marks are left out."""
    if is_url(given):
        prefix = given if given.endswith("/") else f"{given}/"
        found = [EventFile(url.removeprefix(prefix), StoredFile.at(url)) for url in list_urls(prefix)]
    else:
        folder = Path(given)
        if not folder.is_dir():
            raise PipelineError(f"{given} is no folder: 'changes' is a folder or a prefix of files", code="not_found")
        paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        found = [EventFile(name, InputFile.of(path.absolute(), path.name)) for name, path in paths.items()]
    shown = [each for each in found if not Path(each.name).name.startswith((".", "_"))]
    return sorted(shown, key=lambda each: each.name)


def _age(plan: TableStages) -> dict[str, int]:
    """How many seconds ago the newest file was written to; a folder without files has no age."""
    given = plan.changes_address()
    newest = newest_file(f"{given.rstrip('/')}/" if is_url(given) else [each.file.path for each in list_changes(given)])
    return {} if newest is None else {AGE: max(0, round(time.time() - newest))}


def unread_bytes(
    files: Sequence[EventFile], positions: ReadOffsets, scratch: Path, *, in_order: bool
) -> tuple[list[Unread], list[str]]:
    """What is new, in the order of names, and notes about what has to wait; what was read must be as it was."""
    found: list[Unread] = []
    notes: list[str] = []
    for each in files:
        known = positions.get(each.name)
        if known is not None and known.mark == each.mark:
            continue
        unread = _look(each, known, scratch)
        later = max(positions, default="")
        if in_order and unread.stop > unread.start and later > each.name:
            raise PipelineError(
                f"{each.name} has new messages, but {later}, which comes after it, was read: files are read in the "
                "order of their names. Declare partitioned = true if rows of one key are always in one partition, or "
                "run once with --full-refresh",
                code="late_changes",
            )
        found.append(unread)
        if unread.rest:
            waits = "; files after it wait" if in_order and each is not files[-1] else ""
            notes.append(f"{each.name} ends in the middle of a message: its last {unread.rest} bytes wait{waits}")
            if in_order:
                break
    return found, notes


def _look(each: EventFile, known: ReadFile | None, scratch: Path) -> Unread:
    path = each.plain(scratch)
    with io_errors(each.name):
        size = path.stat().st_size
    start = known.offset if known else 0
    if size < start:
        raise PipelineError(
            f"{each.name} was cut: {start} bytes of it were read, and it has {size} now: {_HINT}", code="changes_cut"
        )
    if known is not None and file_digest(path, start) != known.digest:
        raise PipelineError(
            f"{each.name} was replaced: its first {start} bytes, which were read, are others now: {_HINT}",
            code="changes_replaced",
        )
    stop = _end_of_messages(path, start, size)
    return Unread(each.name, path, start, stop, size - stop, each.mark)


def _end_of_messages(path: Path, start: int, size: int) -> int:
    """Where the last whole message ends: at a line end, or at the end of the file if its last line is one too."""
    with io_errors(path.name), open(path, "rb") as file:
        end = size
        while end > start:
            begin = max(start, end - _CHUNK)
            file.seek(begin)
            place = file.read(end - begin).rfind(b"\n")
            if place >= 0:
                end = begin + place + 1
                break
            end = begin
        file.seek(end)
        rest = file.read(size - end)
    with suppress(ValueError):  # an object that ends cannot be the beginning of a longer one
        return size if not rest.strip() or isinstance(json.loads(rest), dict) else end
    return end


def lines_of(piece: LineRange) -> Iterator[tuple[int, bytes]]:
    """The lines of a piece that are not blank, each with its offset in the file."""
    with io_errors(piece.path), open(piece.path, "rb") as file:
        file.seek(piece.start)
        offset = piece.start
        for line in file:
            if offset >= piece.stop:
                return
            if line.strip():
                yield offset, line[: piece.stop - offset]
            offset += len(line)


def missing_files(files: Sequence[EventFile], positions: Mapping[str, ReadFile]) -> list[str]:
    """What was read and is no longer there."""
    there = {each.name for each in files}
    return sorted(name for name in positions if name not in there)


def needed_positions(positions: ReadOffsets, files: Sequence[EventFile], *, in_order: bool) -> ReadOffsets:
    """Without files that are gone: in order, one that comes back is late and refused whether it is known or not.

    The last of them stays, because it says that the files no longer hold the whole table.
    """
    gone = missing_files(files, positions)
    if not in_order or len(gone) < 2:
        return positions
    return {name: position for name, position in positions.items() if name not in gone[:-1]}
