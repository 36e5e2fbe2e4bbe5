"""`python -m faults [NAME…]`: runs the fault tests of all rooms or of those named, and prints one table."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import time

import faults
from faults.tools import Tally

_NOT_ROOMS = {"__main__", "tools"}


def main() -> None:
    known = sorted(module.name for module in pkgutil.iter_modules(faults.__path__) if module.name not in _NOT_ROOMS)
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of: {', '.join(known)} (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same faults (default: 1)")
    parser.add_argument("--rounds", type=int, default=100, help="how often each kind is tried, roughly (default: 100)")
    options = parser.parse_args()
    unknown = set(options.names) - set(known)
    if unknown:
        sys.exit(f"no such fault tests: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    print(
        "| room | fault | tried | tracebacks | hangs | silent losses | s |\n|---|---|---:|---:|---:|---:|---:|",
        flush=True,
    )
    bad = [tally for name in options.names or known for tally in _run(name, options.seed, options.rounds)]
    for tally in bad:
        for detail in tally.details:
            print(f"{tally.name}: {detail}", file=sys.stderr)
    sys.exit(1 if bad else 0)


def _run(name: str, seed: int, rounds: int) -> list[Tally]:
    """Print one row a tally as it comes; those with faults."""
    bad = []
    started = time.monotonic()
    for tally in importlib.import_module(f"faults.{name}").run(seed, rounds):
        seconds, started = time.monotonic() - started, time.monotonic()
        counts = f"{tally.tried} | {tally.tracebacks} | {tally.hangs} | {tally.losses} | {seconds:.0f}"
        print(f"| {name} | {tally.name} | {counts} |", flush=True)
        if tally.faults or not tally.tried:
            bad.append(tally)
    return bad


if __name__ == "__main__":
    main()
