"""Code indexes: damaged artifacts, manifests, stored diffs, lists and locks of a registry shared by many writers."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from driftline import codeindex
from driftline.codeindex import CacheRoot, DiffOptions, Registry
from driftline.core import process_runs
from driftline.errors import DriftlineError
from faults.tools import Tally, attempt, driftline, mutate

_FORMS = ("json", "jsonl", "jsonl.zst", "sharded")


def run(seed: int, rounds: int) -> Iterator[Tally]:
    """The kinds of damage, one after the other."""
    kinds = (_artifacts, _cut_shards, _stored_diffs, _lists, _locks, _commands, _builds, _sources)
    for number, kind in enumerate(kinds):
        tally = Tally(kind.__name__.strip("_").replace("_", " "))
        with tempfile.TemporaryDirectory() as folder:
            kind(tally, Path(folder), random.Random(f"{seed}-{number}"), rounds)
        yield tally


def _artifacts(tally: Tally, folder: Path, dice: random.Random, rounds: int) -> None:
    """Any file of an index damaged: a result or a clear error, never a traceback."""
    for number in range(rounds):
        cache = _make_cache(folder / str(number), dice.choice(_FORMS))
        victim = _damage(dice.choice(sorted(_files(cache / "builds"))), dice)
        what = f"round {number}, {victim.relative_to(cache)}"
        attempt(tally, partial(_diff, cache), DriftlineError, what)
        shutil.rmtree(cache)


def _cut_shards(tally: Tally, folder: Path, dice: random.Random, rounds: int) -> None:
    """A file that lost its end although the manifest lists its size: never a false result."""
    for number in range(rounds):
        cache = _make_cache(folder / str(number), dice.choice(_FORMS))
        data = [path for path in _files(cache / "builds/b2/index-code") if "pieces" not in path.parts]
        victim = dice.choice(sorted(path for path in data if not path.name.endswith(".meta.json")))
        victim.write_bytes(victim.read_bytes()[: dice.randrange(victim.stat().st_size)])
        what = f"round {number}, {victim.relative_to(cache)}"
        result = attempt(tally, partial(_diff, cache), DriftlineError, what)
        if result is not None:
            tally.loss(what)
        shutil.rmtree(cache)


def _stored_diffs(tally: Tally, folder: Path, dice: random.Random, rounds: int) -> None:
    """A file of a stored diff damaged: what is shown is what was stored, and computing again heals it."""
    cache = _make_cache(folder, "jsonl")
    kept = _keep(cache)
    diff_id, events = kept.result.diff_id, _events(kept.result)
    whole = {path: path.read_bytes() for path in _files(cache / "diffs")}
    for number in range(rounds):
        victim = _damage(dice.choice(sorted(path for path in whole if path.name != "manifest.json")), dice)
        what = f"round {number}, {victim.name}"
        shown = attempt(tally, lambda: _events(Registry(CacheRoot(cache)).load(diff_id)), DriftlineError, what)
        again = attempt(tally, lambda: _events(_keep(cache).result), DriftlineError, what)
        if any(found is not None and found != events for found in (shown, again)):
            tally.loss(what)
        for path, data in whole.items():
            path.write_bytes(data)


def _lists(tally: Tally, folder: Path, dice: random.Random, rounds: int) -> None:
    """The list of diffs damaged: other commands go on, and no stored diff becomes another one."""
    cache = _make_cache(folder, "jsonl")
    kept = _keep(cache)
    events, path = _events(kept.result), cache / "diffs/manifest.json"
    whole = path.read_bytes()
    for number in range(rounds):
        _damage(path, dice)
        registry = Registry(CacheRoot(cache))
        attempt(tally, registry.entries, DriftlineError, f"round {number}: list")
        attempt(tally, lambda: codeindex.prune(registry, dry_run=True), DriftlineError, f"round {number}: prune")  # noqa: B023
        again = attempt(tally, lambda: _events(_keep(cache).result), DriftlineError, f"round {number}: compute")
        if again is not None and again != events:
            tally.loss(f"round {number}")
        path.write_bytes(whole)


def _locks(tally: Tally, folder: Path, dice: random.Random, rounds: int) -> None:
    """A lock of a living process damaged: it is not stolen unless it clearly names a process that has ended."""
    cache = _make_cache(folder, "jsonl")
    lock = cache / "locks/index.lock"
    lock.parent.mkdir()
    holder = json.dumps({"scope": "build", "pid": os.getpid(), "lockId": "x", "startedAt": "now"}).encode()
    for number in range(rounds):
        damaged = mutate(holder, dice)
        lock.write_bytes(damaged)
        limit = 1 + number  # another diff each time, so that nothing is reused
        options = {"max_changed_files": limit}
        taken = attempt(tally, lambda: _keep(cache, **options), DriftlineError, f"round {number}: {damaged!r}")  # noqa: B023
        if taken is not None and not _names_a_dead_process(damaged):
            tally.loss(f"round {number}: stolen: {damaged!r}")
        lock.unlink(missing_ok=True)


def _commands(tally: Tally, folder: Path, dice: random.Random, rounds: int) -> None:
    """The real command over damaged caches: one line of error and exit code 2, or a good answer."""
    for number in range(max(rounds // 10, 1)):
        cache = _make_cache(folder / str(number), dice.choice(_FORMS))
        _keep(cache)
        victim = _damage(dice.choice(sorted(_files(cache))), dice)
        command = dice.choice((["diff", "build:b1", "latest"], ["list"], ["prune", "--dry-run"]))
        words = ["index", *command, "--cache-root", str(cache), "--format", "json"]
        outcome = driftline(tally, words, what=f"round {number}, {victim.relative_to(cache)}")
        answer = json.loads(outcome.stdout) if outcome.stdout else {}
        if (outcome.code, answer.get("ok")) not in ((0, True), (2, False)):
            tally.loss(f"round {number}: exit {outcome.code}, {outcome.stdout[:100]!r}")


def _builds(tally: Tally, folder: Path, dice: random.Random, rounds: int) -> None:
    """A file of a git build damaged: an error, or the true diff; building with force heals it."""
    repository = _repository(folder / "repo", _SOURCE, _SOURCE.replace(b"+ 1", b"+ 2"))
    cache = folder / "cache"
    truth = _events(codeindex.diff("git:v1", "git:v2", cache, repo=repository))
    whole = {path: path.read_bytes() for path in _files(cache)}
    for number in range(rounds):
        victim = dice.choice(sorted(whole))
        victim.unlink()  # builds share files by links: damage this one only
        victim.write_bytes(mutate(whole[victim], dice))
        what = f"round {number}, {victim.relative_to(cache)}"
        found = attempt(tally, partial(_git_diff, repository, cache), DriftlineError, what)
        if found is not None and found != truth and not _is_plain_data(victim):
            tally.loss(what)
        for path, data in whole.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_bytes(data)


def _is_plain_data(path: Path) -> bool:
    """Files without a checksum of their own, whose damage may leave another valid file."""
    return path.suffix == ".json"


def _git_diff(repository: Path, cache: Path) -> list[Any]:
    return _events(codeindex.diff("git:v1", "git:v2", cache, repo=repository))


_SOURCE = b"""import os

