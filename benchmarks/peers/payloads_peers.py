"""Other tools on the payload cases, in the mode that comes nearest to the rules: PEER CASE OLD NEW SECONDS.

deepdiff and jycm ignore paths and the order of arrays; jsoncomparison (in the manner of JsonUnit) ignores members by
their place and looks for each item of an array anywhere in the other. None of them knows the other rules.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Fields whose rules the others do not know (aliases, enum maps, patterns, dates, casts, subsets) are left out, which is
# in their favour.
NO_COUNTERPART = (
    "id|legacyId|old_invoice_id|status|createdAt|orderNumber|description|version|rebate|labels|customer|currency"
)
DROPPED = f"{NO_COUNTERPART}|debug|requestId|session|notes"
# Epsilons have no effect inside `ignore_order`, so numbers are rounded.
MODES: dict[str, dict[str, Any]] = {
    "invoice": {
        "exclude_regex_paths": [
            r"(?i)\['updatedat'\]",
            r"(?i)\['metadata'\]",
            rf"(?i)^root\['({DROPPED})'\]",
        ],
        "ignore_order": True,
        "significant_digits": 1,
        "ignore_string_case": True,
        "ignore_numeric_type_changes": True,
    },
    "keyed": {"group_by": "sku", "significant_digits": 2, "exclude_regex_paths": [r"(?i)\['updatedat'\]"]},
    "unordered": {
        "ignore_order": True,
        "significant_digits": 2,
        "ignore_string_case": True,
        "exclude_regex_paths": [r"(?i)\['updatedat'\]"],
    },
}


def deepdiff(case: str) -> Callable[[Any, Any], int]:
    from deepdiff import DeepDiff

    return lambda old, new: sum(map(len, DeepDiff(old, new, **MODES[case]).values()))


def jycm(case: str) -> Callable[[Any, Any], int]:
    from jycm.helper import make_ignore_order_func
    from jycm.jycm import YouchamaJsonDiffer
    from jycm.operator import IgnoreOperator

    places = rf"^({DROPPED})($|->)|updatedAt$|metadata$" if case == "invoice" else "updatedAt$"
    ignored = [IgnoreOperator(places)]
    unordered = make_ignore_order_func(["^tags$", "^events$", "^lineItems$"] if case == "invoice" else ["^$"])

    def compare(old: Any, new: Any) -> int:
        found = YouchamaJsonDiffer(old, new, custom_operators=ignored, ignore_order_func=unordered).get_diff()
        return sum(len(entries) for kind, entries in found.items() if kind not in ("ignore", "just4vis:pairs"))

    return compare


def jsoncomparison(case: str) -> Callable[[Any, Any], int]:
    from jsoncomparison import Compare

    items = {"_list": ["updatedAt"]}
    members = dict.fromkeys((*DROPPED.split("|"), "updatedAt", "metadata"), "*")
    rules: Any = {**members, "lineItems": items} if case == "invoice" else items
    config = {"types": {"float": {"allow_round": 1}, "list": {"check_length": False}}}
    checker = Compare(config, rules)
    return lambda old, new: len(checker.check(old, new))


PEERS = {"deepdiff": deepdiff, "jycm": jycm, "jsoncomparison": jsoncomparison}


def main() -> None:
    peer, case, old_path, new_path, seconds = sys.argv[1:]
    compare = PEERS[peer](case)
    old, new = (json.loads(Path(path).read_text()) for path in (old_path, new_path))
    best, cpu, end = float("inf"), float("inf"), time.perf_counter() + float(seconds)
    while True:
        started, used = time.perf_counter(), time.process_time()
        found = compare(old, new)
        best = min(best, time.perf_counter() - started)
        cpu = min(cpu, time.process_time() - used)
        if time.perf_counter() >= end:
            break
    print(json.dumps({"wall_s": best, "cpu_s": cpu, "found": found}))


if __name__ == "__main__":
    main()
