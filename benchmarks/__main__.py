"""`python -m benchmarks quick|full [NAME…]`: runs the cases, prints a table and keeps the figures as JSON."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys

import benchmarks.cases as cases
from benchmarks.contest import Row, as_markdown, save


def main() -> None:
    known = sorted(module.name for module in pkgutil.iter_modules(cases.__path__))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("size", choices=["quick", "full"])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of: {', '.join(known)} (default: all)")
    options = parser.parse_args()
    unknown = set(options.names) - set(known)
    if unknown:
        sys.exit(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for name in options.names or known:
        # A case is a module with `run(full: bool) -> list[Row]`.
        rows: list[Row] = importlib.import_module(f"benchmarks.cases.{name}").run(options.size == "full")
        print(f"\n## {name}\n\n{as_markdown(rows)}\n", flush=True)
        save(rows, f"{name}-{options.size}")


if __name__ == "__main__":
    main()
