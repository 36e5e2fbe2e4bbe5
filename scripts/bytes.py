"""Check that no output byte changed: run the commands of `tests/bytes/cases.toml`, compare hashes with a list.

    python scripts/bytes.py                     compare with tests/bytes/hashes.json; exit 1 when something differs
    python scripts/bytes.py --slow              also the commands that run on Spark
    python scripts/bytes.py --write             write the list anew
    python scripts/bytes.py --only 'lake/*'     these cases alone
    python scripts/bytes.py --show lake/log     print what a case gave, as it is hashed
    python scripts/bytes.py --keep DIR          store what is hashed, so that `diff -r` compares two trees
    python scripts/bytes.py --show lake/log --against DIR    the difference to what --keep stored

A case is a line of shell in which `driftline` is this tree's command. The cases of a section run one after the other
in a folder of their own; exit code, stdout, stderr and every file that is new or changed are hashed. What two equal
runs do not share (times, durations, random names, paths of this machine) is masked first. Moving code changes no hash;
a hash changes only in a commit that changes nothing else and says which demand it serves.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import hashlib
import importlib.util
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from bytes_data import ROOT, make_data
from deltalake import DeltaTable

CASES = ROOT / "tests/bytes/cases.toml"
HASHES = ROOT / "tests/bytes/hashes.json"
SLOW = "spark"  # sections with this word in front run with --slow
HELP = "help/pages"
PREPARE = "/prepare"  # such a case makes files for those behind it

# Lists what a command has loaded when it ends; run as `loaded ARGUMENTS…`, its list is the file loaded.txt.
LOADED = """
import atexit, sys
HEAVY = {heavy!r}
BEFORE = set(sys.modules)
def tell(open=open):
    loaded = set(sys.modules) - BEFORE
    names = {{name for name in loaded if name in HEAVY}}
    names |= {{name for name in loaded if name.isidentifier() and not name.startswith("_")
              and name not in sys.stdlib_module_names}}
    with open("loaded.txt", "w") as out:
        out.write(" ".join(sorted(names - {{"driftline"}})))
