"""Two builds of a code index of any size: JSONL or zstd shards, a manifest with real checksums, seeded by position."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import xxhash
from backports import zstd

CHUNKS_PER_FILE = 20
SHARDS = 4


def make_pair(folder: Path, files: int, modified: int, *, compressed: bool = False) -> tuple[Path, Path]:
    """`old` and `new` below `folder`, made once; `modified` files spread evenly differ, two chunks in each."""
    done = folder / "done"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("old", "new"):
            _write_side(folder / name / "index-code", files, modified if name == "new" else 0, compressed)
        done.touch()
    return folder / "old", folder / "new"


def make_twin(index: Path, twin: Path) -> Path:
    """The same index as a later build would leave it: other times in the manifest, the same artifacts."""
    if not twin.exists():
        shutil.copytree(index, twin, copy_function=_link)
        manifest = twin / "index-code/pieces/manifest.json"
        content = json.loads(manifest.read_text()) | {"generatedAt": "2026-02-02T00:00:00Z", "buildId": "twin"}
        manifest.unlink()
        manifest.write_text(json.dumps(content))
    return twin


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


def _write_side(folder: Path, files: int, modified: int, compressed: bool) -> None:
    (folder / "chunk_meta.parts").mkdir(parents=True)
    (folder / "pieces").mkdir()
    step = files // modified if modified else 0
    changed = {number * step for number in range(modified)}
    suffix = ".jsonl.zst" if compressed else ".jsonl"
    parts = [f"chunk_meta.parts/chunk_meta.part-{number:05d}{suffix}" for number in range(SHARDS)]
    bounds = [files * number // SHARDS for number in range(SHARDS + 1)]
    for number, part in enumerate(parts):
        with zstd.open(folder / part, "wb") if compressed else open(folder / part, "wb") as out:
            for file in range(bounds[number], bounds[number + 1]):
                out.write("".join(_chunk_lines(file, file in changed)).encode())
    rows = [_file_row(file, file in changed) for file in range(files)]
    (folder / "file_meta.json").write_text(json.dumps(rows, separators=(",", ":")))
    (folder / "chunk_meta.meta.json").write_text(json.dumps({"format": "jsonl-sharded", "parts": parts}))
    pieces = [_piece(folder, path) for path in ("file_meta.json", "chunk_meta.meta.json", *parts)]
    manifest = {"version": 2, "artifactSurfaceVersion": "0.0.1", "compatibilityKey": "bench", "mode": "code"}
    stamp = {"generatedAt": "2026-01-01T00:00:00Z", "pieces": pieces}
    (folder / "pieces/manifest.json").write_text(json.dumps(manifest | stamp))


def _path(file: int) -> str:
    return f"src/package{file % 200}/module_{file}.js"


def _file_row(file: int, changed: bool) -> dict[str, object]:
    digest = hashlib.sha1(f"{file}{changed}".encode()).hexdigest()
    return {"id": file, "file": _path(file), "ext": ".js", "size": 18000, "hash": digest, "hashAlgo": "sha1"}


def _chunk_lines(file: int, changed: bool) -> Iterator[str]:
    path = _path(file)
    for number in range(CHUNKS_PER_FILE):
        row_id = file * CHUNKS_PER_FILE + number
        digest = hashlib.sha1(f"{file}.{number}".encode()).hexdigest()
        start, line = number * 900 + (7 if changed and number == 3 else 0), number * 30 + 1
        name, used = f"handler{number}", f"T{row_id % 50}"
        signature = f"{name}(request, options, callback{row_id % 7}{', more' if changed and number == 5 else ''})"
        calls = ",".join(f'["{name}","callee{(row_id * 7 + j) % 1000}"]' for j in range(4))
        yield (
            f'{{"id":{row_id},"fileId":{file},"file":"{path}","ext":".js","start":{start},"end":{start + 880},'
            f'"startLine":{line},"endLine":{line + 28},"kind":"FunctionDeclaration","name":"{name}",'
            f'"chunkId":"chunk_{digest}","segment":{{"segmentId":"seg-{number}","languageId":"javascript"}},'
            f'"docmeta":{{"signature":"{signature}","doc":"Handles the request and calls back with the result '
            f'of the operation, or with an error that says what went wrong."}},"codeRelations":{{"calls":[{calls}],'
            f'"imports":["./util","./types"],"usageLinks":[{{"v":1,"edgeKind":"usage","to":{{"targetName":"{used}",'
            f'"status":"resolved","resolved":{{"symbolId":"sym:{used}","chunkUid":"ck:{row_id}"}}}}}}]}},"metaV2":{{"schemaVersion":3,"chunkId":"chunk_{digest}","file":"{path}",'
            f'"kind":"FunctionDeclaration","name":"{name}","signature":"{signature}","modifiers":["export","async"],'
            f'"params":["request","options","callback"],"spanHash":"{digest[:16]}"}}}}\n'
        )


def _piece(folder: Path, path: str) -> dict[str, object]:
    digest = xxhash.xxh64()
    with open(folder / path, "rb") as data:
        while block := data.read(1 << 20):
            digest.update(block)
    kind = "jsonl" if ".jsonl" in path else "json"
    name = path.rpartition("/")[2].partition(".")[0]
    size = (folder / path).stat().st_size
    checksum = f"xxh64:{digest.hexdigest()}"
    return {"type": "chunks", "name": name, "format": kind, "path": path, "bytes": size, "checksum": checksum}
