"""The to-do page of examples/sync-demo in a real browser: two clients, one of them offline for a while."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from support.browser import CHROMIUM
from support.gateways import SOURCE
from support.processes import PATIENCE, start_process

PAGE = Path(__file__).parents[2] / "examples" / "sync-demo" / "page.py"


@pytest.mark.browser
def test_two_panes_converge_after_one_was_offline(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    page = start_process([sys.executable, str(PAGE), "--port", "0"], env=environment, stdout=subprocess.PIPE, text=True)
    assert page.stdout is not None
    address = page.stdout.readline().split()[0]
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--remote-debugging-port=0"]
    browser = start_process(
        [str(CHROMIUM), *flags, f"{address}?play"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    impatience = threading.Timer(PATIENCE, page.kill)  # a page that says nothing must not hold up the tests
    impatience.start()
    try:
        told = page.stdout.readline()
    finally:
        impatience.cancel()
        os.killpg(browser.pid, signal.SIGKILL)
        browser.wait()
        page.terminate()
        page.wait(PATIENCE)
        page.stdout.close()
    assert told.startswith("played converged: laptop offline buy oat milk")
    assert told.count("buy oat milk") == told.count("call Ada") == 2
