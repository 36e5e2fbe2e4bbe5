"""A pipeline whose snapshots, outputs, state, lock and lake lie in an object store (storage, pipeline §6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from driftline.core import _locks as leases
from driftline.core._files import open_to_read
from driftline.core._objects import ObjectPath
from driftline.core._parts import read_pieces
from driftline.errors import LockedError, PipelineError
from driftline.pipeline import load
from driftline.pipeline._run.records import RecordStore
from support.shop import DAYS, change_snapshot, make_shop, results, run

pytestmark = pytest.mark.histories

pytest.importorskip("obstore", reason="needs obstore, the extra cloud")

TEXT = """\
[pipeline]
name = "shop"
state = "{root}/state"

[lake]
path = "{root}/lake"

[tables.customers]
snapshots = "{root}/data/customers-{{date}}.csv"
key = ["id"]
columns = {{ price = "number" }}
events = "{root}/out/customers-{{to}}.jsonl"
deltas = true
compact = true
changeset = "{root}/out/{{table}}-{{to}}.changeset"

[[tables.customers.state]]
path = "{root}/out/customers-now.csv"
format = "csv"

[[tables.customers.state]]
path = "{root}/out/customers-now.db"
format = "sqlite"

[tables.orders]
snapshots = "{root}/data/orders-{{date}}.csv"
key = "id"
events = "{root}/out/orders-{{to}}/"
deltas = true

[payloads.api]
pairs = "{root}/data/pairs.jsonl"
schema = "{root}/data/schema.yaml"
report = "{root}/out/api"

[metrics]
json = "{root}/out/metrics.json"
"""


def shop(directory: Path, client: Any, prefix: str) -> tuple[Path, Path]:
    """The same pipeline twice: on the disk, and in the store."""
    make_shop(directory, rows=60)
    (directory / "data/pairs.jsonl").write_text('{"id": "1", "old": {"a": 1}, "new": {"a": 2}}\n' * 5)
    (directory / "data/schema.yaml").write_text("type: object\nproperties:\n  a: {type: integer}\n")
    upload(directory, client, prefix)
    local, stored = directory / "local.toml", directory / "stored.toml"
    local.write_text(TEXT.format(root="."))
    stored.write_text(TEXT.format(root=f"s3://data/{prefix}"))
    return local, stored


def upload(directory: Path, client: Any, prefix: str) -> None:
    for path in (directory / "data").iterdir():
        client.put_object(Bucket="data", Key=f"{prefix}/data/{path.name}", Body=path.read_bytes())


def outputs(place: Path | ObjectPath) -> dict[str, bytes]:
    """The content of every output by its name; a folder of parts is one."""
    files = place.below() if isinstance(place, ObjectPath) else [path for path in place.rglob("*") if path.is_file()]
    found = {}
    for file in files:
        name = str(file).removeprefix(str(place))
        if "/orders-" in name:
            found[name.rpartition("/")[0]] = b"".join(read_pieces(file.parent))
        elif "metrics" not in name and not name.endswith((".parquet", ".html")):
            with open_to_read(file) as stream:
                found[name] = stream.read()
    return found


def test_everything_in_a_store_is_as_on_a_disk(s3: tuple[Any, dict[str, str]], tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="needs deltalake, the extra lake")
    client, _ = s3
    local, stored = shop(tmp_path, client, "whole")
    root = ObjectPath("s3://data/whole")
    assert run(local, engine="local").exit_code == 0
    first = run(stored, engine="local")
    assert first.exit_code == 0, [stage.problem for stage in first.stages if stage.problem]
    expected = outputs(tmp_path / "out")
    assert len(expected) > 8
    assert outputs(root / "out") == expected
    assert not [file for file in root.below() if "/." in file.url and "/out/" in file.url], "nothing is left over"
    assert not (tmp_path / "s3:").exists()

    again = run(stored, engine="local")
    assert set(results(again).values()) == {"kept"}
    assert [record["result"] for _, record in RecordStore(root / "state").runs() if record] == ["done", "done"]

    change_snapshot(tmp_path / f"data/orders-{DAYS[2]}.csv", lambda rows: rows.pop("7", None))
    upload(tmp_path, client, "whole")
    (root / f"out/customers-{DAYS[1]}.jsonl").write_bytes(b"somebody else's\n")
    assert run(local, engine="local").exit_code == 0
    changed = results(run(stored, engine="local"))
    assert changed[f"orders/{DAYS[2]}/diff"] == "done"
    assert changed[f"orders/{DAYS[1]}/diff"] == "kept"
    assert changed[f"customers/{DAYS[1]}/diff"] == "done", "an output that was replaced is made again"
    assert outputs(root / "out") == outputs(tmp_path / "out")


def test_one_run_at_a_time_and_none_without_its_lease(
    s3: tuple[Any, dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, stored = shop(tmp_path, s3[0], "lease")
    place = ObjectPath("s3://data/lease/state/lock")
    with leases.lease(place, scope="shop"), pytest.raises(LockedError, match="pipeline shop is already running"):
        run(stored, engine="local")
    taken = []

    def lose(self: leases.Lease) -> None:
        taken.append(self)
        raise LockedError("the lease was lost", code="lease_lost")

    monkeypatch.setattr(leases.Lease, "check", lose)
    with pytest.raises(LockedError, match="lost"):
        run(stored, engine="local")
    assert taken
    assert not ObjectPath("s3://data/lease/state/stages").below()
    assert not ObjectPath("s3://data/lease/out").below(), "what was not committed is gone"


def test_an_output_that_is_declared_elsewhere_is_written_there(tmp_path: Path) -> None:
    file = make_shop(tmp_path, rows=20)
    assert run(file, engine="local").exit_code == 0
    before = (tmp_path / f"out/orders-{DAYS[1]}.jsonl").read_bytes()
    file.write_text(file.read_text().replace("out/orders-{to}.jsonl", "out/orders-{to}/"))
    again = results(run(file, engine="local"))
    assert again[f"orders/{DAYS[1]}/diff"] == "done"
    assert again[f"customers/{DAYS[1]}/diff"] == "kept"
    assert b"".join(read_pieces(tmp_path / f"out/orders-{DAYS[1]}")) == before


def test_what_cannot_lie_in_a_store_is_refused(tmp_path: Path) -> None:
    index = '[pipeline]\nname = "x"\n[indexes.a]\ncache_root = "s3://b/c"\nfrom = "1"\nto = "2"\nregistry = true\n'
    table = '[pipeline]\nname = "x"\n[tables.t]\nkey = "id"\nbefore = "a.csv"\nafter = "b.csv"\n'
    for text, words in {
        index: "unsupported_address",
        table + 'events = "hdfs://name/e.jsonl"\n': "unsupported_address",
        table + 'events = "out/"\nevents_format = "csv"\n': "folder of ordered parts holds jsonl",
    }.items():
        (tmp_path / "x.toml").write_text(text)
        with pytest.raises(PipelineError) as caught:
            load(tmp_path / "x.toml")
        assert words in f"{caught.value.code} {caught.value.message}"
