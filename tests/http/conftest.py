from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.gateways import Server, running


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: Any) -> Iterator[Server]:
    """A server for tests that do not care what else is in its log."""
    with running(tmp_path_factory.mktemp("gateway"), "--rate-limit", "0") as server:
        yield server


@pytest.fixture
def server(tmp_path: Any) -> Iterator[Server]:
    """A server with an empty log."""
    with running(tmp_path / "data", "--rate-limit", "0") as server:
        yield server
