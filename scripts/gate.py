"""Measures what the project promises of itself, and says in one table what falls short: `make gate`.

    python scripts/gate.py                  # everything; `make test` is the long part
    python scripts/gate.py --without-tests  # counts, contracts, files passed and frozen bytes

The tests may take `TEST_SECONDS` on two quiet cores. Machines differ by a factor of two from day to day, so a third of
what the whole suite takes on the same machine counts as well; the rest of the suite is run only when that decides.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import source_counts

ROOT = source_counts.ROOT
MAX_FILES = 330
MAX_LINES = 76_000
MAX_EXCEPTIONS = 0  # imports past a public surface
MAX_SMALL_DIFF = 27
MAX_PIPELINE_RUN = 122
TEST_SECONDS = 300
LARGEST = 10


class Measure(NamedTuple):
    """One promise: what was measured, what was promised, and whether it is kept."""

    name: str
    measured: str
    promised: str
    kept: bool


def at_most(name: str, measured: int, limit: int) -> Measure:
    """A count with an upper bound."""
    return Measure(name, f"{measured:,}", f"at most {limit:,}", measured <= limit)


def counts() -> Iterator[Measure]:
    """Sizes of the source tree."""
    files = source_counts.source_files()
    yield at_most("source files", len(files), MAX_FILES)
    yield at_most("source lines", sum(map(source_counts.line_count, files)), MAX_LINES)
    fragments = source_counts.fragments()
    yield Measure(
        f"files under {source_counts.SMALL_LINES} lines with one importer",
        ", ".join(fragments) or "none",
        "none",
        not fragments,
    )


def surfaces() -> Iterator[Measure]:
    """Packages are imported by their public names, and the contracts say so."""
    lint = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-logo"], cwd=ROOT, capture_output=True, text=True
    )
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    protected = {each["name"] for each in contracts if each["type"] == "protected"}
    unprotected = [
        name for name in source_counts.packages() if f"{name} is imported by its public names" not in protected
    ]
    closing = lint.stdout.strip().splitlines()[-1] if lint.stdout.strip() else lint.stderr.strip()
    yield Measure("import contracts", closing, "all kept", lint.returncode == 0)
    yield Measure("packages without a contract", ", ".join(unprotected) or "none", "none", not unprotected)
    exceptions = [
        line for each in contracts if each["type"] == "protected" for line in each.get("ignore_imports", ())
        if not line.endswith(".kernels")
    ]  # fmt: skip
    yield at_most("exceptions of the contracts", len(exceptions), MAX_EXCEPTIONS)
    yield at_most("imports past a public surface", len(source_counts.crossings()), MAX_EXCEPTIONS)


def history() -> Iterator[Measure]:
    """`git log --follow` leads beyond the day a file got its present name."""
    if not (ROOT / ".git").exists():
        return
    largest = sorted(source_counts.source_files(), key=source_counts.line_count)[-LARGEST:]
    lost = [path.relative_to(ROOT).as_posix() for path in largest if not _followed(path)]
    yield Measure(f"history of the {LARGEST} largest files", ", ".join(lost) or "followed", "followed", not lost)


def _followed(path: Path) -> bool:
    log = ["git", "log", "--format=%h", "--diff-filter=R", "--follow", "--", str(path)]
    return bool(subprocess.run(log, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip())


def files_passed() -> Iterator[Measure]:
    """How many files a newcomer passes who steps through a command."""
    for name, walk, limit in (
        ("files passed by a diff of three rows", source_counts.small_diff, MAX_SMALL_DIFF),
        ("files passed by a pipeline run", source_counts.pipeline_run, MAX_PIPELINE_RUN),
    ):
        with tempfile.TemporaryDirectory() as folder:
            yield at_most(name, len(walk(Path(folder))), limit)


def frozen_bytes() -> Iterator[Measure]:
    """Outputs of the commands are those of the committed list."""
    done, seconds = _make("bytes")
    yield Measure("frozen bytes", f"{'equal' if done else 'differ'}, {seconds:.0f} s", "equal", done)


def tests() -> Iterator[Measure]:
    """`make test` is green and quick."""
    green, seconds = _make("test")
    yield Measure("make test", "green" if green else "red", "green", green)
    promised = f"at most {TEST_SECONDS} s"
    if seconds <= TEST_SECONDS or not green:
        yield Measure("time of make test", f"{seconds:.0f} s", promised, seconds <= TEST_SECONDS)
        return
    rest_green, rest = _make("test-rest")
    third = (seconds + rest) / 3
    yield Measure("make test-rest", "green" if rest_green else "red", "green", rest_green)
    yield Measure(
        "time of make test", f"{seconds:.0f} s of {seconds + rest:.0f} s", f"{promised} or a third", seconds <= third
    )


def _make(target: str) -> tuple[bool, float]:
    print(f"== make {target}", flush=True)
    start = time.monotonic()
    code = subprocess.run(["make", "--no-print-directory", target], cwd=ROOT, check=False).returncode
    return code == 0, time.monotonic() - start


MEASURES: tuple[Callable[[], Iterator[Measure]], ...] = (
    counts,
    surfaces,
    history,
    files_passed,
    frozen_bytes,
    tests,
)


def main() -> None:
    chosen = [measure for measure in MEASURES if measure is not tests or "--without-tests" not in sys.argv]
    measures = [each for measure in chosen for each in measure()]
    print("\n== gate")
    for each in measures:
        print(f"{'ok   ' if each.kept else 'SHORT'}  {each.name}: {each.measured} ({each.promised})")
    short = [each for each in measures if not each.kept]
    print(f"\n{len(measures) - len(short)} of {len(measures)} promises kept" if short else "\ngate: green")
    sys.exit(1 if short else 0)


if __name__ == "__main__":
    main()
