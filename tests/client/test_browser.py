"""The to-do page of examples/sync-demo in a real browser: offline for a while, reloaded, and in two tabs."""

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

pytestmark = pytest.mark.browser


def played(story: str, profile: Path) -> str:
    """What the page reports of a story that it plays by itself."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    page = start_process([sys.executable, str(PAGE), "--port", "0"], env=environment, stdout=subprocess.PIPE, text=True)
    assert page.stdout is not None
    address = page.stdout.readline().split()[0]
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--remote-debugging-port=0"]
    browser = start_process(
        [str(CHROMIUM), *flags, f"{address}?play={story}"],
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
    return told.removeprefix("played ").strip()


def test_two_panes_converge_after_one_was_offline(tmp_path: Path) -> None:
    told = played("offline", tmp_path)
    assert told.startswith("converged: laptop offline buy oat milk")
    assert told.count("buy oat milk") == told.count("call Ada") == 2


def test_what_was_written_offline_survives_a_reload(tmp_path: Path) -> None:
    assert played("reload", tmp_path).startswith("2 waited, 2 seen, 2 sent, 0 left: laptop")


def test_one_tab_syncs_for_two(tmp_path: Path) -> None:
    told = played("tabs", tmp_path)
    assert told.startswith("other_tab, from the first tab, took over, 1 sent: laptop")