atexit.register(tell)
from driftline.cli.main import main
main()
"""
WORTH_KNOWING = """
argparse asyncio concurrent.futures csv ctypes decimal email gzip hashlib http http.client importlib.metadata inspect
logging lzma multiprocessing pathlib pickle random shutil socket sqlite3 ssl subprocess tempfile tomllib unittest
urllib.request uuid xml.etree.ElementTree zipfile
"""
HEAVY = set(WORTH_KNOWING.split())


@dataclass(slots=True)
class Outcome:
    """What a case gave: its exit code and the masked bytes of its streams and files."""

    exit: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    files: dict[str, bytes] = field(default_factory=dict)

    def parts(self) -> dict[str, bytes]:
        """Every stream and file by its name."""
        return {"stdout": self.stdout, "stderr": self.stderr, **self.files}

    def hashes(self) -> dict[str, Any]:
        """The entry of the list."""
        files = {name: content_hash(name, content) for name, content in sorted(self.files.items())}
        streams = {"stdout": content_hash("", self.stdout), "stderr": content_hash("", self.stderr)}
        return {"exit": self.exit, **streams, **({"files": files} if files else {})}


def content_hash(name: str, content: bytes) -> str:
    """The SHA-256 of some bytes; a list of modules stays readable."""
    if name == "loaded.txt":
        return content.decode()
    return hashlib.sha256(content).hexdigest() if content else "empty"


MOMENT = re.compile(r"\b(20\d\d-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(Z|\+00:00|\b)")
DAY = re.compile(r"\b(20\d\d-\d\d-\d\d)/")
NUMBER = re.compile(r"(?<![\w.])\d{10,19}(?:\.\d+)?(?![\w.])")
PATTERNS = [
    (re.compile(pattern, re.DOTALL), word)
    for pattern, word in (
        # random names: of runs, of parts of an output, of whatever has a UUID
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
        (r"\b20\d{6}T\d{12}-\d+\b", "<run>"),
        (r"\b(part-\d+-)[0-9a-f]{16}\b", r"\1<name>"),
        (r"\b(\d{18}-\d{18}-)[0-9a-f]{16}\b", r"\1<name>"),
        (r'("writer": )"[0-9a-f]{16}"', r'\1"<name>"'),
        # durations: JSON, XML, Prometheus, tables for people, pages and their charts
        (r'("\w*(?:seconds|duration_ms)": ?)[\d.e-]+', r"\1<seconds>"),
        (r'( time=")[\d.]+"', r'\1<seconds>"'),
        (r"(_seconds(?:\{[^}]*\})?) [\d.e+-]+", r"\1 <seconds>"),
        (r" *(?<![\w.])\d+\.\d+ s\b", " <seconds> s"),
        (r"\b(passed|failed|error|warned|done|kept|skipped) +\d+\.\d\b", r"\1 <seconds>"),
        (r'(<td class="count">)\d+\.\d(</td>)', r"\1<seconds>\2"),
        (r"(<figcaption><b>seconds</b>).*?(</figure>)", r"\1<seconds>\2"),
        # checksums of something that holds a time; the number of a file in the file system
        (r'("seal": )"[0-9a-f]{32}"', r'\1"<hash>"'),
        (r'("path": "[^"]*report\.html",\s+"size": )\d+(,\s+"checksum": )"[^"]*"', r'\1<size>\2"<hash>"'),
        (r'("summary": )"[0-9a-f]{32}"', r'\1"<hash>"'),
        (r"(<time>,\s+)\d+(,\s+\"xxh128)", r"\1<inode>\2"),
    )
]
# A delta's id, and what is made of it, depend on its time.
OF_DELTA = ((re.compile(r'("mark": )-?\d+'), r"\1<mark>"), (re.compile(r'"[0-9a-f]{64}"'), '"<id>"'))


class Mask:
    """Replaces what differs between two equal runs by a word in angle brackets."""

    def __init__(self, place: Path, version: str) -> None:
        self.started = time.time() - 2
        paths = {str(place): "<tmp>", str(place.resolve()): "<tmp>", sys.prefix: "<venv>", str(ROOT): "<root>"}
        self.paths = sorted(paths.items(), key=lambda pair: -len(pair[0]))
        self.version = re.compile(rf"(?<![\w.]){re.escape(version)}(?![\w.])")

    def __call__(self, text: str) -> str:
        for path, word in self.paths:
            text = text.replace(path, word)
        text = self.version.sub("<version>", text)
        text = MOMENT.sub(lambda found: "<time>" if self.is_now(moment_of(found[1])) else found[0], text)
        text = DAY.sub(lambda found: "<day>/" if found[1] in self.days() else found[0], text)
        text = NUMBER.sub(lambda found: "<time>" if self.is_clock(float(found[0])) else found[0], text)
        for pattern, word in PATTERNS:
            text = pattern.sub(word, text)
        return text

    def days(self) -> set[str]:
        """The days of this run; files of a lake lie in a folder of the day."""
        return {datetime.fromtimestamp(moment, UTC).date().isoformat() for moment in (self.started, time.time())}

    def is_now(self, seconds: float) -> bool:
        """Whether a time lies within this run; seeded times are years away and stay."""
        return self.started - 60 <= seconds <= time.time() + 60

    def is_clock(self, number: float) -> bool:
        """Whether a number is a time of this run in seconds, milli-, micro-, nanoseconds, or as a hybrid clock."""
        scales = (1, 1e3, 1e6, 1e9, 65_536e3)
        return any(self.is_now(number / scale) for scale in scales)


def mask_ids(line: str) -> str:
    """Mask the ids of a row whose deltas have times of this run."""
    for pattern, word in OF_DELTA if "<time>" in line else ():
        line = pattern.sub(word, line)
    return line


def moment_of(text: str) -> float:
    """Seconds of a time in UTC; 0 where it is none."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


