from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from driftline import codeindex
from driftline.codeindex._read.resolve import _endpoint, resolve
from driftline.codeindex._storage import CacheRoot
from driftline.core._json import canonical_json, sha1_hex
from driftline.errors import DriftlineError
from support.index_layouts import chunk_row, file_row, write_index


@pytest.mark.parametrize(
    ("text", "kind", "canonical"),
    [
        ("latest", "latest", "latest"),
        ("  LaTest\n", "latest", "latest"),
        ("build:20260124T000000Z_abcdef0_1234abcd", "build", "build:20260124T000000Z_abcdef0_1234abcd"),
        ("BUILD:AbC", "build", "build:AbC"),
        ("build:" + "a" * 200, "build", "build:" + "a" * 200),
        ("snap:snap-20260101-x.y", "snapshot", "snap:snap-20260101-x.y"),
        ("Tag:release/1.0", "tag", "tag:release/1.0"),
        ("tag:" + "a" * 64, "tag", "tag:" + "a" * 64),
        ("path:/x/Y: z", "path", "path:/x/Y: z"),
        ("path: x", "path", "path: x"),
        ("\ufeffpath:a\u2003", "path", "path:a"),
    ],
)
def test_references(text: str, kind: str, canonical: str) -> None:
    ref = codeindex.parse_ref(text)
    assert (ref.kind, ref.canonical) == (kind, canonical)
    assert codeindex.parse_ref(canonical) == ref


@pytest.mark.parametrize(
    "text",
    [
        "", "  ", "latest:", "latest:x", "head", "build", "build:", "build: a", "build:-a", "build:a/b", "build:a\nb",
        "build:" + "a" * 201, "build:é", "snap:", "snap:20260101", "snap:snap-", "snap:Snap-1", "snap:snap-a/b",
        "tag:", "tag:/abs", "tag:-x", "tag:" + "a" * 65, "tag:a b", "path:", "path:   ", "/somewhere/else", ":x",
        "paths:x", None, 5,
    ],
)  # fmt: skip
def test_malformed_references(text: Any) -> None:
    with pytest.raises(DriftlineError) as caught:
        codeindex.parse_ref(text)
    assert caught.value.code == "INVALID_REQUEST"
    assert "/somewhere" not in caught.value.message


FILES, CHUNKS = [file_row(0, "a.js", "h")], [chunk_row(0, "a.js", "f")]
INDEX = {"code": {"file_meta": FILES, "chunk_meta": CHUNKS}}


