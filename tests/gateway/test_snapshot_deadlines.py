"""A fold or a page that takes too long: the request is told so, the worker is ended, and the next request is served."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from driftline.deltas import ColumnDelta, RowDelta, make_hlc, physical_ms
from driftline.errors import GatewayError
from driftline.gateway._lake import process
from driftline.gateway._lake.process import SNAPSHOTS_AT_ONCE, PipedProcess, SnapshotProcesses
from driftline.gateway._lake.snapshot import PageSigner, Request, page_keys
from driftline.gateway._settings import GatewaySettings
from driftline.gateway._sync.push import entry_of


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SnapshotProcesses, Request]]:
    settings = GatewaySettings("gw", tmp_path_factory.mktemp("data"), insecure=True)
    log = settings.open_log()
    made = RowDelta.make(
        op="INSERT", table="t", row_id="1", client_id="a", columns=[ColumnDelta("x", 1)], hlc=make_hlc(physical_ms())
    )
    log.append([[entry_of(made)]])
    processes = SnapshotProcesses(settings)
    yield processes, Request(None, PageSigner(page_keys(log), "gw", "a"), 10, None, 0, {}, {})
    processes.close()
    log.close()


@pytest.mark.servers
@pytest.mark.parametrize(("late", "limit"), [("prepare", "_FOLD_SECONDS"), ("page", "_PAGE_SECONDS")])
def test_a_worker_that_hangs_is_ended(
    served: tuple[SnapshotProcesses, Request], late: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes, request = served
    ask, hung = PipedProcess.ask, []

    def stopping(self: PipedProcess, question: str, *details: Any, seconds: float | None = None) -> Any:
        """The worker is stopped, as by a disk that does not answer, before it is asked this."""
        if question == late:
            assert self._process is not None
            hung.append(self._process)
            os.kill(self._process.pid or 0, signal.SIGSTOP)
        return ask(self, question, *details, seconds=seconds)

    for _ in range(SNAPSHOTS_AT_ONCE):  # every worker is started, and answers
        assert rows(processes.page(request)) == ["1"]
    with monkeypatch.context() as patch:
        patch.setattr(process, limit, 0.5)
        patch.setattr(PipedProcess, "ask", stopping)
        with pytest.raises(GatewayError) as refused:
            processes.page(request)
    assert (refused.value.code, refused.value.reason) == ("BACKPRESSURE_ERROR", "snapshot_deadline")
    assert (refused.value.message, refused.value.retry_after) == ("the snapshot takes longer than 0.5 s", 60)
    assert len(hung) == 1
    assert not hung[0].is_alive()
    for _ in range(SNAPSHOTS_AT_ONCE):  # that one too, anew
        assert rows(processes.page(request)) == ["1"]


def rows(page: bytes) -> list[str]:
    return [json.loads(line)["rowId"] for line in page.splitlines()[1:-1]]
