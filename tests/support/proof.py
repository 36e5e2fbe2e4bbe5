"""How property tests are run: the same examples in every run, or random ones with a seed that is printed."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import engine

CASES = Path(__file__).parents[1] / "cases"
# Hypothesis has no setting for it. A failing example that is small after 20 seconds is small enough to say.
SHRINKING_SECONDS = 20
# `make faults` makes this many times the examples that a test declares.
LONGER = 10
_BLOB = re.compile(r"@reproduce_failure\(.*\)")


def load_profile() -> None:
    """Register and load the profile: `fixed` unless HYPOTHESIS_PROFILE says `search`."""
    engine.MAX_SHRINKING_SECONDS = SHRINKING_SECONDS
    # Deadlines would time things in tests; no database, because a run must not depend on an earlier one. The phase
    # `explain` goes on after the time for shrinking is over.
    settings.register_profile(
        "fixed",
        deadline=None,
        max_examples=60,
        derandomize=True,
        database=None,
        print_blob=True,
        phases=(Phase.explicit, Phase.generate, Phase.target, Phase.shrink),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    settings.register_profile("search", parent=settings.get_profile("fixed"), derandomize=False)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def is_searching() -> bool:
    """Whether examples are random."""
    return not settings.default.derandomize  # type: ignore[union-attr]


def search_longer(item: Any) -> None:
    """More examples for one property test."""
    declared = getattr(item.obj, "_hypothesis_internal_use_settings", None) or settings.default
    item.obj._hypothesis_internal_use_settings = settings(declared, max_examples=declared.max_examples * LONGER)


def write_case(item: Any, failure: Any) -> Path | None:
    """Write a failing example down as the decorator that repeats it; where, or None without an example."""
    test = item.obj.hypothesis.inner_test
    frames = [entry.frame for entry in failure.traceback if entry.frame.code.raw is test.__code__]
    if not frames:
        return None
    names = inspect.signature(test).parameters
    values = {name: frames[-1].f_locals[name] for name in names if name not in item.fixturenames}
    blob = _BLOB.search("\n".join(getattr(failure.value, "__notes__", [])))
    text = [
        f"# {item.nodeid.partition('@')[0]}: put this above @given and commit it with the fix",
        f"@example({', '.join(f'{name}={value!r}' for name, value in values.items())})",
        *([f"# or, with this version of Hypothesis: {blob.group()}"] if blob else []),
    ]
    CASES.mkdir(exist_ok=True)
    file = CASES / (re.sub(r"\W+", "-", item.nodeid.removeprefix("tests/")).strip("-") + ".txt")
    file.write_text("\n".join(text) + "\n")
    return file
