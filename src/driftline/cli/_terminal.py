"""Consoles, progress bars with rate and ETA; bars are drawn on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, TextIO, cast

from driftline.core import Progress, Tracker

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar, TaskID
    from rich.table import Table

QUIET_SECONDS = 2.0  # short work draws nothing
_SHOWN_PHASES = 6  # with more of them, those that are done are hidden


def stderr_console() -> Console:
    """A rich console on stderr; colours only on a terminal."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def stdout_console() -> Console:
    """A rich console on stdout, for tables that are the answer."""
    from rich.console import Console

    return Console(highlight=False)


def wide_console() -> Console:
    """The same; where no terminal sets its width, wide enough for any table."""
    console = stdout_console()
    if not sys.stdout.isatty():
        console.width = 160
    return console


def plain_table(
    names: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = (), whole: Sequence[str] = ()
) -> Table:
    """A table without lines; columns on the `right` hold numbers, which like those of `whole` are never broken.

    Cells are text and no markup: names come from source code, files and databases.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for name in names:
        is_whole = name in right or name in whole
        table.add_column(name, justify="right" if name in right else "left", overflow="fold", no_wrap=is_whole)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return table


def say(message: str) -> None:
    """One line on stderr, only on a terminal."""
    if sys.stderr.isatty():
        stderr_console().print(message, style="dim")


@contextmanager
def progress_bar(*, show: bool | None = None) -> Iterator[Tracker]:
    """A tracker whose phases are drawn on stderr once they last longer than two seconds.

    `show` forces the bar on or off; by default it is drawn on a terminal only. Bars end before words: whatever is
    written to stdout inside the block first removes the bar from the screen, and none is drawn after it.
    """
    if not (sys.stderr.isatty() if show is None else show):
        yield Tracker()
        return
    drawing, stdout = Bars(), sys.stdout
    if stdout.isatty():
        sys.stdout = cast(TextIO, _AnswerStream(stdout, drawing))
    try:
        yield Tracker(drawing.update)
    finally:
        sys.stdout = stdout
        drawing.stop()


class _AnswerStream:
    """A stream that ends a drawing before the first write; `buffer` is the same for bytes."""

    def __init__(self, stream: Any, drawing: Bars) -> None:
        self._stream = stream
        self._drawing = drawing

    def write(self, content: Any) -> int:
        """Write text or bytes, on a screen without bars."""
        self._drawing.stop()
        written: int = self._stream.write(content)
        return written

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> _AnswerStream:
        """The stream below, for bytes."""
        return _AnswerStream(self._stream.buffer, self._drawing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Bars:
    """Turns progress records into rich bars once the work is worth them, until it is stopped."""

    def __init__(self) -> None:
        self._bar: Bar | None = None
        self._tasks: dict[str, TaskID] = {}
        self._started = time.monotonic()
        self._stopped = False
        self._lock = Lock()  # records come from any thread

    def update(self, record: Progress) -> None:
        """Draw a record, unless the work started just now or the answer is being written."""
        self._draw(record.phase, record.phase, record)

    def _draw(self, name: str, words: str, record: Progress) -> None:
        with self._lock:
            bar = self._drawn()
            if bar is None or self._stopped:
                return
            if name not in self._tasks:
                self._tasks[name] = bar.add_task(words, total=record.total, rate="", eta="")
            bar.update(
                self._tasks[name],
                description=words,
                completed=record.done,
                total=record.total,
                rate=rate_text(record),
                eta=eta_text(record),
                visible=not record.finished or len(self._tasks) <= _SHOWN_PHASES,
            )

    def _drawn(self) -> Bar | None:
        """The bars, once the work has lasted long enough."""
        if self._bar is None and not self._stopped and time.monotonic() - self._started >= QUIET_SECONDS:
            from rich.progress import BarColumn, Progress as Bar, TaskProgressColumn, TextColumn

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[rate]}"),
                TextColumn("{task.fields[eta]}"),
                console=stderr_console(),
                transient=True,
                redirect_stdout=False,  # it would send the answer to stderr
            )
            self._bar.start()
        return self._bar

    def stop(self) -> None:
        """Leave the terminal as it was, for good."""
        with self._lock:
            self._stopped = True
            if self._bar is not None:
                self._bar.stop()


def rate_text(record: Progress) -> str:
    if record.rate is None:
        return ""
    if record.unit == "bytes":
        return f"{record.rate / 1e6:,.0f} MB/s"
    return f"{record.rate:,.0f} {record.unit}/s"


def eta_text(record: Progress) -> str:
    if record.finished:
        return "done"
    if record.eta is None:
        return ""
    minutes, seconds = divmod(round(record.eta), 60)
    return f"{minutes}:{seconds:02d} left"
