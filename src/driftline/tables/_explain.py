"""A diff in words (titles, `--explain`, hints on errors), and how a pair of files is to be read (`--auto`).

Only the reading is chosen here (encoding, delimiter, header, lines above it), and the key where none is given. A file
of several columns that strict reading accepts is read strictly, unless the given key is not in it. Every choice is an
option, so that the same options give the same result without `--auto`.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from driftline.core import Workspace
from driftline.errors import DriftlineError, InputError, StorageError
from driftline.sinks import Title
from driftline.sources import CsvSource, ReadOptions, Source, input_size, is_in_memory, is_stream, open_source
from driftline.tables import _options
from driftline.tables._columns import Column, Comparison, Sides, resolve_columns
from driftline.tables._engines import TableDiffJob, TableInput, find_engine, named_sides, open_sides
from driftline.tables._events import Stats
from driftline.tables._options import ALIASES, DEFAULTS, OPTIONS, TableOptions, check_options, pairs, remedies
from driftline.tables._rules import Tolerance

if TYPE_CHECKING:
    from driftline.tables._profile import Profile

_MOST_COLUMNS = 40
_UNITS = (("d", 86400 * 10**9), ("h", 3600 * 10**9), ("m", 60 * 10**9), ("s", 10**9), ("ms", 10**6), ("us", 10**3))
_HINT_ROWS = 10_000  # of each side, by which key candidates are found
_DELIMITERS = ",;\t|^~"
_COMMENT = "#"
_LINES = ("comment", "skip_blank_lines", "ragged", "duplicate_columns")  # chosen for both sides alike
_SAMPLE_BYTES = 1 << 18
_SAMPLE_LINES = 200
_MOST_PREAMBLE = 20  # lines above a header
_KEY_ROWS = 20_000  # of each side, by which a key is chosen
_KEY_COLUMNS = 12  # that are tried together
_TRIED_BYTES = 32 << 20  # of both inputs; larger ones are not read again for the words of an error
_ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DATA = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)?|[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}.*")
_LIKE_KEYS = re.compile(r"(?i)(?:.*[_ .-])?(?:id|key|code|uuid|guid|number|no|nr|sku|iso\w*)|.*Id|.*ID")
_FITS = 0.9  # of the lines: some may be ragged
_NEARLY_UNIQUE = 0.9  # of the rows: some keys may be there twice


def heading_of(job: TableDiffJob, stats: Stats, engine: str = "", seconds: float | None = None) -> Title:
    """The title of a result: the inputs, the key and rules, and the current time."""
    options = stats.options or job.options
    about = identity(options) + (f" · {engine}, {seconds:.1f} s" if seconds is not None else "")
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    rules = " · ".join([*rules_in_words(options), *stats.notes])
    names = [os.path.basename(shown) or shown for shown in map(_shown, (job.a, job.b))]
    return Title(" → ".join(names), about, rules, when)


def report_settings(options: TableOptions, stats: Stats, heading: Title) -> dict[str, Any]:
    """What formats for people need beside the events."""
    return {
        "positional": options.has_row_numbers,
        "changed_only": options.changed_columns_only,
        "heading": heading,
        "judged": frozenset(stats.columns),
        "changes": stats.columns,
        "profile": None if stats.profile is None else stats.profile.to_dict(),
    }


def identity(options: TableOptions) -> str:
    """How rows are matched."""
    if options.key_columns:
        return f"key {', '.join(options.key_columns)}"
    return "rows in any order" if options.ignore_row_order else "by position"


def rules_in_words(options: TableOptions) -> Iterator[str]:
    """The options that are set and decide what counts as a difference, in the order of their list.

    >>> from driftline.tables._options import check_options
    >>> list(rules_in_words(check_options(ignore="*_at", tolerance={"price": "0.01,1%"}, no_header=True)))
    ['no header', 'ignore *_at', 'tolerance price 0.01,1%']
    """
    for name, in_words in _WORDS.items():
        value = getattr(options, name)
        if value != DEFAULTS[name]:
            yield in_words(value)


def _said(words: str) -> Callable[[object], str]:
    return lambda value: words if value is True else f"{words} {value}"


def _listed_as(words: str) -> Callable[[tuple[str, ...]], str]:
    return lambda names: f"{words} {', '.join(name or '(empty)' for name in names)}"


def _by_column(words: str, shown: Callable[[Any], str]) -> Callable[[tuple[tuple[str, Any], ...]], str]:
    return lambda pairs: f"{words} {', '.join(f'{name} {shown(value)}' for name, value in pairs)}"


def _by_side(words: str) -> Callable[[tuple[object, object]], str]:
    def shown(sides: tuple[object, object]) -> str:
        a, b = (repr(side) if words == "delimiter" else str(side) for side in sides)
        return f"{words} {a}" if a == b else f"{words} {a} (A), {b} (B)"

    return shown


def _types(sides: tuple[_options.DeclaredTypes, _options.DeclaredTypes]) -> str:
    of_side = _by_column("as", lambda declared: declared[0].name + (f":{declared[1].text}" if declared[1] else ""))
    if sides[0] == sides[1]:
        return of_side(sides[0])
    return " · ".join(f"{of_side(types)} ({side})" for types, side in zip(sides, "AB", strict=True) if types)


def _tolerance(limit: Tolerance) -> str:
    if limit.nanoseconds is not None:
        nanoseconds = limit.nanoseconds
        unit, size = next((one for one in _UNITS if nanoseconds % one[1] == 0), ("ns", 1))
        return f"{nanoseconds // size}{unit}"
    parts = [] if limit.absolute is None else [f"{limit.absolute:g}"]
    return ",".join([*parts, *([] if limit.relative is None else [f"{limit.relative * 100:g}%"])])


_WORDS: dict[str, Callable[[Any], str]] = {
    "header_mode": lambda mode: "columns in any order" if mode == "sorted" else "common columns",
    "inside": _said("inside"),
    "encoding": _by_side("encoding"),
    "delimiter": _by_side("delimiter"),
    "no_header": lambda sides: "no header" + ("" if all(sides) else f" ({'A' if sides[0] else 'B'})"),
    "duplicate_columns": _said("duplicate columns"),
    "ragged": _said("ragged rows"),
    "skip_blank_lines": _said("skip blank lines"),
    "skip_lines": _by_side("skip lines"),
    "comment": _said("comment lines"),
    "ignore_column_case": _said("column names in any case"),
    "rename": _by_column("rename", lambda new: f"→ {new}"),
    "ignore": _listed_as("ignore"),
    "only": _listed_as("only"),
    "normalize": _by_column("normalize", lambda steps: "+".join(step.name for step in steps)),
    "null": _listed_as("null"),
    "types": _types,
    "tolerance": _by_column("tolerance", _tolerance),
    "empty_key": _said("empty keys"),
    "duplicates": _said("duplicates"),
}


def explain_plan(job: TableDiffJob, engine: str) -> Iterator[str]:
    """Lines about files, columns, rules, key and engine; raises what would be wrong with the headers."""
    with Workspace() as workspace:
        job, a, b = open_sides(job, workspace)
        yield f"A: {_shown(job.a)}, {_described(a)}"
        yield f"B: {_shown(job.b)}, {_described(b)}"
        sides = Sides(a.typed, b.typed, _kinds(a), _kinds(b), declared=True)
        compared = resolve_columns(a.header("A"), b.header("B"), job.options, sides)
    yield from _columns(compared)
    key = identity(job.options).replace("key ", "key: ", 1)
    if not job.options.key_columns:
        candidates = key_candidates(job)
        hint = f"; columns that could be the key: {', '.join(candidates)}" if candidates else ""
        key = f"key: none, {'rows in any order' if job.options.ignore_row_order else 'rows by position'}{hint}"
    yield key
    yield from (f"types: {note}" for note in compared.notes)
    yield f"rules: {' · '.join(rules_in_words(job.options)) or 'none, cells are compared as they are'}"
    yield f"engine: {engine}"


def _kinds(source: Source) -> dict[str, str]:
    from driftline.sources import column_kinds  # brings Polars, which a small diff does without

    declared = source.types()
    return {} if declared is None else column_kinds(declared)


def _shown(given: object) -> str:
    return os.fspath(given) if isinstance(given, (str, os.PathLike)) else type(given).__name__


def _described(source: Source) -> str:
    files = f"{len(source.files)} files, " if len(source.files) > 1 else ""
    size = "size not known" if source.size is None else f"{source.size:,} bytes"
    how = source.reading if isinstance(source, CsvSource) else None
    read = "" if how is None else f", {how.encoding}, delimiter {how.delimiter!r}"
    return f"{source.format}, {files}{size}{read}"


def _columns(compared: Comparison) -> Iterator[str]:
    names = [_named(column) for column in compared.columns]
    more = f" and {len(names) - _MOST_COLUMNS} more" if len(names) > _MOST_COLUMNS else ""
    yield f"compared: {', '.join(names[:_MOST_COLUMNS])}{more}"
    left_out = [name for name in compared.header_a if name not in {column.a for column in compared.columns}]
    if left_out:
        yield f"not compared: {', '.join(left_out)}"
    for words, columns in (("only in B", compared.added), ("only in A", compared.removed)):
        if columns:
            yield f"{words}: {', '.join(columns)}"


def _named(column: Column) -> str:
    rule = column.rule
    kind, tolerance = [rule.kind.name] if rule.kind else [], ["tolerance"] if rule.tolerance else []
    words = [*(step.name for step in rule.steps), *kind, *tolerance]
    name = column.a if column.a == column.b else f"{column.a} → {column.b}"
    return f"{name} ({', '.join(words)})" if words else name


def remedy(error: DriftlineError, job: TableDiffJob, given: Mapping[str, Any], *, in_python: bool) -> str | None:
    """What helps against an error: options for such errors, and those that were found to read this very pair."""
    found = fixes(error, job, given) if error.code in _READING_ERRORS else None
    hint = hint_for(error, job.options)
    words = [_options.python_words(hint) if in_python and hint else hint]
    if found and "rename" in found:
        renames = found_renames(job.a, job.b, {**given, **found, "rename": {}})
        words += [f"{old} in A and {new} in B: {alike}" for old, (new, alike) in renames.items()]
    if found:
        named = {"key" if name == "key_columns" else name: value for name, value in found.items()}
        in_words = ", ".join(f"{name}={value!r}" for name, value in named.items())
        words.append(f"this pair is read with {in_words if in_python else ' '.join(as_flags(found))}")
    return "; ".join(filter(None, words)) or None


_READING_ERRORS = (
    "invalid_encoding", "csv_parse_error", "row_width_mismatch", "header_mismatch", "missing_key_column", "empty_file",
    "duplicate_column_name", "duplicate_key", "missing_key_value", "missing_table_name",
)  # fmt: skip


def hint_for(error: DriftlineError, options: TableOptions) -> str | None:
    """The option that helps, or None where none does or it is set already.

    >>> from driftline.errors import TableError
    >>> from driftline.tables._options import check_options
    >>> wrong = TableError("Missing key value in A at row 3", code="missing_key_value")
    >>> hint_for(wrong, check_options(key="id"))
    '--empty-key allow takes rows without a key'
    >>> hint_for(wrong, check_options(key="id", empty_key="allow"))
    """
    known = remedies().get(error.code, {})
    option, words = known.get("option"), known.get("hint")
    if words is None or (option is not None and getattr(options, option) != "error"):
        return None
    if error.code == "duplicate_column_name" and any(options.no_header):
        return None
    blank = error.code == "row_width_mismatch" and not options.skip_blank_lines
    return f"{words}; --skip-blank-lines leaves blank lines out" if blank else words


# What `--auto` chooses.

_Heads = Sequence[Mapping[str, list[str]]]  # the cells of the first rows of each side, by column


def reading_of(a: TableInput, b: TableInput, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options to add to the given ones so that both inputs are read as tables, and their rows have a key."""
    chosen: dict[str, Any] = {}
    keys = _listed(given.get("key_columns") or given.get("key") or ())
    with Workspace() as workspace:
        layouts = [_layout(one, side, given, keys, workspace) for one, side in ((a, "a"), (b, "b"))]
        for name in ("encoding", "delimiter", "skip_lines"):
            own = {f"{name}_{side}": layout.get(name) for side, layout in zip("ab", layouts, strict=True)}
            own = {name: layouts[0].get(name)} if len(set(own.values())) == 1 else own
            chosen.update({option: value for option, value in own.items() if value is not None})
        for name, value in {**layouts[0], **layouts[1]}.items():
            chosen.update({name: value} if name in _LINES and name not in given else {})
        shapes = [layout["shape"] for layout in layouts if "shape" in layout]
        bare = [layout["bare"] for layout in layouts if "bare" in layout]
        if len(shapes) == 2 and not keys and shapes[0].first != shapes[1].first:  # a header is no row of the other side
            bare = [True, True] if all(one.first in other.rows for one, other in (shapes, shapes[::-1])) else bare
        if bare and all(bare) and not given.get("no_header"):
            chosen["no_header"] = True
            chosen.pop("duplicate_columns", None)
        elif any(bare) and len(bare) == 2 and not {"no_header", "no_header_a", "no_header_b"} & set(given):
            chosen["no_header_a" if bare[0] else "no_header_b"] = True
    return {**chosen, **_columns_of(a, b, {**given, **chosen}, keyed=bool(keys))}


