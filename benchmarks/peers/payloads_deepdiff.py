"""deepdiff on the payload cases, in the mode that comes nearest to the rules: CASE OLD NEW SECONDS."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from deepdiff import DeepDiff
from deepdiff.helper import CannotCompare


def same_sku(left: Any, right: Any, level: Any = None) -> bool:
    try:
        return left["sku"] == right["sku"]
    except (KeyError, TypeError):
        raise CannotCompare from None


COMMON: dict[str, Any] = {
    "exclude_regex_paths": [r"\['updatedAt'\]", r"\['metadata'\]", r"^root\['(debug|requestId|session|notes)'\]"],
    "math_epsilon": 0.01,
    "ignore_string_case": True,
    "ignore_numeric_type_changes": True,
}
MODES: dict[str, dict[str, Any]] = {
    "invoice": {**COMMON, "ignore_order": True, "iterable_compare_func": same_sku},
    "keyed": {"group_by": "sku", "math_epsilon": 0.001, "exclude_regex_paths": [r"\['updatedAt'\]"]},
    "unordered": {"ignore_order": True, "math_epsilon": 0.001, "exclude_regex_paths": [r"\['updatedAt'\]"]},
}


def main() -> None:
    case, old_path, new_path, seconds = sys.argv[1:]
    old, new = (json.loads(Path(path).read_text()) for path in (old_path, new_path))
    best, end = float("inf"), time.perf_counter() + float(seconds)
    while True:
        started = time.perf_counter()
        DeepDiff(old, new, **MODES[case])
        best = min(best, time.perf_counter() - started)
        if time.perf_counter() >= end:
            break
    print(json.dumps({"wall_s": best}))


if __name__ == "__main__":
    main()