def put(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    root = tmp_path / "cache"
    for build in ("b1", "b2"):
        write_index(root / "builds" / build, INDEX)
        state = {"buildId": build, "configHash": "c0", "tool": {"version": "1.2"}}
        put(root / "builds" / build / "build_state.json", state)
    put(root / "builds" / "current.json", {"buildId": "b2", "buildRoot": "builds/b2"})
    tags = {"release": ["snap-2", "snap-1"], "odd": ["../../etc"]}
    put(
        root / "snapshots" / "manifest.json", {"snapshots": {"snap-1": {}, "snap-2": {"hasFrozen": True}}, "tags": tags}
    )
    put(root / "snapshots/snap-1/snapshot.json", {"pointer": {"buildRootsByMode": {"code": "builds/b1"}}})
    put(root / "snapshots/snap-2/snapshot.json", {"pointer": {"buildRootsByMode": {"code": "builds/b1"}}})
    write_index(root / "snapshots/snap-2/frozen", INDEX)
    return root


def where(cache: Path, ref: str) -> tuple[str, dict[str, Any]]:
    resolved = resolve(codeindex.parse_ref(ref), CacheRoot(cache), ["code"])
    return resolved.indexes["code"].path.relative_to(cache).as_posix(), resolved.identity


B2 = {"buildIdByMode": {"code": "b2"}, "configHashByMode": {"code": "c0"}, "toolVersionByMode": {"code": "1.2"}}


def test_resolution(cache: Path) -> None:
    assert where(cache, "latest") == ("builds/b2/index-code", {"type": "latest", **B2})
    assert where(cache, "build:b2") == ("builds/b2/index-code", {"type": "build", **B2})
    place, identity = where(cache, "snap:snap-1")
    assert place == "builds/b1/index-code"
    assert identity["snapshotId"] == "snap-1"
    assert identity["buildIdByMode"] == {"code": "b1"}
    frozen = {"type": "tag", "snapshotId": "snap-2", "tag": "release"}
    assert where(cache, "tag:release") == ("snapshots/snap-2/frozen/index-code", frozen)


def test_snapshots_may_be_listed(cache: Path) -> None:
    put(
        cache / "snapshots/manifest.json", {"snapshots": [{"snapshotId": "snap-1"}, {"id": "snap-2", "kind": "frozen"}]}
    )
    assert where(cache, "snap:snap-1")[0] == "builds/b1/index-code"
    assert where(cache, "snap:snap-2")[0] == "snapshots/snap-2/frozen/index-code"
    assert refused(cache, "snap:snap-3") == "NOT_FOUND"


def test_the_identity_of_a_path_is_a_hash(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cache)
    resolved = resolve(codeindex.parse_ref("path:builds/b1/"), None, ["code"])
    digest = hashlib.sha1(os.fsencode(cache / "builds" / "b1")).hexdigest()
    assert resolved.identity == {"type": "path", "pathHash": digest}
    assert _endpoint(resolved)["identityHash"] == sha1_hex(canonical_json(resolved.identity))


@pytest.mark.parametrize("member", ["buildRoots", "buildRootsByMode"])
def test_latest_prefers_the_root_of_its_mode(cache: Path, member: str) -> None:
    put(cache / "builds/current.json", {"buildId": "b2", "buildRoot": "builds/b2", member: {"code": "builds/b1"}})
    assert where(cache, "latest")[0] == "builds/b1/index-code"
    put(cache / "builds/current.json", {"buildId": "b2", member: {"prose": "builds/b1"}})
    assert where(cache, "latest")[0] == "builds/b2/index-code"


def test_a_build_without_state_is_known_by_its_ref(cache: Path) -> None:
    (cache / "builds/b1/build_state.json").unlink()
    assert where(cache, "build:b1")[1] == {"type": "build", "buildIdByMode": {"code": "b1"}}


def refused(cache: Path, ref: str) -> str:
    with pytest.raises(DriftlineError) as caught:
        where(cache, ref)
    assert str(cache.parent) not in caught.value.message
    assert str(cache.parent) not in json.dumps(caught.value.to_dict())
    return str(caught.value.code.wire)


def test_missing_things(cache: Path) -> None:
    assert refused(cache, "build:nope") == "NOT_FOUND"
    assert refused(cache, "snap:snap-9") == "NOT_FOUND"
    assert refused(cache, "tag:nope") == "NOT_FOUND"
    assert refused(cache, "path:nope") == "NOT_FOUND"
    (cache / "snapshots/snap-1/snapshot.json").unlink()
    assert refused(cache, "snap:snap-1") == "NOT_FOUND"
    (cache / "builds/b2/build_state.json").unlink()
    assert refused(cache, "latest") == "NOT_FOUND"
    (cache / "builds/current.json").unlink()
    assert refused(cache, "latest") == "NOT_FOUND"


def test_unreadable_json(cache: Path) -> None:
    put(cache / "snapshots/manifest.json", "{")
    assert refused(cache, "snap:snap-1") == "INVALID_REQUEST"
    put(cache / "builds/b1/build_state.json", "[]")
    assert refused(cache, "build:b1") == "INVALID_REQUEST"
    put(cache / "builds/current.json", "nope")
    assert refused(cache, "latest") == "INVALID_REQUEST"


def test_nothing_leaves_the_cache_root(cache: Path, tmp_path: Path) -> None:
    outside = write_index(tmp_path / "outside", INDEX)
    put(outside / "build_state.json", {"buildId": "x"})
    put(cache / "builds/current.json", {"buildRoot": "../outside"})
    assert refused(cache, "latest") == "INVALID_REQUEST"
    put(cache / "builds/current.json", {"buildRoot": str(outside)})
    assert refused(cache, "latest") == "INVALID_REQUEST"
    put(cache / "builds/current.json", {"buildId": "../../outside"})
    assert refused(cache, "latest") == "INVALID_REQUEST"
    (cache / "builds" / "link").symlink_to(outside)
    assert refused(cache, "build:link") == "INVALID_REQUEST"
    put(cache / "snapshots/snap-1/snapshot.json", {"pointer": {"buildRootsByMode": {"code": "builds/link"}}})
    assert refused(cache, "snap:snap-1") == "INVALID_REQUEST"
    assert refused(cache, "tag:odd") == "INVALID_REQUEST"
    (cache / "builds/half").mkdir()
    (cache / "builds/half/index-code").symlink_to(outside / "index-code")
    assert refused(cache, "build:half") == "INVALID_REQUEST"


def test_an_absolute_root_inside_the_cache_root_is_fine(cache: Path) -> None:
    put(cache / "builds/current.json", {"buildRoot": str(cache / "builds/b1")})
    assert where(cache, "latest")[0] == "builds/b1/index-code"


def test_different_configurations_are_not_compared(cache: Path) -> None:
    put(cache / "builds/b1/build_state.json", {"buildId": "b1", "configHash": "c1"})
    with pytest.raises(DriftlineError, match="allow-mismatch") as caught:
        codeindex.diff("build:b1", "latest", cache)
    assert caught.value.code == "INVALID_REQUEST"
    assert not codeindex.diff("build:b1", "latest", cache, allow_mismatch=True).has_changes


def test_a_cache_root_is_needed() -> None:
    with pytest.raises(DriftlineError) as caught:
        codeindex.diff("build:b1", "latest")
    assert caught.value.code == "INVALID_REQUEST"
