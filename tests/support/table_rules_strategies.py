"""Rules and tables drawn at random."""

from __future__ import annotations

from hypothesis import strategies as st

from driftline.tables._rules import KINDS, STEPS

TEXTS = ["", "a", "A", " a ", "a  b", "a\u00a0b", "é", "e\u0301", "NULL", "n/a", "ß", "SS", "x\x00", "x", "\x1fa"]
NUMBERS = [
    "1",
    "1.0",
    "+1e0",
    "01",
    "1.01",
    "-0",
    "0",
    ".5",
    "5.",
    "1e400",
    "2e400",
    "1e9999999999",
    "NaN",
    "1_0",
    "-2",
    "10",
]
TIMES = [
    "2024-05-01", "2024-05-01T00:00", "2024-05-01 00:00:00.5", "2024-05-01T02:00+02", "2024-05-01T00:00Z",
    "2024-02-30", "2024-05-01T24:00", "2024-05-02", "0001-01-01T00:00+23:59", "1.5.24", "01.05.2024", "yes", "T", "0",
]  # fmt: skip
CELLS = [*TEXTS, *NUMBERS, *TIMES]
NAMES = ["id", "v", "w", "x_at", "c2"]
TYPES = [*KINDS, "date:%d.%m.%Y", "datetime:%d.%m.%y"]
DATES = ["date", "date:%d.%m.%Y", "date:%m.%d.%Y", "date:%d.%m.%y"]
LIMITS = ["0", "0.01", "1%", "0.5,10%", "1e3", "1s", "1.5h", "1d"]

cell = st.sampled_from(CELLS)
pattern = st.sampled_from([*NAMES, "*", "?", "*_at", "nope"])

SOME_STEPS = st.lists(st.sampled_from(list(STEPS)), min_size=1)
LIMITS_OF_COUNTS = st.lists(
    st.sampled_from(["changed > 50%", "different >= 1", "removed < 34%"]), min_size=1, max_size=2
)


def some(value: st.SearchStrategy, *, often: int = 3) -> st.SearchStrategy:
    return st.integers(0, often).flatmap(lambda roll: value if roll == 0 else st.none())


@st.composite
def options(draw: st.DrawFn, names: list[str]) -> dict:
    keyed = draw(st.booleans())
    keys = draw(st.permutations(names))[: draw(st.integers(1, 2))] if keyed else None
    others = [name for name in names if name not in (keys or [])]
    other = st.sampled_from([*others, "*"]) if draw(st.integers(0, 9)) else pattern
    chosen = {
        "key": keys,
        "header_mode": draw(st.sampled_from(["strict", "sorted", "common"])),
        "emit_unchanged": draw(st.booleans()) or None,
        "ignore_row_order": draw(some(st.just(True))) if not keyed else None,
        "normalize": draw(some(st.dictionaries(other, SOME_STEPS, max_size=2))),
        "null": draw(some(st.lists(st.sampled_from(["", "NULL", "n/a", " A"]), min_size=1, max_size=2, unique=True))),
        "types": draw(some(st.dictionaries(other, st.sampled_from(TYPES), max_size=3), often=1)),
        "types_a": draw(some(st.dictionaries(other, st.sampled_from(DATES), max_size=2))),
        "types_b": draw(some(st.dictionaries(other, st.sampled_from(DATES), max_size=2))),
        "tolerance": draw(some(st.dictionaries(other, st.sampled_from(LIMITS), max_size=2), often=1)),
        "ignore": draw(some(st.lists(other, min_size=1, max_size=2, unique=True))),
        "only": draw(some(st.lists(other, min_size=1, max_size=2, unique=True))),
        "ragged": draw(some(st.sampled_from(["pad", "skip"]))),
        "skip_blank_lines": draw(some(st.just(True))),
        "no_header": draw(some(st.just(True), often=7)),
        "no_header_a": draw(some(st.booleans(), often=11)),
        "no_header_b": draw(some(st.booleans(), often=11)),
        "ignore_column_case": draw(some(st.just(True))),
        "duplicate_columns": draw(some(st.just("rename"))),
        "duplicates": draw(st.sampled_from([None, "first", "last", "match", "match"])) if keyed else None,
        "empty_key": draw(st.sampled_from([None, "allow", "allow"])) if keyed else None,
        "column_stats": draw(some(st.just(True))),
        "fail_if": draw(some(LIMITS_OF_COUNTS)),
        "encoding_a": draw(some(st.sampled_from(["utf-16", "utf-8-sig", "cp1252"]), often=5)),
        "delimiter": draw(some(st.just("auto"))),
        "rename": draw(some(st.just({"v": "vv"}))) if "v" in names or not draw(st.integers(0, 9)) else None,
    }  # fmt: skip
    return {name: value for name, value in chosen.items() if value is not None}


@st.composite
def cases(draw: st.DrawFn) -> tuple[bytes, bytes, dict]:
    names = draw(st.permutations(NAMES))[: draw(st.integers(1, 4))]
    rules = draw(options(names))
    few = st.sampled_from(draw(st.lists(cell, min_size=2, max_size=5)))
    row = st.tuples(*(few for _ in names))
    rows_a = draw(st.lists(row, max_size=8))
    rows_b = [new for old in rows_a for new in draw(st.sampled_from([[old], [old], []]) | row.map(lambda one: [one]))]
    rows_b = draw(st.permutations([*rows_b, *draw(st.lists(row, max_size=2))]))
    strict = rules["header_mode"] == "strict" and draw(st.integers(0, 9))
    order = list(range(len(names))) if strict else draw(st.permutations(range(len(names))))
    head_b = ["vv" if "rename" in rules and name == "v" else name for name in names]
    if "ignore_column_case" in rules:
        head_b = [name.upper() if draw(st.booleans()) else name for name in head_b]
    table_b = [[one[at] for at in order] for one in [head_b, *rows_b]]
    if rules["header_mode"] == "common" and draw(st.booleans()):
        table_b = [[*one, "new" if at == 0 else "z"] for at, one in enumerate(table_b)]
    delimiter = draw(st.sampled_from(",;\t|")) if rules.get("delimiter") == "auto" else ","
    a = _csv([names, *rows_a], delimiter, rules.get("encoding_a", "utf-8"), rules, draw)
    return a, _csv(table_b, delimiter, "utf-8", rules, draw), rules


def _csv(rows: list, delimiter: str, encoding: str, rules: dict, draw: st.DrawFn) -> bytes:
    rows = [list(row) for row in rows]
    odd = [[""], ["x"], [*rows[0], "", ""], [*rows[0], "z"]] if "ragged" in rules else [[""]]
    takes_odd = "ragged" in rules or "skip_blank_lines" in rules
    for _ in range(draw(st.sampled_from([0, 1, 2] if takes_odd else [0] * 15 + [1]))):
        rows.insert(draw(st.integers(0, len(rows))), draw(st.sampled_from(odd)))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text = "".join(delimiter.join(map(_quoted, row)) + end for row in rows)
    return (draw(st.sampled_from(["", "\ufeff"])) + text).encode(encoding, "replace")


def _quoted(text: str) -> str:
    return f'"{text}"' if any(c in ",;\t|\r\n" for c in text) else text
