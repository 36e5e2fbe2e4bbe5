"""One console and one browser for all tests of a file's worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from support.browser import CHROMIUM
from support.console_folder import copy_tables
from support.console_server import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("tables")
    copy_tables(folder)
    (folder.parent / "secret.csv").write_text("id\n1\n")
    (folder / "link.csv").symlink_to(folder.parent / "secret.csv")
    running = Server(folder)
    yield running
    running.close()


@pytest.fixture(scope="module")  # while it runs, its loop is in the way of tests that run one of their own
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as tool:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        running = tool.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield running
        running.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page of its own; errors on its console, and so violations of the policy, fail the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    shown = context.new_page()
    complaints: list[str] = []
    shown.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    shown.on("pageerror", lambda error: complaints.append(str(error)))
    yield shown
    context.close()
    assert complaints == []
