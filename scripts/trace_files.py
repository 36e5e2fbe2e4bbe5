"""Counts the source files that a command passes: those of which it calls a function, imports left aside.

    python scripts/trace_files.py diff before.csv after.csv --key id

The last line of standard error is the list of files as JSON, in the order in which they are first called.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import driftline
from driftline.cli.main import main

PACKAGE = str(Path(driftline.__file__).parent) + os.sep
_passed: dict[str, None] = {}  # ordered
_exit = os._exit


def _profile(frame: FrameType, event: str, _: Any) -> None:
    code = frame.f_code
    if event != "call" or not code.co_filename.startswith(PACKAGE) or not code.co_filename.endswith(".py"):
        return
    if code.co_filename not in _passed and not code.co_name.startswith("<") and not _importing(frame.f_back):
        _passed[code.co_filename] = None


def _importing(frame: FrameType | None) -> bool:
    """Whether a call is made while a module of the package is executed: decorators, tables, class bodies."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(PACKAGE):
            return True
        frame = frame.f_back
    return False


def _report() -> None:
    sys.setprofile(None)
    threading.setprofile(None)
    print(json.dumps([name.removeprefix(PACKAGE) for name in _passed]), file=sys.stderr, flush=True)


def _report_and_exit(status: int) -> NoReturn:
    _report()
    _exit(status)


if __name__ == "__main__":
    os._exit = _report_and_exit  # the command line leaves this way once its outputs are written
    threading.setprofile(_profile)
    sys.setprofile(_profile)
    try:
        main()
    finally:
        _report()
