"""Cache roots with builds in them, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.index_layouts import chunk_row, file_row, write_index


def put(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def small_index(version: str) -> dict[str, Any]:
    """Two files; one of them and its chunk differ between versions."""
    return {
        "code": {
            "file_meta": [file_row(0, "a.js", f"a{version}"), file_row(1, "b.js", "b")],
            "chunk_meta": [
                chunk_row(0, "a.js", "f", 0, chunkId="c1", signature=f"f({version})"),
                chunk_row(1, "b.js", "g", 0, chunkId="c2", signature="g()"),
            ],
            "file_relations": [{"file": "a.js", "relations": {"imports": [f"./dep{version}"]}}],
        }
    }


def make_cache(root: Path, *, layout: str = "json", manifest: Any = "auto") -> Path:
    """A cache root with builds `b1` and `b2`, the latter being the latest."""
    for build in ("b1", "b2"):
        write_index(root / "builds" / build, small_index(build[1]), layout, manifest=manifest)
        put(root / "builds" / build / "build_state.json", {"buildId": build, "configHash": "c"})
    put(root / "builds" / "current.json", {"buildId": "b2"})
    return root


def persisted_bytes(root: Path) -> dict[str, bytes]:
    """Everything below `diffs/` and `locks/`."""
    folders = [root / "diffs", root / "locks"]
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
