"""One question to every engine: those on Spark share the one session of the quick set."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def session(request: pytest.FixtureRequest) -> Any:
    """The Spark session for a test whose engine is `spark`, else None."""
    engine = getattr(request.node, "callspec", None) and request.node.callspec.params.get("engine")
    return request.getfixturevalue("spark") if engine == "spark" else None