def found_renames(a: TableInput, b: TableInput, given: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Columns of A that B has under another name, by the values of their first rows, and how many are alike."""
    options = check_options(**given)
    try:
        alike, met = _alike_columns(first_rows(a, b, options, _KEY_ROWS), options.key_columns)
    except (DriftlineError, KeyError):
        return {}  # reading reports it
    found: dict[str, tuple[str, str]] = {}
    for (old, new), (count, differ) in alike.items():
        rivals = (other for (x, y), (other, _) in alike.items() if (x == old) != (y == new))
        if count >= differ * 4 and max(rivals, default=0) < count:
            found[old] = new, f"{met - differ:,} of {met:,} rows are alike"
    return found


def _alike_columns(heads: _Heads, key: Sequence[str]) -> tuple[dict[tuple[str, str], tuple[int, int]], int]:
    """In how many rows a column that only A has is one that only B has, in how many not, and the rows compared.

    Where both have A's most frequent value nothing is proved: columns that are mostly empty are alike in most rows.
    """
    rows = [list(zip(*(head[name] for name in key), strict=True)) for head in heads]
    if not key:
        rows = [[(at,) for at in range(len(next(iter(head.values()), ())))] for head in heads]
    places = {key: at for at, key in enumerate(rows[1])}
    met = [(at, places[key]) for at, key in enumerate(rows[0]) if key in places]
    olds, news = ([name for name in heads[at] if name not in heads[1 - at]][:_KEY_COLUMNS] for at in (0, 1))
    alike = {}
    for old in olds:
        frequent = [value for value, _ in Counter(heads[0][old]).most_common(1)]
        for new in news:
            cells = [(heads[0][old][at], heads[1][new][other]) for at, other in met]
            equal = [one for one, other in cells if one == other]
            alike[old, new] = sum(one not in frequent for one in equal), len(cells) - len(equal)
    return alike, len(met)


def as_flags(options: Mapping[str, Any]) -> list[str]:
    """Options as the command line takes them.

    >>> as_flags({"delimiter_a": "\\t", "no_header": True, "key_columns": ["id", "day of week"]})
    ['--delimiter-a tab', '--no-header', '--key id', "--key 'day of week'"]
    """
    found = []
    for name, value in options.items():
        flag = OPTIONS[name].flag
        listed = [f"{one}={given}" for one, given in value.items()] if isinstance(value, Mapping) else _listed(value)
        words = [""] if value is True else [f" {shlex.quote('tab' if one == chr(9) else str(one))}" for one in listed]
        found += [flag + word for word in words]
    return found


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, (str, int)) else list(value)


def suggested_rules(profile: Profile, given: Mapping[str, Any]) -> dict[str, Any]:
    """The rules that a profile suggests, beside the given ones, by option."""
    found: dict[str, Any] = {}
    for one in profile.suggestions():
        for option, value in one.rules:
            name = ALIASES.get(option.replace("-", "_"), option)
            if name == "null":
                found[name] = list(dict.fromkeys([*found.get(name, given.get(name, ())), value]))
            elif name != "ignore":  # which would hide changes of any kind
                own = found.setdefault(name, dict(pairs(given.get(name, {}))))
                own.setdefault(one.column, value.removeprefix(f"{one.column}="))
    return found


# What makes a pair readable.


def fixes(error: DriftlineError, job: TableDiffJob, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Options with which this very pair is compared without an error; None where none were found or tried."""
    if not all(isinstance(one, (str, os.PathLike)) and not is_stream(one) for one in (job.a, job.b)):
        return None
    try:
        if sum(size or 0 for size in map(input_size, (job.a, job.b))) > _TRIED_BYTES:
            return None
        has_key = given.get("key") or given.get("key_columns")
        read = reading_of(job.a, job.b, given if has_key else {**given, "mode": given.get("mode") or "positional"})
        renames = found_renames(job.a, job.b, {**given, **read}) if error.code == "header_mismatch" else {}
        renamed = {"rename": {old: new for old, (new, _) in renames.items()}} if renames else {}
        if found := _tried(job, given, renamed) or _tried(job, given, {**read, **renamed}) or _tried(job, given, read):
            return found
        if error.code == "missing_key_column":
            rest = {name: value for name, value in given.items() if name not in ("key", "key_columns", "mode")}
            read = reading_of(job.a, job.b, rest)
            return _tried(job, rest, read) if "key_columns" in read else None
    except (DriftlineError, OSError):
        return None  # the first error is reported
    return None


def _tried(job: TableDiffJob, given: Mapping[str, Any], added: dict[str, Any]) -> dict[str, Any] | None:
    passed: list[str] = []
    while True:
        try:
            checked = check_options(**{**given, **added})
            find_engine("local")(replace(job, options=checked, kept=None), lambda data: None)
        except DriftlineError as error:
            options = remedies().get(error.code, {}).get("tried", ())
            left = [one for one in options if one not in passed and one.partition("=")[0] not in given]
            if not left:
                return None
            passed.append(left[0])
            added.update([left[0].split("=")])
        else:
            return added


# How a file of text is laid out.


class _Shape(NamedTuple):
    """One way to read a file: how many lines fit, columns, and the first record."""

    fitting: float
    width: int
    first: list[str]
    rows: list[list[str]]
    delimiter: str
    skipped: int
    has_blanks: bool


def _layout(
    given: TableInput, side: str, options: Mapping[str, Any], keys: Sequence[str], workspace: Workspace
) -> dict[str, Any]:
    """What differs from strict reading for one file; `bare`: whether it starts with data. Nothing for typed data."""
    if is_in_memory(given) or is_stream(given):
        return {}
    source = open_source(given, workspace, ReadOptions())
    if not isinstance(source, CsvSource):
        return {}
    found: dict[str, Any] = {}
    encoding = options.get(f"encoding_{side}", options.get("encoding"))
    if encoding is None:
        encoding = _encoding(source)
        found.update({} if encoding == "utf-8" else {"encoding": encoding})
    with source.files[0].open() as stream:
        text = codecs.getincrementaldecoder(encoding)("replace").decode(stream.read(_SAMPLE_BYTES)).lstrip("\ufeff")
    lines = list(islice(io.StringIO(text, newline=""), _SAMPLE_LINES + _MOST_PREAMBLE))
    lines = lines[:-1] if len(text) >= _SAMPLE_BYTES and len(lines) > 1 else lines
    own = options.get(f"delimiter_{side}", options.get("delimiter"))
    usual = source.reading.delimiter if own in (None, "auto") else own
    delimiters = [own] if own not in (None, "auto") else [usual, *_DELIMITERS]
    shape = _shape(lines, delimiters, keys) or _shape(lines, delimiters, ())
    if shape is None and lines and lines[0].startswith(_COMMENT):  # more of them than a title has lines
        start = next((at for at, line in enumerate(lines) if line.strip() and line[0] != _COMMENT), 0)
        shape = _shape([line for line in lines[start:] if line[0] != _COMMENT], delimiters, ())
        shape = None if shape is None else shape._replace(skipped=start)
    if shape is None:
        return found
    skip_given = f"skip_lines_{side}" in options or "skip_lines" in options or "comment" in options
    above = lines[: shape.skipped]
    if shape.skipped and not skip_given:
        is_comment = all(line.startswith(_COMMENT) or not line.strip() for line in above)
        found.update(
            {"comment": _COMMENT} if is_comment and any(map(str.strip, above)) else {"skip_lines": shape.skipped}
        )
    if shape.delimiter != usual:
        found["delimiter"] = shape.delimiter
    if shape.has_blanks:
        found["skip_blank_lines"] = True
    if any(len(row) != shape.width for row in shape.rows):
        found["ragged"] = "pad"
    if len(set(shape.first)) < shape.width and not _is_bare(shape):
        found["duplicate_columns"] = "rename"
    return {**found, "shape": shape, "bare": not set(keys) & set(shape.first) and _is_bare(shape)}


def _encoding(source: CsvSource) -> str:
    """UTF-8 if all bytes are; else what the first bytes say; else Windows-1252, or Latin-1, which reads all bytes."""
    decoder, start = codecs.getincrementaldecoder("utf-8")(), b""
    try:
        with source.files[0].open() as stream:
            while block := stream.read(1 << 20):
                start = start or block[:1000]
                decoder.decode(block)
            decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        known = next((name for mark, name in _ENCODINGS if start.startswith(mark)), None)
        zeros = [start[at::2].count(0) for at in (0, 1)]
        if known is None and max(zeros) * 4 > len(start):
            known = "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
        undefined = bytes(error.object[error.start : error.start + 1]) in (b"\x81", b"\x8d", b"\x8f", b"\x90", b"\x9d")
        return known or ("latin-1" if undefined else "cp1252")
    return "utf-8"


def _shape(lines: Sequence[str], delimiters: Iterable[str], keys: Sequence[str]) -> _Shape | None:
    """The way of reading that has the key and fits most lines: from the first line on, if one does that well."""
    for starts in (range(1), range(1, min(_MOST_PREAMBLE, len(lines)))):
        shapes = [
            (set(keys) <= set(shape.first), round(shape.fitting, 1), -skipped, shape.fitting, shape)
            for skipped in starts
            if lines[skipped:] and lines[skipped].strip()
            for delimiter in dict.fromkeys(delimiters)
            if (shape := _read(lines[skipped:], delimiter, skipped)) is not None and shape.width > 1
        ]
        best = max(shapes, key=lambda one: one[:-1], default=None)  # of equals the first one
        if best is not None and best[0] and best[1] >= _FITS:
            return best[-1]
    return None


def _read(lines: Sequence[str], delimiter: str, skipped: int) -> _Shape | None:
    try:
        found = list(csv.reader(lines, delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    records = list(filter(None, found))
    if not records:
        return None
    rows, width = records[1:], len(records[0])
    exact, short = sum(len(row) == width for row in rows), sum(1 < len(row) < width for row in rows)
    fitting = (exact + (0 if skipped or exact < short else short)) / len(rows) if rows else float(not skipped)
    if width > 1 and records[0][0].strip() and not any(map(str.strip, records[0][1:])):
        fitting = 0.0  # a title, with as many delimiters behind it as a spreadsheet writes
    return _Shape(fitting, width, records[0], rows, delimiter, skipped, len(records) < len(found))


def _is_bare(shape: _Shape) -> bool:
    """Whether the first record looks like the others: a number or date where they have one."""
    columns = [[row[at] for row in shape.rows if len(row) == shape.width] for at in range(shape.width)]
    of_data = [at for at, cell in enumerate(shape.first) if _DATA.fullmatch(cell.strip())]
    return any(
        columns[at] and sum(map(bool, map(_DATA.fullmatch, columns[at]))) * 10 >= len(columns[at]) * 9 for at in of_data
    )


# Keys.


def key_candidates(job: TableDiffJob) -> list[str]:
    """Names of candidate key columns, in the order of A's header; none for typed sources and streams."""
    try:
        heads = first_rows(job.a, job.b, job.options, _HINT_ROWS, typed=False)
    except (InputError, StorageError):
        return []  # a hint is not worth an error
    cells = ((name, [head.get(name, [""]) for head in heads]) for name in (heads[0] if heads else ()))
    return [name for name, sides in cells if all(all(side) and len(set(side)) == len(side) for side in sides)]


def first_rows(
    a: TableInput, b: TableInput, options: TableOptions, rows: int, *, typed: bool = True
) -> list[dict[str, list[str]]]:
    """The cells of the first rows of both sides; nothing where a side is typed and that is not `typed`."""
    if is_stream(a) or is_stream(b):
        raise InputError("a stream can be read once, and its rows are needed later", code="input_read_twice")
    with Workspace() as workspace:
        sides = dict(zip("AB", named_sides(a, b, options, workspace), strict=True))
        if not typed and any(source.typed for source in sides.values()):
            return []
        return [source.sample(side, rows) for side, source in sides.items()]


def _columns_of(a: TableInput, b: TableInput, given: Mapping[str, Any], *, keyed: bool) -> dict[str, Any]:
    """How two headers that differ are compared; the columns that identify rows on both sides, where no key is given."""
    options = check_options(**given)
    try:
        size = sum(input_size(one) or _TRIED_BYTES for one in (a, b))  # what is not known may be large
        most = _TRIED_BYTES if size <= _TRIED_BYTES else _KEY_ROWS  # a row has a byte at least
        heads = first_rows(a, b, options, most)
    except DriftlineError as error:
        if not error.context.get("places"):
            return {}  # reading reports it
        return {"inside": error.places[0], **_columns_of(a, b, {**given, "inside": error.places[0]}, keyed=keyed)}
    old_names = {new: old for old, new in options.rename}
    heads[1] = {old_names.get(name, name): cells for name, cells in heads[1].items()}
    is_chosen = not (keyed or given.get("mode") is not None or options.ignore_row_order or options.key_numbers)
    chosen = _key(heads, most, options.duplicates) if is_chosen else {}
    names_a, names_b = ({*head} for head in heads)
    if [*heads[0]] == [*heads[1]] or {"header_mode", "ignore_column_case"} & given.keys():
        return chosen
    if names_a == names_b:
        return {"header_mode": "sorted", **chosen}
    if not (names_a < names_b or names_a > names_b):
        key = chosen.get("key_columns", options.key_columns)
        alike, met = _alike_columns(heads, key) if {*key} <= names_a & names_b else ({}, 0)
        if not names_a & names_b or not met or any(count >= differ for count, differ in alike.values()):
            return chosen  # a column may have got another name
    return {"header_mode": "common", **chosen}


def _key(heads: _Heads, most: int, duplicates: str) -> dict[str, Any]:
    """The columns that identify rows on both sides; else those that nearly do, and the rows of one key are matched."""
    common = [name for name in heads[0] if name in heads[1]]
    common.sort(key=lambda name: _LIKE_KEYS.fullmatch(name) is None)  # stable: then in the order of the file
    filled = [name for name in common if not any({"", '""', "null"} & {*head[name]} for head in heads)]
    nearly: tuple[float, tuple[str, ...]] = (0.0, ())
    for size in (1, 2, 3):
        for names in combinations(filled[: None if size == 1 else _KEY_COLUMNS], size):
            share = _identified(names, heads, most)
            if share == 1:
                return {"key_columns": list(names)}
            nearly = max(nearly, (round(share, 2), names), key=lambda one: one[0])  # of equals the first one
    if nearly[0] < _NEARLY_UNIQUE:
        return {}
    return {"key_columns": list(nearly[1]), **({"duplicates": "match"} if duplicates == "error" else {})}


def _identified(names: Sequence[str], heads: _Heads, most: int) -> float:
    """The share of rows that columns identify, on the side where it is less; 0 where less than half have a partner."""
    for rows in (_SAMPLE_LINES, None):
        keys = [list(zip(*(head[name][:rows] for name in names), strict=True)) for head in heads]
        distinct = [set(one) for one in keys]
        share = min(len(some) / len(one) if one else 1.0 for some, one in zip(distinct, keys, strict=True))
        if share < _NEARLY_UNIQUE:
            return 0.0
    pairs_half = len(distinct[0] & distinct[1]) * 2 >= min(map(len, distinct))
    return share if pairs_half or any(len(one) >= most for one in keys) else 0.0
