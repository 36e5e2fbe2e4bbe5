"""Damaged files are named and nothing is lost; horizons, vacuum and merged files change no state."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from driftline.errors import DriftlineError, LakeError
from driftline.lake import (
    Lake,
    compact,
    flush,
    flush_envelopes,
    merge_small_files,
    register,
    replay,
    set_horizon,
    vacuum,
    verify,
)
from driftline.lake._read.state import all_deltas, state_rows
from driftline.lake._store.envelopes import parse_envelope, read_envelope
from driftline.lake._store.tables import load
from support.lake_damage import DAMAGES, delta_files, forge
from support.lakes import SCHEMA, delta, load_lake

BATCHES = [
    [delta("INSERT", "r1", 10, title="a"), delta("INSERT", "r2", 11, title="b")],
    [delta("DELETE", "r1", 20), delta("UPDATE", "r2", 12, done=True)],
    [delta("INSERT", "r3", 30, title="c"), delta("UPDATE", "r1", 15, title="late")],
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_delta_file_is_named(tmp_path: Path, damage: object) -> None:
    lake = load_lake(tmp_path, BATCHES[:1], {0})
    before = dict(state_rows(lake, "todos"))
    flush(lake, "todos", BATCHES[1], gateway_id="gw", sequence=2)
    known = set(delta_files(lake))
    version = load(lake, "todos", "base").version()
    victim = next(path for path in known if path.name.startswith("12-20"))
    whole = victim.read_bytes()
    damage(victim)  # type: ignore[operator]
    with pytest.raises(LakeError, match=victim.name):
        compact(lake, "todos")
    assert load(lake, "todos", "base").version() == version
    assert dict(state_rows(lake, "todos", as_of=11)) == before
    victim.write_bytes(whole)
    compact(lake, "todos")
    assert verify(lake, "todos", oracle=True).is_proved


def test_a_delta_id_that_does_not_match_is_found(tmp_path: Path) -> None:
    lake = load_lake(tmp_path, BATCHES, {2})
    assert verify(lake, "todos").is_proved
    victim = next(path for path in delta_files(lake) if path.name.startswith("10-11"))
    forge(victim)
    with pytest.raises(LakeError, match=victim.name) as caught:
        verify(lake, "todos")
    assert caught.value.code == "bad_delta_id"


def test_verify_lists_rows_that_differ(tmp_path: Path) -> None:
    lake = load_lake(tmp_path, BATCHES, {2})
    victim = next(Path(lake.root, "tables/todos/base").glob("*.parquet"))
    forge(victim)
    proof = verify(lake, "todos")
    assert not proof.is_proved
    assert proof.differing_rows == ("r2", "r3")
    assert proof.hash_of_base != proof.hash_of_replay


def test_a_flush_refuses_a_forged_id(tmp_path: Path) -> None:
    import msgspec

    lake = load_lake(tmp_path, [])
    forged = msgspec.structs.replace(delta("INSERT", "r", 1, title="x"), delta_id="0" * 64)
    with pytest.raises(DriftlineError, match="does not match"):
        flush(lake, "todos", [forged], gateway_id="gw", sequence=1)
    assert delta_files(lake) == []


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"{", "not JSON"),
        (b"[]", "not an envelope"),
        (json.dumps({"version": 2, "deltas": []}).encode(), "version 2"),
        (json.dumps({"version": 1, "deltas": [{"op": "INSERT"}]}).encode(), "delta 0"),
    ],
)
def test_bad_envelopes_are_named(content: bytes, word: str) -> None:
    with pytest.raises(LakeError, match=word) as caught:
        parse_envelope(content, "x/y.json")
    assert "x/y.json" in caught.value.message


def test_an_envelope_counts_its_deltas_and_bytes(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    result = flush(lake, "todos", BATCHES[0], gateway_id="gw", sequence=5)
    path = tmp_path / "tables/todos/envelopes" / result.files[0]
    assert path.parts[-2] == "gw"
    assert path.name.startswith("10-11-")
    content = json.loads(path.read_bytes())
    text = json.dumps(content["deltas"], ensure_ascii=False, separators=(",", ":"))
    assert content["byteSize"] == len(text.encode())
    assert content["hlcRange"] == {"min": "10", "max": "11"}
    assert content["deltaCount"] == 2
    assert read_envelope(lake, "todos", result.files[0]).deltas == tuple(BATCHES[0])
    assert flush(lake, "todos", BATCHES[0], gateway_id="gw", sequence=5).was_done_before
    register(lake, SCHEMA)
    flush_envelopes(lake, "todos")
    assert vacuum(lake, "todos", hours=0) == [f"tables/todos/envelopes/{result.files[0]}"]
    assert len(list(all_deltas(lake, "todos"))) == 2


def test_merged_files_say_the_same(tmp_path: Path) -> None:
    chance = random.Random(5)
    batches = [[delta("UPDATE", f"r{chance.randrange(5)}", n, title=str(n))] for n in range(12)]
    lake = load_lake(tmp_path, batches, {3, 11})
    before = {moment: dict(state_rows(lake, "todos", as_of=moment)) for moment in range(-1, 13)}
    assert merge_small_files(lake, "todos", min_files=2) == 12
    assert len(load(lake, "todos", "deltas").files()) == 1
    assert {moment: dict(state_rows(lake, "todos", as_of=moment)) for moment in range(-1, 13)} == before
    assert not compact(lake, "todos").is_new
    flush(lake, "todos", [delta("DELETE", "r1", 50)], gateway_id="gw", sequence=13)
    assert compact(lake, "todos").deltas_folded == 1
    assert verify(lake, "todos", oracle=True).is_proved


def test_a_horizon_keeps_the_state_and_refuses_older_deltas(tmp_path: Path) -> None:
    lake = load_lake(tmp_path, BATCHES, {1})
    expected = dict(state_rows(lake, "todos"))
    past = {moment: dict(state_rows(lake, "todos", as_of=moment)) for moment in (19, 20, 25)}
    assert set_horizon(lake, "todos", 20) == 1
    assert set_horizon(lake, "todos", 20) == 0
    assert dict(state_rows(lake, "todos")) == expected
    assert verify(lake, "todos").is_proved
    for moment, rows in past.items():
        assert dict(state_rows(lake, "todos", as_of=moment)) == rows
    with pytest.raises(LakeError) as caught:
        dict(state_rows(lake, "todos", as_of=18))
    assert caught.value.code == "TOO_OLD"
    with pytest.raises(LakeError) as refused:
        flush(lake, "todos", [delta("UPDATE", "r1", 19, title="undead")], gateway_id="gw", sequence=9)
    assert refused.value.code == "TOO_OLD"
    flush(lake, "todos", [delta("UPDATE", "r1", 40, done=True)], gateway_id="gw", sequence=9)
    compact(lake, "todos")
    assert dict(state_rows(lake, "todos"))["r1"] == {"done": True}
    assert verify(lake, "todos").is_proved
    compact(lake, "todos", full=True)
    assert dict(state_rows(lake, "todos"))["r1"] == {"done": True}
    set_horizon(lake, "todos", 35)
    compact(lake, "todos", full=True)
    assert verify(lake, "todos").is_proved
    with pytest.raises(LakeError, match="cannot move back"):
        set_horizon(lake, "todos", 10)


def test_vacuum_keeps_what_the_snapshot_pins(tmp_path: Path) -> None:
    lake = load_lake(tmp_path, BATCHES, {0, 1, 2})
    orphan = tmp_path / "tables/todos/base/part-left-by-a-kill.parquet"
    orphan.write_bytes(b"x")
    expected = dict(state_rows(lake, "todos"))
    told = vacuum(lake, "todos", hours=0, dry_run=True)
    assert orphan.exists()
    assert "tables/todos/base/part-left-by-a-kill.parquet" in told
    assert vacuum(lake, "todos", hours=0) == told
    assert not orphan.exists()
    assert dict(state_rows(lake, "todos")) == expected
    assert verify(lake, "todos", oracle=True).is_proved
    everything = [each for batch in BATCHES for each in batch]
    # older snapshots are gone: time travel falls back to the deltas
    assert dict(state_rows(lake, "todos", as_of=12)) == replay(everything, as_of=12)
    flush(lake, "todos", [delta("UPDATE", "r1", 21, done=False)], gateway_id="gw", sequence=4)
    compact(lake, "todos")
    assert verify(lake, "todos", oracle=True).is_proved


def test_a_lost_pin_means_a_full_fold(tmp_path: Path) -> None:
    lake = load_lake(tmp_path, BATCHES, {1})
    for path in (tmp_path / "tables/todos/deletes/_delta_log").glob("*.json"):
        path.unlink()
    assert compact(lake, "todos").full
    assert verify(lake, "todos", oracle=True).is_proved