class Bench:
    """A temporary folder with the data, an environment without surprises, and the commands of this tree."""

    def __init__(self, place: Path) -> None:
        self.place = place
        for folder in ("bin", "home", "tmp"):
            (place / folder).mkdir()
        self.environment = environment(place)
        self.shim("driftline", f'exec "{sys.executable}" -m driftline "$@"')
        (place / "bin/loaded.py").write_text(LOADED.format(heavy=HEAVY))
        self.shim("loaded", f'exec "{sys.executable}" "{place}/bin/loaded.py" "$@"')
        version = self.run("driftline --version", place)[1].split()[-1].decode()
        self.mask = Mask(place, version)

    def prepare(self) -> None:
        """Make the data, and copy the examples beside it."""
        make_data(self.place / "data", self.environment)
        unwanted = shutil.ignore_patterns("__pycache__", "diffs")
        shutil.copytree(ROOT / "examples", self.place / "examples", ignore=unwanted)
        for path in (self.place / "data").rglob("*"):
            os.utime(path, (MADE_AT, MADE_AT))  # pipelines take notice of the times of files

    def shim(self, name: str, line: str) -> None:
        script = self.place / "bin" / name
        script.write_text(f"#!/bin/sh\n{line}\n")
        script.chmod(0o755)

    def folder(self, section: str) -> Path:
        """The folder of a section, in which the data is at hand."""
        folder = self.place / "work" / section
        folder.mkdir(parents=True)
        for name in ("data", "examples"):
            (folder / name).symlink_to(self.place / name)
        return folder

    def run(self, line: str, folder: Path) -> tuple[int, bytes, bytes]:
        """Run a line of shell; its exit code, stdout and stderr."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        done = subprocess.run(["sh", "-c", line], cwd=folder, env=self.environment, check=False, **streams)
        return done.returncode, done.stdout, done.stderr

    def masked(self, content: bytes) -> bytes:
        """Text with its times and paths masked; other bytes as they are."""
        try:
            return self.mask(content.decode()).encode()
        except UnicodeDecodeError:
            return content


def environment(place: Path) -> dict[str, str]:
    """Zone, language, width and home are the same everywhere; settings of the user do not reach the commands."""
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "SYSTEMROOT") if name in os.environ}
    author = {f"GIT_{who}_{what}": text for who in ("AUTHOR", "COMMITTER") for what, text in COMMIT.items()}
    search = os.pathsep.join([str(place / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {
        **kept,
        **author,
        "PATH": search,
        "HOME": str(place / "home"),
        "TMPDIR": str(place / "tmp"),
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "DRIFTLINE_CLASS_ARCHIVE": "off",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }


MADE_AT = 1_714_979_289
COMMIT = {"NAME": "a", "EMAIL": "a@example.org", "DATE": "2024-05-06T07:08:09Z"}


# What is hashed of a file. Parquet files and Delta tables carry versions of their writers, random names and times, and
# pages of a database the version of SQLite: of these the content counts, in a stable order.


def logical_content(path: Path) -> bytes:
    """The bytes of a file, or the text of what it says where bytes depend on who wrote it."""
    with path.open("rb") as source:
        start = source.read(16)
    if start[:4] == b"PAR1":
        return table_text(pq.read_table(path, partitioning=None))
    if start == b"SQLite format 3\0":
        return database_text(path)
    return path.read_bytes()


def table_text(table: Any) -> bytes:
    """Column names and types, then a line for each row."""
    lines = [json.dumps(row, default=str, ensure_ascii=False) for row in table.to_pylist()]
    return "\n".join([f"{column.name}: {column.type}" for column in table.schema] + lines).encode()


def database_text(path: Path) -> bytes:
    """Every statement that makes the database."""
    database = sqlite3.connect(path)
    try:
        return "\n".join(database.iterdump()).encode()
    finally:
        database.close()


def listing(folder: Path) -> dict[Path, tuple[int, int]]:
    """Files below a folder with time and size; a Delta table is its log."""
    found = {}
    for at, folders, names in os.walk(folder):
        here = Path(at)
        if "_delta_log" in folders:
            log = sorted((here / "_delta_log").iterdir())
            found[here] = (len(log), sum(entry.stat().st_size for entry in log))
            folders.clear()
            continue
        folders[:] = [name for name in folders if not (here / name).is_symlink() and name != ".git"]
        for name in names:
            status = (here / name).stat()
            found[here / name] = (status.st_mtime_ns, status.st_size)
    return found


def file_content(path: Path) -> bytes:
    """What is hashed of a file or of a Delta table."""
    return table_text(DeltaTable(path).to_pyarrow_table()) if path.is_dir() else logical_content(path)


def run_case(bench: Bench, line: str, folder: Path) -> Outcome:
    """Run a case and take up what it gave."""
    before = listing(folder)
    code, out, error = bench.run(line, folder)
    outcome = Outcome(code, bench.masked(out), bench.masked(error))
    for path, status in sorted(listing(folder).items()):
        if before.get(path) != status:
            name = bench.mask(str(path.relative_to(folder)))
            content = bench.masked(file_content(path))
            if path.is_dir():  # which file of a Delta table comes first is chance
                content = "\n".join(sorted(map(mask_ids, content.decode().splitlines()))).encode()
            outcome.files[name] = outcome.files.get(name, b"") + content
    for path in before.keys() - listing(folder).keys():
        outcome.files[bench.mask(str(path.relative_to(folder)))] = b"(removed)"
    return outcome


def run_section(bench: Bench, section: str, lines: dict[str, str], wanted: str) -> Iterator[tuple[str, Outcome]]:
    """Run the cases of a section up to the last that is wanted."""
    names = [f"{section}/{name}" for name in lines]
    last = max((number for number, name in enumerate(names) if fnmatch.fnmatch(name, wanted)), default=-1)
    folder = bench.folder(section)
    for number, (name, line) in enumerate(zip(names, lines.values(), strict=True)):
        if number > last:
            break
        outcome = run_case(bench, line, folder)
        if fnmatch.fnmatch(name, wanted) and not name.endswith(PREPARE):
            yield name, outcome


def run_help(bench: Bench, workers: ThreadPoolExecutor) -> Outcome:
    """The help pages of all commands, found by the lists of commands in the pages themselves."""
    outcome, waiting = Outcome(), [("driftline",)]
    while waiting:
        pages = list(workers.map(lambda words: bench.run(" ".join([*words, "--help"]), bench.place), waiting))
        found = []
        for words, (code, page, _) in zip(waiting, pages, strict=True):
            outcome.exit |= code
            outcome.files[" ".join(words)] = bench.masked(page)
            lists = re.findall(r"^(?:Commands|More):\n((?:  .*\n)+)", page.decode(), re.MULTILINE)
            found += [(*words, name) for listed in lists for name in re.findall(r"^  ([a-z]\S*)", listed, re.MULTILINE)]
        waiting = found
    return outcome


def run_all(bench: Bench, sections: dict[str, dict[str, str]], wanted: str, jobs: int) -> dict[str, Outcome]:
    """Run the sections side by side; the cases by their names."""
    outcomes: dict[str, Outcome] = {}
    with ThreadPoolExecutor(jobs) as workers:
        tasks = [
            workers.submit(lambda s=section, c=lines: dict(run_section(bench, s, c, wanted)))
            for section, lines in sections.items()
            if any(fnmatch.fnmatch(f"{section}/{name}", wanted) for name in lines)
        ]
        if fnmatch.fnmatch(HELP, wanted):
            outcomes[HELP] = run_help(bench, workers)
        for task in tasks:
            outcomes |= task.result()
    return dict(sorted(outcomes.items()))


def differences(expected: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    """A line for each stream or file that is not as listed."""
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            yield f"{name}: was not run"
        elif name not in expected:
            yield f"{name}: is not in the list (--write puts it there)"
        else:
            one, other = flat(expected[name]), flat(found[name])
            for part in sorted(one.keys() | other.keys()):
                if one.get(part) != other.get(part):
                    yield f"{name}: {part} {told(one.get(part), other.get(part))}"


def flat(entry: dict[str, Any]) -> dict[str, Any]:
    streams = {part: value for part, value in entry.items() if part != "files"}
    return {**streams, **{f"file {name}": value for name, value in entry.get("files", {}).items()}}


def told(expected: Any, found: Any) -> str:
    if expected is None or found is None:
        return "is new" if expected is None else "is gone"
    if isinstance(expected, int) or " " in f"{expected}{found}":
        before, after = set(str(expected).split()), set(str(found).split())
        return f"changed: {' '.join(sorted(before - after))} -> {' '.join(sorted(after - before))}"
    return "changed"


def keep(folder: Path, outcomes: dict[str, Outcome]) -> None:
    """Store what is hashed, a folder for each case."""
    for name, outcome in outcomes.items():
        place = folder / name.replace("/", ".")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        (place / "exit").write_text(f"{outcome.exit}\n")
        for part, content in outcome.parts().items():
            (place / part.replace("/", "%")).write_bytes(content)


def show(name: str, outcome: Outcome, against: Path | None) -> None:
    """Print a case as it is hashed, or how it differs from a stored one."""
    for part, content in outcome.parts().items():
        text = content.decode(errors="backslashreplace")
        if against is not None:
            stored = against / name.replace("/", ".") / part.replace("/", "%")
            old = stored.read_bytes().decode(errors="backslashreplace") if stored.exists() else ""
            text = "\n".join(difflib.unified_diff(old.split("\n"), text.split("\n"), "stored", "found", lineterm=""))
        if text:
            print(f"=== {name} {part} (exit {outcome.exit})\n{text}")


def chosen(slow: bool) -> dict[str, dict[str, str]]:
    sections = tomllib.loads(CASES.read_text(encoding="utf-8"))
    return {name: lines for name, lines in sections.items() if slow or not name.startswith(SLOW)}


def listed(only: str, slow: bool) -> dict[str, Any]:
    """The part of the list that a run has to meet."""
    entries = json.loads(HASHES.read_text(encoding="utf-8")) if HASHES.exists() else {}
    return {
        name: entry
        for name, entry in entries.items()
        if fnmatch.fnmatch(name, only) and (slow or not name.startswith(SLOW))
    }


def write(found: dict[str, Any]) -> None:
    """Put what was found into the list; cases that were not run stay, those that are no more go."""
    known = {f"{section}/{name}" for section, lines in chosen(slow=True).items() for name in lines} | {HELP}
    entries = {name: entry for name, entry in {**listed("*", slow=True), **found}.items() if name in known}
    HASHES.write_text(json.dumps(dict(sorted(entries.items())), indent=1) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the list instead of comparing with it")
    parser.add_argument("--slow", action="store_true", help="also run on Spark")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="cases whose names match")
    parser.add_argument("--show", metavar="CASE", help="print what a case gave")
    parser.add_argument("--against", type=Path, metavar="DIR", help="with --show: the difference to a stored run")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="store what is hashed")
    parser.add_argument("-j", type=int, default=2, dest="jobs", metavar="N", help="so many commands at once")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    only, slow = given.show or given.only, given.slow or (given.show or given.only).startswith(SLOW)
    spec = importlib.util.find_spec("driftline")
    if spec is None or spec.origin is None or ROOT not in Path(spec.origin).resolve().parents:
        sys.exit(f"error: driftline is not the one of {ROOT}: run this with its .venv/bin/python")
    os.umask(0o022)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bytes-") as place:
        bench = Bench(Path(place).resolve())
        bench.prepare()
        outcomes = run_all(bench, chosen(slow), only, given.jobs)
    found = {name: outcome.hashes() for name, outcome in outcomes.items()}
    if given.keep:
        keep(given.keep, outcomes)
    if given.show:
        for name, outcome in outcomes.items():
            show(name, outcome, given.against)
        return 0
    if given.write:
        write(found)
    different = list(differences(listed(only, slow), found))
    print(*different, sep="\n", end="\n" if different else "")
    seconds = time.monotonic() - started
    print(f"bytes: {len(found)} cases, {len(different)} differences, {seconds:.0f} s")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
