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


def on_terminal(
    arguments: list[str], columns: int, *, stdin: int = subprocess.DEVNULL, **environment: str
) -> tuple[int, str]:
    """Exit code and all output of a run whose stdout and stderr are a terminal."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    settings = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    settings |= {"PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color", **environment}
    command = [sys.executable, "-m", "driftline", *arguments]
    with start_process(command, stdin=stdin, stdout=side, stderr=side, env=settings) as process:
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


_SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([a-zA-Z])")


def left_on_screen(output: str, columns: int) -> list[str]:
    """The lines that a terminal shows after all output: text is written over what is there, and erased.

    >>> left_on_screen("bar\\r\\n50%\\r\\x1b[2K\\x1b[1A\\x1b[2Kanswer", 80)
    ['answer', '']
    """
    lines: list[list[str]] = [[]]
    row = column = at = 0
    while at < len(output):
        sequence = _SEQUENCE.match(output, at)
        if sequence is not None:
            count = int(sequence[1]) if sequence[1].isdigit() else 1
            if sequence[2] == "A":
                row = max(0, row - count)
            elif sequence[2] == "K":
                assert sequence[1] == "2", "only whole lines are erased"
                lines[row] = []
            else:
                assert sequence[2] in "mhl", f"not known to this terminal: {sequence[0]!r}"
            at = sequence.end()
            continue
        character, at = output[at], at + 1
        if character == "\r":
            column = 0
        elif character == "\n":
            row += 1
        else:
            if column == columns:
                row, column = row + 1, 0
            lines += [[] for _ in range(row + 1 - len(lines))]
            lines[row] += [" "] * (column + 1 - len(lines[row]))
            lines[row][column] = character
            column += 1
        lines += [[] for _ in range(row + 1 - len(lines))]
    return ["".join(line).rstrip() for line in lines]
