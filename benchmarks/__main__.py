"""`python -m benchmarks quick|full [NAME[:PART]…]`: runs the cases, prints a table and keeps the figures as JSON."""

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
    unknown = {name.partition(":")[0] for name in options.names} - set(known)
    if unknown:
        sys.exit(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for given in options.names or known:
        # A case is a module with `run(full: bool) -> list[Row]`; one with PARTS takes the name of a part too.
        name, _, chosen = given.partition(":")
        case = importlib.import_module(f"benchmarks.cases.{name}")
        parts = list(getattr(case, "PARTS", ()))
        if chosen and chosen not in parts:
            sys.exit(f"{name} has no part {chosen}; there are {', '.join(parts) or 'none'}")
        for part in [chosen] if chosen else parts or [""]:
            rows: list[Row] = case.run(options.size == "full", part) if part else case.run(options.size == "full")
            print(f"\n## {name} {part}\n\n{as_markdown(rows)}\n".replace(" \n", "\n"), flush=True)
            save(rows, "-".join(filter(None, (name, part, options.size))))


if __name__ == "__main__":
    main()
