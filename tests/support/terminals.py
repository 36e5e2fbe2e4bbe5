"""Commands on a real terminal: a pseudo-terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

from support.processes import start_process

ROOT = Path(__file__).parents[2]


def on_terminal(arguments: list[str], columns: int, **environment: str) -> tuple[int, str]:
    """Exit code and screen of a run whose stdout and stderr are a terminal."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    settings = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    settings |= {"PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color", **environment}
    command = [sys.executable, "-m", "driftline", *arguments]
    with start_process(command, stdin=subprocess.DEVNULL, stdout=side, stderr=side, env=settings) as process:
        os.close(side)
        screen = b""
        while True:
            try:
                piece = os.read(main, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            screen += piece
    os.close(main)
    return process.returncode, screen.decode()


def plain(screen: str) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line).rstrip() for line in screen.splitlines()]
