"""Processes that tests start: they can be interrupted however the tests themselves were started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

# Long enough for the slowest child on a machine with ten times the work it can do; only a child that hangs meets it.
PATIENCE = 600


def heed_signals() -> None:
    """Let children be interrupted although this process ignores it, as `nohup`, cron and `make test &` make it do.

    An ignored signal stays ignored in a new program, a handled one does not: a handler that does nothing is the same
    for this process, and the default for its children.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def run_process(command: Any, *, timeout: float = PATIENCE, **options: Any) -> subprocess.CompletedProcess[Any]:
    """A process from its start to its end."""
    return subprocess.run(command, timeout=timeout, check=options.pop("check", False), **options)


def start_process(command: Any, **options: Any) -> subprocess.Popen[Any]:
    """A process that the caller ends."""
    return subprocess.Popen(command, **options)


def wait_until(holds: Callable[[], object], what: str = "what was waited for", seconds: float = PATIENCE) -> None:
    """Ask again and again until something is so; fail only where it never is."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def on_this_machine(seconds: float) -> float:
    """A time that is promised for an idle machine, stretched by what else this one has to do."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
