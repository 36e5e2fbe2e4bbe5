"""Three versions of a Parquet or Arrow file made one: values, types and schema of the versions, or a clear refusal."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import driftline as dl
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.errors import DriftlineError
from support.arrow_types import TYPES

SIDES = ("base", "ours", "theirs")


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pq.write_table(table, path, compression="zstd", row_group_size=2)
    elif path.suffix == ".arrows":
        with pa.ipc.new_stream(str(path), table.schema) as out:
            out.write_table(table, max_chunksize=2)
    else:
        with pa.ipc.new_file(str(path), table.schema) as out:
            out.write_table(table, max_chunksize=2)


def read(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.ParquetFile(path).read()
    opener = pa.ipc.open_stream if path.suffix == ".arrows" else pa.ipc.open_file
    with opener(path.read_bytes()) as file:
        return file.read_all()


def versions(folder: Path, suffix: str, *tables: pa.Table) -> list[Path]:
    paths = [folder / f"{side}{suffix}" for side in SIDES]
    for table, path in zip(tables, paths, strict=True):
        write(table, path)
    return paths


def table(rows: list[tuple], v: pa.DataType, w: pa.DataType = pa.int8(), **more: pa.Array) -> pa.Table:  # noqa: B008
    ids, vs, ws = zip(*rows, strict=True) if rows else ((), (), ())
    columns = {"id": pa.array(ids, pa.int16()), "v": pa.array(vs, v), "w": pa.array(ws, w)}
    return pa.table({**columns, **more})


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".arrows"])
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_type_keeps_schema_and_values(kind: pa.DataType, suffix: str, tmp_path: Path) -> None:
    one, two, three, four = TYPES[kind]
    base = table([(1, one, 0), (2, two, 0), (3, three, 0), (4, four, 0)], kind)
    ours = table([(3, three, 1), (1, two, 0), (2, two, 0), (4, four, 0), (7, four, 7)], kind)
    theirs = table([(1, one, 5), (3, one, 0), (4, four, 0), (9, three, 9), (8, two, 8)], kind)
    wanted = table([(3, one, 1), (1, two, 5), (4, four, 0), (7, four, 7), (9, three, 9), (8, two, 8)], kind)
    try:
        paths = versions(tmp_path, suffix, base, ours, theirs)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        pytest.skip("the format does not have this type")
    stored, out = read(paths[1]), tmp_path / f"out{suffix}"
    assert dl.merge(*paths, out, key="id").conflicts == []
    merged = read(out)
    assert merged.schema.equals(stored.schema, check_metadata=True)
    assert merged.to_pylist() == wanted.cast(stored.schema).to_pylist()
    if suffix == ".parquet":
        about = pq.ParquetFile(out).metadata
        assert (about.row_group(0).column(0).compression, about.row_group(0).num_rows) == ("ZSTD", 2)


# A plain model: rows of Python values, merged one by one.

Table = dict[int, dict[str, Any]]
NOTHING = object()
cells = st.fixed_dictionaries(
    {}, optional={"v": st.sampled_from([None, 1.5, float("inf"), -2.0]), "w": st.sampled_from([None, "", "x", "é"])}
)
rows_of = st.dictionaries(st.integers(1, 6), cells, max_size=6)
columns_of = st.sampled_from([("v", "w"), ("w", "v"), ("v",), ("w", "n", "v"), ("v", "m")])
KINDS = {"v": pa.float64(), "w": pa.string(), "n": pa.int32(), "m": pa.date32()}


def model(base: Table, ours: Table, theirs: Table) -> tuple[Table, set]:
    """The merged rows, where OURS decides conflicts, and the keys in conflict."""
    merged: Table = {}
    conflicts = set()
    for key in {**ours, **theirs, **base}:
        before, mine, other = (side.get(key) for side in (base, ours, theirs))
        if mine is None or other is None:
            kept = other if mine is None else mine
            if before is None and kept is not None:
                merged[key] = kept
            elif kept is not None and any(cell != before.get(name) for name, cell in kept.items()):
                conflicts.add(key)
                merged.update({} if mine is None else {key: mine})
            continue
        if before is None:
            if any(mine[name] != other[name] for name in mine if name in other):
                conflicts.add(key)
            merged[key] = {**other, **mine}
            continue
        merged[key] = row = {}
        for name in {**mine, **other, **before}:
            was, own, new = (side.get(name, NOTHING) for side in (before, mine, other))
            if was == new:
                chosen = own
            elif was == own or own == new:
                chosen = new
            else:
                conflicts.add(key)
                chosen = own
            if chosen is not NOTHING:
                row[name] = chosen
    return merged, conflicts


def made(rows: Table, columns: tuple[str, ...]) -> tuple[pa.Table, Table]:
    plain = {key: {name: row.get(name) for name in columns} for key, row in rows.items()}
    arrays = {name: pa.array([row[name] for row in plain.values()], KINDS[name]) for name in columns}
    return pa.table({"id": pa.array(list(plain), pa.int64()), **arrays}), plain


@settings(max_examples=150, deadline=None)
@given(
    rows=st.tuples(rows_of, rows_of, rows_of),
    columns=st.tuples(columns_of, columns_of, columns_of),
    suffix=st.sampled_from([".parquet", ".arrow"]),
)
def test_random_versions_merge_as_the_model_says(rows: tuple, columns: tuple, suffix: str) -> None:
    tables, plain = zip(*map(made, rows, columns), strict=True)
    wanted, conflicts = model(*plain)
    with tempfile.TemporaryDirectory() as name:
        paths = versions(Path(name), suffix, *tables)
        before, out = paths[1].read_bytes(), Path(name) / f"ours.merged{suffix}"
        result = dl.merge(*paths, paths[1], key="id", conflicts="markers")
        assert {one["key"]["id"] for one in result.conflicts} == conflicts
        if conflicts:
            assert paths[1].read_bytes() == before
            lines = Path(f"{paths[1]}.conflicts.jsonl").read_text().splitlines()
            assert list(map(json.loads, lines)) == result.conflicts
        merged = read(out if conflicts else paths[1])
        assert out.exists() == bool(conflicts)
    names = merged.column_names[1:]
    found = {row.pop("id"): row for row in merged.to_pylist()}
    assert found == {key: {name: row.get(name) for name in names} for key, row in wanted.items()}
    assert list(found) == [key for key in {**plain[1], **plain[2]} if key in wanted]
    assert all(merged.schema.field(name).type == KINDS[name] for name in names)
    removed = {name for name in columns[0] if name not in columns[1] or name not in columns[2]}
    assert {*columns[1], *columns[2]} - removed <= {*names}


def test_types_that_differ_are_refused(tmp_path: Path) -> None:
    kinds = pa.int8(), pa.int8(), pa.float64()
    paths = versions(tmp_path, ".parquet", *(table([(1, 1, 0)], kind) for kind in kinds))
    before = paths[1].read_bytes()
    with pytest.raises(DriftlineError) as raised:
        dl.merge(*paths, paths[1], key="id")
    words = 'column "v" is int8 in one version and double in another: cast it to the same type in all versions'
    assert (raised.value.code, raised.value.message, paths[1].read_bytes()) == ("type_mismatch", words, before)


def test_what_a_schema_does_not_hold_is_refused(tmp_path: Path) -> None:
    small = pa.dictionary(pa.int8(), pa.string())
    base, theirs = (table([(at, f"{letter}{at}", 0) for at in range(100)], small) for letter in "bt")
    twice = pa.table([[1], [2], [3]], names=["id", "v", "v"])
    for tables, code in (((base, base, theirs), "type_mismatch"), ((twice,) * 3, "duplicate_column_name")):
        paths = versions(tmp_path, ".arrow", *tables)
        with pytest.raises(DriftlineError) as raised:
            dl.merge(*paths, tmp_path / "out.arrow", key="id")
        assert raised.value.code == code
    assert len(list(tmp_path.iterdir())) == len(SIDES)


def test_frames_of_pandas_keep_their_index_and_categories(tmp_path: Path) -> None:
    def frame(names: list[str], keys: list[str]) -> pd.DataFrame:
        return pd.DataFrame({"n": pd.Categorical(names, ["b", "a", *sorted({*names} - {"a", "b"})])}, pd.Index(keys))

    for side, one in zip(SIDES, (frame(["a", "b"], ["x", "y"]), frame(["a", "c"], ["x", "y"]),
                                 frame(["b", "b", "d"], ["x", "y", "z"])), strict=True):  # fmt: skip
        one.rename_axis("k").to_parquet(tmp_path / f"{side}.parquet")
    paths = [tmp_path / f"{side}.parquet" for side in SIDES]
    dl.merge(*paths, paths[1], key="k")
    merged = pd.read_parquet(paths[1])
    assert merged["n"].astype(str).to_dict() == {"x": "b", "y": "c", "z": "d"}
    assert (merged["n"].dtype.name, merged.index.name) == ("category", "k")


def test_entries_of_the_schema_are_of_the_version_whose_columns_are_merged(tmp_path: Path) -> None:
    one = table([(1, "a", 0)], pa.string())
    base, ours, theirs = (one.replace_schema_metadata({"about": text}) for text in "bot")
    wide = theirs.append_column("n", [[1]])
    other = ours.append_column("m", [[1]])
    for tables, about in (
        ((base, ours, theirs), b"o"),
        ((base, base, theirs), b"t"),
        ((base, ours, base), b"o"),
        ((base, ours, wide), b"t"),
        ((base, other, wide), None),
    ):
        paths = versions(tmp_path, ".arrow", *tables)
        dl.merge(*paths, tmp_path / "out.arrow", key="id")
        assert (read(tmp_path / "out.arrow").schema.metadata or {}).get(b"about") == about


def test_times_as_spark_writes_them_stay_so(tmp_path: Path) -> None:
    for side, day in zip(SIDES, (1, 2, 1), strict=True):
        one = pa.table({"id": [1], "t": pa.array([day], pa.timestamp("ns"))})
        pq.write_table(one, tmp_path / f"{side}.parquet", use_deprecated_int96_timestamps=True)
    paths = [tmp_path / f"{side}.parquet" for side in SIDES]
    dl.merge(*paths, tmp_path / "out.parquet", key="id")
    assert pq.ParquetFile(tmp_path / "out.parquet").schema.column(1).physical_type == "INT96"


def test_files_of_polars_and_feather(tmp_path: Path) -> None:
    frames = [pl.DataFrame({"id": [1, 2], "v": texts}) for texts in (["a", "b"], ["a", "B"], ["A", "b"])]
    for side, frame in zip(SIDES, frames, strict=True):
        frame.write_ipc(tmp_path / f"{side}.arrow")
        pyarrow.feather.write_feather(frame.to_arrow(), tmp_path / f"{side}.feather")
    for suffix in ("arrow", "feather"):
        paths = [tmp_path / f"{side}.{suffix}" for side in SIDES]
        dl.merge(*paths, paths[1], key="id")
        assert pl.read_ipc(paths[1]).to_dict(as_series=False) == {"id": [1, 2], "v": ["A", "B"]}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, ours, theirs = (table([(1, text, 0), (2, "b", number)], pa.string())
                          for text, number in (("a", 0), ("o", 0), ("t", 5)))  # fmt: skip
    paths = versions(tmp_path, ".parquet", base, ours, theirs)
    before = paths[1].read_bytes()
    command = ["merge", *map(str, paths), "--key", "id", "-o", str(paths[1])]
    listed = '{"type":"conflict","key":{"id":1},"column":"v","base":"a","ours":"o","theirs":"t"}\n'
    for options, files in (([], 3), (["--conflicts", "markers"], 5)):
        assert run(driftline, [*command, *options]) == 1
        assert capsys.readouterr().out == listed
        assert (paths[1].read_bytes(), len(list(tmp_path.iterdir()))) == (before, files)
    assert (tmp_path / "ours.parquet.conflicts.jsonl").read_text() == listed
    assert read(tmp_path / "ours.merged.parquet").to_pylist()[0]["v"] == "o"
    assert run(driftline, [*command, "--prefer", "theirs"]) == 0
    assert read(paths[1]).to_pylist() == read(paths[2]).to_pylist()


def test_what_cannot_be_merged_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = table([(1, "a", 0)], pa.string())
    write(one, tmp_path / "t.parquet")
    (tmp_path / "t.jsonl").write_text('{"id": 1}\n')
    pyarrow.orc.write_table(one, tmp_path / "t.orc")
    one.to_pandas().to_excel(tmp_path / "t.xlsx")
    for names, words in {
        ("t.orc",) * 3: "t.orc is orc: only CSV, JSON Lines, Parquet and Arrow files can be merged; export its tables",
        ("t.xlsx",) * 3: "t.xlsx is workbook: only CSV, JSON Lines, Parquet and Arrow files can be merged",
        ("t.jsonl", "t.parquet", "t.parquet"): "OURS and BASE are of different formats",
    }.items():
        files = [str(tmp_path / name) for name in names]
        assert run(driftline, ["merge", *files, "--key", "id", "-o", str(tmp_path / "out")]) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("seed", range(5))
def test_a_merge_is_the_same_in_every_format(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    sides = []
    for _ in SIDES:
        keys = random.sample(range(40), 25)
        sides.append([(key, random.choice("abc"), random.choice([0, 1])) for key in keys])
    found = []
    for suffix in (".parquet", ".arrow", ".jsonl"):
        paths = [tmp_path / f"{side}{suffix}" for side in SIDES]
        for path, rows in zip(paths, sides, strict=True):
            one = table(rows, pa.string())
            if suffix == ".jsonl":
                path.write_text("".join(json.dumps(row) + "\n" for row in one.to_pylist()))
            else:
                write(one, path)
        out = tmp_path / f"out{suffix}"
        conflicts = dl.merge(*paths, out, key="id", prefer="theirs").conflicts
        rows = list(map(json.loads, out.read_text().splitlines())) if suffix == ".jsonl" else read(out).to_pylist()
        found.append((conflicts, rows))
    assert found[0] == found[1] == found[2]
    assert found[0][0]