class A(B):
    x = {"a": [1, 2,], 'b': f"{os}"}
    @property
    def f(self, a: int = 1, *b, **c) -> None:
        # why
        if a:
            return g(a + 1)
        return ("x" "y")
"""


def _sources(tally: Tally, folder: Path, dice: random.Random, rounds: int) -> None:
    """Damaged source in every language: rows of what is left, the same each time."""
    from driftline.codeindex._build.extract import extract
    from driftline.codeindex._build.languages import LANGUAGES

    for number in range(rounds):
        source = mutate(_SOURCE * dice.randint(1, 3), dice)
        for language in LANGUAGES:
            rows = attempt(tally, partial(extract, language, source), DriftlineError, f"round {number}, {language}")
            if rows is not None and rows != extract(language, source):
                tally.loss(f"round {number}, {language}: not the same twice")


def _repository(folder: Path, *versions: bytes) -> Path:
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
    lines = []
    for number, content in enumerate(versions, 1):
        lines.append(f"commit refs/heads/main\ncommitter t <t@example.org> {number} +0000\ndata 1\nx\n".encode())
        lines.append(f"M 100644 inline a.py\ndata {len(content)}\n".encode() + content + b"\n")
        lines.append(f"reset refs/tags/v{number}\nfrom refs/heads/main\n".encode())
    subprocess.run(["git", "-C", str(folder), "fast-import", "--quiet"], input=b"".join(lines), check=True)
    return folder


def _make_cache(root: Path, form: str) -> Path:
    for build, version in (("b1", "1"), ("b2", "2")):
        index = root / "builds" / build / "index-code"
        files = [{"id": n, "file": f"f{n}.js", "hash": version if n % 2 else "x", "size": n} for n in range(8)]
        chunks = [_chunk(n, version) for n in range(40)]
        imports = [{"file": f"f{n}.js", "relations": {"imports": [f"./v{version}"]}} for n in range(8)]
        for name, rows in (("file_meta", files), ("chunk_meta", chunks), ("file_relations", imports)):
            _write_rows(index, name, rows, form)
        pieces = [_piece(index, path) for path in sorted(_files(index))]
        _put(index / "pieces/manifest.json", {"version": 2, "pieces": pieces})
        _put(root / "builds" / build / "build_state.json", {"buildId": build, "configHash": "c"})
    _put(root / "builds/current.json", {"buildId": "b2"})
    return root


def _chunk(number: int, version: str) -> dict[str, Any]:
    signature = f"f{number}({version if number % 4 == 1 else ''})"
    place = {"start": number * 10, "end": number * 10 + 9, "startLine": number, "endLine": number}
    return {"id": number, "file": f"f{number % 8}.js", "name": f"f{number}", "kind": "fn", **place} | {
        "metaV2": {"chunkId": f"c{number}", "signature": signature}
    }


def _write_rows(index: Path, name: str, rows: list[dict[str, Any]], form: str) -> None:
    from backports import zstd

    index.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row).encode() + b"\n" for row in rows]
    if form == "json":
        _put(index / f"{name}.json", rows)
    elif form == "sharded":
        parts = [f"{name}.parts/{name}.part-{number:05d}.jsonl" for number in range(3)]
        for number, part in enumerate(parts):
            (index / part).parent.mkdir(exist_ok=True)
            (index / part).write_bytes(b"".join(lines[number::3]))
        _put(index / f"{name}.meta.json", {"parts": parts})
    else:
        data = b"".join(lines)
        (index / f"{name}.{form}").write_bytes(zstd.compress(data) if form.endswith("zst") else data)


def _piece(index: Path, path: Path) -> dict[str, Any]:
    return {"name": path.name.partition(".")[0], "path": str(path.relative_to(index)), "bytes": path.stat().st_size}


def _put(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _damage(path: Path, dice: random.Random) -> Path:
    path.write_bytes(mutate(path.read_bytes(), dice))
    return path


def _diff(cache: Path) -> list[Any]:
    return _events(codeindex.diff("build:b1", "latest", cache_root=cache))


def _keep(cache: Path, **options: Any) -> codeindex.KeptDiff:
    request = codeindex.prepare("build:b1", "latest", cache, DiffOptions.of(**options))
    return codeindex.compute(request, CacheRoot(cache))


def _events(result: codeindex.IndexDiff) -> list[Any]:
    return list(result.events)


def _names_a_dead_process(lock: bytes) -> bool:
    try:
        pid = int(json.loads(lock)["pid"])
    except (ValueError, TypeError, KeyError):
        return False
    return not process_runs(pid)
