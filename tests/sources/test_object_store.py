"""Files in an object store: found, read in pinned ranges, and clear words where something is wrong (sources §4)."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import driftline as dl
from driftline.errors import InputError
from support.engines import LOCAL_ENGINES
from support.processes import run_process

pytest.importorskip("obstore", reason="needs obstore, the extra cloud")

A = "id,v\n" + "".join(f'{n},"row ""{n}"""\n' for n in range(5000))
B = A.replace('4321,"row ""4321"""', "4321,changed")


@pytest.fixture(scope="module")
def store(s3: tuple[Any, dict[str, str]]) -> Any:
    return s3[0]


def put(store: Any, key: str, body: bytes | str) -> str:
    store.put_object(Bucket="data", Key=key, Body=body.encode() if isinstance(body, str) else body)
    return f"s3://data/{key}"


def changed(a: str, b: str, **options: Any) -> list[dict]:
    return [event for event in dl.diff(a, b, key="id", **options) if event["type"] == "changed"]


@pytest.mark.parametrize("engine", LOCAL_ENGINES)
@pytest.mark.parametrize("pack", [str.encode, lambda text: gzip.compress(text.encode())])
def test_csv_keys_are_literal(store: Any, engine: str, pack: Any) -> None:
    a, b = put(store, "in/a %20?.csv", pack(A)), put(store, "in/b #[1].csv", pack(B))
    [event] = changed(a, b, engine=engine)
    assert event["delta"] == {"v": {"from": 'row "4321"', "to": "changed"}}


def test_folders_globs_and_parquet(store: Any) -> None:
    for number in range(3):
        sink = io.BytesIO()
        pq.write_table(pa.table({"id": [number * 2, number * 2 + 1], "v": ["x", f"y{number}"]}), sink)
        put(store, f"parts/part-{number}.parquet", sink.getvalue())
    put(store, "parts/_SUCCESS", b"")
    whole = put(
        store,
        "whole.jsonl",
        "".join(f'{{"id": {n}, "v": "{"x" if n % 2 == 0 else f"y{n // 2}"}"}}\n' for n in range(6)),
    )
    assert not dl.diff("s3://data/parts/", whole, key="id").has_differences
    assert not dl.diff("s3://data/parts/part-?.parquet", whole, key="id").has_differences
    assert len(list(dl.diff("s3://data/parts/part-[01].parquet", whole, key="id"))) == 4


def test_a_delta_table_in_a_store(store: Any) -> None:
    deltalake = pytest.importorskip("deltalake", reason="needs deltalake, the extra lake")
    options = {"AWS_ALLOW_HTTP": "true"}
    for ids in ([1, 2], [3]):
        deltalake.write_deltalake("s3://data/t", pa.table({"id": ids}), mode="append", storage_options=options)
    for given in ("delta:s3://data/t", "s3://data/t/"):
        events = list(dl.diff("delta:s3://data/t@0", given, key="id"))
        assert [event["type"] for event in events] == ["schema", "added", "stats"]


def test_an_object_that_is_replaced_while_it_is_read_is_told(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from driftline.sources._addresses import StoredFile

    a = put(store, "moving.csv", A)
    original = StoredFile.at.__func__

    def at(cls: type, url: str) -> StoredFile:
        found = original(cls, url)
        put(store, "moving.csv", B)
        return found

    monkeypatch.setattr(StoredFile, "at", classmethod(at))
    with pytest.raises(InputError, match="changed while it was being read") as caught:
        list(dl.diff(a, a, key="id"))
    assert caught.value.code == "file_changed"


def test_clear_words_for_what_is_not_there(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("s3://data/nothing.csv", "s3://data/nothing/", "s3://no-such-bucket-here/a.csv"):
        with pytest.raises(InputError) as caught:
            list(dl.diff(url, url))
        assert caught.value.code == "not_found"
        assert url in caught.value.message
        assert "Error" not in caught.value.message


@pytest.mark.parametrize("name", ["a.csv", "a-403.csv", "a-404.csv"])  # numbers of names are no statuses
def test_a_store_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    from driftline.core import _objects as stores

    # With credentials of its own, whichever tests ran before: the store is asked, and nobody for credentials.
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(variable, "none")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(stores, "_RETRIES", 0)
    stores._store.cache_clear()
    with pytest.raises(InputError) as caught:
        list(dl.diff(f"s3://elsewhere/{name}", f"s3://elsewhere/{name}"))
    stores._store.cache_clear()
    assert caught.value.code == "store_unreachable"


@pytest.mark.own_session
def test_both_engines_write_the_same_bytes(store: Any, tmp_path: Path) -> None:
    a, b = put(store, "spark/a.csv", A), put(store, "spark/b.csv", B)
    for engine in ("local", "spark"):
        done = run_process(
            [sys.executable, "-m", "driftline", "diff", a, b, "-k", "id", "--engine", engine, "-o", f"{engine}.jsonl"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1, done.stderr
    assert (tmp_path / "spark.jsonl").read_bytes() == (tmp_path / "local.jsonl").read_bytes()


def test_a_prefix_of_change_events_is_read_once(store: Any, tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="needs deltalake, the extra lake")
    from driftline.pipeline import load, run_pipeline

    def message(number: int) -> str:
        columns = [{"name": "id", "value": number}, {"name": "v", "value": "x"}]
        return json.dumps({"action": "I", "schema": "public", "table": "t", "columns": columns}) + "\n"

    file = tmp_path / "p.toml"
    lines = ('[pipeline]\nname = "p"', '[lake]\npath = "lake"', '[tables.t]\nchanges = "s3://data/cdc"', 'key = "id"')
    file.write_text("\n".join([*lines, 'deltas = true\nwarn_if = ["age >= 0s", "age > 1h"]\n']))
    put(store, "cdc/1.jsonl", message(1))
    put(store, "cdc-of-others/1.jsonl", "no JSON")
    put(store, "cdc/_SUCCESS", "")
    record = run_pipeline(load(file))
    assert record.stages[1].counts == {"deltas": 1}
    assert [words.partition(" (")[0] for words in record.warnings] == ["t/changes/read: age >= 0s"]
    put(store, "cdc/1.jsonl", message(1) + message(2))
    put(store, "cdc/2.jsonl.gz", gzip.compress(message(3).encode()))
    assert run_pipeline(load(file)).stages[1].counts == {"deltas": 2}
    assert {stage.result for stage in run_pipeline(load(file)).stages} == {"kept"}
    put(store, "cdc/1.jsonl", message(9) + message(2))
    assert "changes_replaced: 1.jsonl" in (run_pipeline(load(file)).stages[0].problem or "")
