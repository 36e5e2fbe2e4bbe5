"""Indexes of git revisions: a full build, an incremental one and a diff, on the site-packages of this environment.

The floor is `git diff --stat`, which knows lines only. The second revision changes one file in fifty, the third one
file. Beside the build stand ctags, which finds names without bodies, signatures or relations, and griffe, which reads
the packages of Python alone and tells their signatures and docstrings.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from benchmarks.contest import DATA, PEERS_PYTHON, Contender, Row, driftline_command, hold

_ENDINGS = (".py", ".pyi", ".js", ".ts", ".c", ".h", ".hpp", ".json", ".md", ".toml")
_MAX_BYTES = 1_000_000


def run(full: bool) -> list[Row]:
    repo, megabytes = _make_repository(DATA / "codegit" / ("full" if full else "quick"), 10_000 if full else 1_000)
    rounds = 3 if full else 1
    case = f"{megabytes:.0f} MB of source"
    rows = hold(f"{case}: full build", [_build(repo, "v1", "*"), *_peers(repo)], rounds=1)
    for row in rows:
        row.figures["mb_per_s"] = megabytes / row.figures["wall_s"]
        row.figures["mb_per_cpu_s"] = megabytes / row.figures["cpu_s"]
    for revision, words in (("v2", "one file in fifty changed"), ("v3", "one file changed")):
        build = _build(repo, revision, f"git-{_tree(repo, revision)}-*")
        rows += hold(f"{case}: incremental build, {words}", [build], rounds=rounds)
    stat = Contender("git diff --stat", ["git", "-C", str(repo), "diff", "--stat", "v1", "v2"])
    words = ("index", "diff", "git:v1", "git:v2", "--repo", str(repo), "--no-persist", "--json")
    return rows + hold(f"{case}: diff", [Contender("driftline", driftline_command(*words)), stat], rounds=rounds)


def _build(repo: Path, revision: str, forget: str) -> Contender:
    """Build a revision after some builds were forgotten."""
    words = " ".join(driftline_command("index", "build", f"{repo}@{revision}"))
    return Contender("driftline", ["sh", "-c", f"rm -rf {repo}/.git/driftline/builds/{forget} && {words}"])


def _peers(repo: Path) -> list[Contender]:
    """Those who look at the same files, in a checkout, where they are installed."""
    checkout = repo.with_name(f"{repo.name}-checkout")
    if not checkout.exists():
        subprocess.run(["git", "clone", "-q", "--branch", "v1", str(repo), str(checkout)], check=True)
    found = []
    if shutil.which("ctags"):
        found.append(Contender("ctags -R", ["ctags", "-R", "--fields=+S", "-f", "/dev/null", str(checkout)]))
    griffe = PEERS_PYTHON.with_name("griffe")
    if griffe.exists():
        packages = sorted(path.parent.name for path in checkout.glob("*/__init__.py"))
        words = [
            str(griffe),
            "dump",
            "--search",
            str(checkout),
            "--output",
            "/dev/null",
            "--log-level",
            "CRITICAL",
            "-X",
        ]
        found.append(Contender("griffe dump", [*words, *packages]))
    return found


def _tree(repo: Path, revision: str) -> str:
    words = ["git", "-C", str(repo), "rev-parse", f"{revision}^{{tree}}"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout[:12]


def _make_repository(folder: Path, limit: int) -> tuple[Path, float]:
    """A repository with the source files of site-packages, and a second revision; the size in MB."""
    files = list(_sources(limit))
    size = sum(path.stat().st_size for path in files) / 1e6
    if not (folder / ".git").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True)
        command = ["git", "-C", str(folder), "fast-import", "--quiet"]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            process.stdin.writelines(_commits(files))
    return folder, size


def _sources(limit: int) -> Iterator[Path]:
    found = 0
    for path in sorted(Path(sysconfig.get_paths()["purelib"]).rglob("*")):
        if path.suffix in _ENDINGS and path.is_file() and path.stat().st_size <= _MAX_BYTES:
            yield path
            found += 1
            if found == limit:
                return


def _commits(files: list[Path]) -> Iterator[bytes]:
    root = Path(sysconfig.get_paths()["purelib"])
    for number in (1, 2, 3):
        yield f"commit refs/heads/main\ncommitter b <b@example.org> {number} +0000\ndata 1\nx\n".encode()
        for path in {1: files, 2: files[::50], 3: files[:1]}[number]:
            data = path.read_bytes()
            if number > 1:
                data = data.replace(b"return ", b"return not ", 1).replace(b"def ", b"def new_", 1) + b"\n" * (
                    number - 2
                )
            yield f"M 100644 inline {path.relative_to(root).as_posix()}\ndata {len(data)}\n".encode() + data + b"\n"
        yield f"reset refs/tags/v{number}\nfrom refs/heads/main\n".encode()
