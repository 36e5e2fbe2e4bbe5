"""Numbers around the borders of doubles, int64 and 38 digits: equal in every output, or refused by name."""

from __future__ import annotations

import csv
import json
import tempfile
from decimal import Decimal
from pathlib import Path

import apsw
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import example, given, settings, strategies as st

from driftline.lake import Lake, verify
from driftline.pipeline import load, run_pipeline

REFUSALS = ("inexact_number", "type_changed", "wrong_type", "unsupported_type")
BORDERS = (0, 2**53, 2**60, 2**63, 2**64, 10**16, 10**18, 10**37, 10**38)

INTEGERS = st.builds(
    lambda border, shift, sign: sign * (border + shift),
    st.sampled_from(BORDERS),
    st.integers(-3, 3),
    st.sampled_from((1, -1)),
)
FRACTIONS = st.builds(
    lambda digits, scale, sign: sign * Decimal(digits).scaleb(-scale),
    st.integers(0, 10**18) | st.integers(10**15, 10**18 + 9),
    st.integers(0, 19),
    st.sampled_from((1, -1)),
)
VALUES = st.lists(INTEGERS.map(Decimal), min_size=1, max_size=6, unique=True) | st.lists(
    INTEGERS.map(Decimal) | FRACTIONS, min_size=1, max_size=6, unique=True
)


def write(folder: Path, source: str, values: list[Decimal]) -> str:
    """The snapshot, with the numbers as key and as cell; what is declared about its columns."""
    texts = [format(value, "f") for value in values]
    if source == "parquet":
        whole = all(value == value.to_integral_value() and abs(value) < 2**63 for value in values)
        column = pa.array(map(int, values), pa.int64()) if whole else pa.array(values)
        pq.write_table(pa.table({"id": column, "v": column}), folder / "t-2026-03-01.parquet")
        return ""
    if source == "jsonl":
        (folder / "t-2026-03-01.jsonl").write_text("".join(f'{{"id":{text},"v":{text}}}\n' for text in texts))
        return ""
    (folder / "t-2026-03-01.csv").write_text("id,v\n" + "".join(f"{text},{text}\n" for text in texts))
    return f'columns = {{ id = "string", v = "{source.removeprefix("csv:")}" }}\n'


@settings(max_examples=40, deadline=None)
@given(VALUES, st.sampled_from(["parquet", "jsonl", "csv:integer", "csv:decimal(10)", "csv:number"]))
@example([Decimal(1834567890123456768 + n) for n in range(3)], "parquet")
@example([Decimal(1834567890123456768 + n) for n in range(3)], "jsonl")
def test_numbers_are_equal_everywhere_or_refused_by_name(values: list[Decimal], source: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        declared = write(folder, source, values)
        states = "".join(
            f'[[tables.t.state]]\npath = "t.{form}"\nformat = "{form}"\n' for form in ("csv", "jsonl", "sqlite")
        )
        (folder / "p.toml").write_text(
            '[pipeline]\nname = "p"\n[lake]\npath = "lake"\n[tables.t]\n'
            f'snapshots = "t-{{date}}.{source.partition(":")[0]}"\nkey = "id"\ndeltas = true\ncompact = true\n'
            f"{declared}{states}"
        )
        record = run_pipeline(load(folder / "p.toml"), engine="local")
        problems = [stage.problem for stage in record.stages if stage.result == "failed"]
        if problems:
            assert problems[0] is not None
            assert problems[0].partition(":")[0] in REFUSALS, problems
            return
        with (folder / "t.csv").open(newline="") as rows:
            check([Decimal(row["v"]) for row in csv.DictReader(rows)], values, source)
        lines = map(json.loads, (folder / "t.jsonl").read_text().splitlines())
        check([Decimal(str(line["v"])) for line in lines], values, source)
        found = apsw.Connection(str(folder / "t.sqlite")).execute("SELECT v FROM t")
        check([Decimal(str(value)) for (value,) in found], values, source)
        assert verify(Lake(folder / "lake"), "t", oracle=True).is_proved


def check(held: list[Decimal], values: list[Decimal], source: str) -> None:
    """The same numbers; a text of a double that a column of doubles takes may have had more digits than it needs."""
    assert len(held) == len(values)
    for one, value in zip(sorted(held), sorted(values), strict=True):
        is_double = source in ("jsonl", "csv:number") and one == Decimal(repr(float(value)))
        digits = max(1, len(value.as_tuple().digits))
        assert one == value or (is_double and Decimal(f"{float(value):.{digits - 1}e}") == value)
