"""The exit of a command: its code, the one line of an error, Ctrl-C, a closed pipe and a full disk."""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import select
import signal
import sys
import threading
from types import FrameType
from typing import Any, NoReturn, cast

import click

from driftline.core import missing_extra
from driftline.errors import Cancelled, DriftlineError, InputError, StorageError

SAME = 0
DIFFERENT = 1
ERROR = 2
CANCELLED = 130
READER_GONE = 141  # what a shell reports for a command that SIGPIPE ended

_COMPLETION_VARIABLE = "_DRIFTLINE_COMPLETE"
_DEBUG_VARIABLE = "DRIFTLINE_DEBUG"


def run_and_exit(command: click.Command, arguments: list[str]) -> NoReturn:
    """Run a click command and leave the process with the right exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    _make_stdout_complete()
    _fill_closed_streams()
    code = run(command, arguments)
    try:
        sys.stdout.flush()
    except OSError as error:
        # The error of a failed command has been reported already.
        code = code if code == ERROR else report(error, _requested_error_format(arguments)) or code
    _let_go_of_stdout()
    _leave(code)


def _leave(code: int) -> NoReturn:
    """End the process without taking Arrow, Polars and all their memory apart first, which takes a while."""
    if threading.active_count() > 1 or "pyspark" in sys.modules:
        sys.exit(code)  # threads still run, or look after another process
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(code)


def run(command: click.Command, arguments: list[str]) -> int:
    """Run a click command; its exit code. Errors are written to stderr in one line."""
    error_format = _requested_error_format(arguments)
    try:
        if _COMPLETION_VARIABLE in os.environ:
            from driftline.cli._group import offer_files

            offer_files()
            command.main(args=arguments, prog_name="driftline")
        # Not `command.main`: it writes a line of its own when the user presses Ctrl-C.
        with command.make_context("driftline", list(arguments)) as context:
            result = command.invoke(context)
    except Exception as error:
        if os.environ.get(_DEBUG_VARIABLE):
            raise
        return report(error, error_format)
    except KeyboardInterrupt:
        return report(Cancelled("cancelled"), error_format)
    return result if isinstance(result, int) else SAME


def report(error: BaseException, error_format: str) -> int:
    """Write one line about the error; the exit code that goes with it."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        print(error.format_message(), file=sys.stderr)
        return ERROR
    if isinstance(error, BrokenPipeError) and _reader_is_gone():
        return READER_GONE
    known = _as_driftline_error(error)
    if error_format == "json":
        line = json.dumps({"error": known.to_dict()}, ensure_ascii=False, default=str)
    else:
        line = f"error[{known.code}]: {known.message}"
    with contextlib.suppress(OSError):  # the exit code says it too
        print(" ".join(line.splitlines()), file=sys.stderr, flush=True)
    return known.exit_code


def _as_driftline_error(error: BaseException) -> DriftlineError:
    if isinstance(error, DriftlineError):
        return error
    if isinstance(error, click.Abort):
        return Cancelled("cancelled")
    if isinstance(error, click.UsageError):
        hint = f" (see: {error.ctx.command_path} --help)" if error.ctx is not None else ""
        return DriftlineError(error.format_message() + hint, code="usage")
    if isinstance(error, click.ClickException):
        return DriftlineError(error.format_message(), code="usage")
    if isinstance(error, ModuleNotFoundError) and (missing := missing_extra(error)) is not None:
        return missing
    if isinstance(error, MemoryError):
        return StorageError("not enough memory: set a lower --memory, or use --engine spark", code="out_of_memory")
    if isinstance(error, OSError):
        from driftline.core import STANDARD_OUTPUT, explain_os_error

        return explain_os_error(error, error.filename or STANDARD_OUTPUT)
    return DriftlineError(
        f"{type(error).__name__}: {error} (a fault of driftline; {_DEBUG_VARIABLE}=1 shows where)", code="internal"
    )


def _requested_error_format(arguments: list[str]) -> str:
    """Read before parsing, because a usage error has no parsed options."""
    for position, word in enumerate(arguments):
        if word == "--error-format" and position + 1 < len(arguments):
            return arguments[position + 1]
        if word.startswith("--error-format="):
            return word.partition("=")[2]
    return "text"


def _terminate(number: int, frame: FrameType | None) -> Any:
    # SIGTERM unwinds like Ctrl-C, so that temporary files go and the JVM ends.
    raise KeyboardInterrupt


def _make_stdout_complete() -> None:
    """Under `python -u` stdout is a raw file, which may take a part of the bytes and drop the rest without a word."""
    from driftline.core import UnbufferedWriter

    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.RawIOBase):
        sys.stdout.flush()
        encoding, errors = sys.stdout.encoding, sys.stdout.errors
        sys.stdout.detach()  # type: ignore[union-attr]
        sys.stdout = io.TextIOWrapper(UnbufferedWriter(raw), encoding=encoding, errors=errors, write_through=True)


class _ClosedOutput(io.TextIOBase):
    """Standard output that the caller closed: a write is an error, so that no result is lost in silence."""

    @property
    def buffer(self) -> Any:
        """Bytes have no better place to go."""
        return self.write(b"")

    def write(self, text: object) -> int:
        raise StorageError("standard output is closed: send it somewhere, or name a file", code="output_closed")


class _ClosedInput(io.TextIOBase):
    """Standard input where the caller closed it."""

    @property
    def buffer(self) -> Any:
        """There is nothing to read."""
        raise InputError("standard input is closed: send something into it, or name a file", code="input_closed")


def _fill_closed_streams() -> None:
    """Keep the numbers of closed standard streams from going to files that are opened later."""
    for stream, flags in ((sys.stdin, os.O_RDONLY), (sys.stdout, os.O_WRONLY), (sys.stderr, os.O_WRONLY)):
        if stream is None:
            os.open(os.devnull, flags)  # the lowest number that is free
    if sys.stdin is None:
        sys.stdin = cast(Any, _ClosedInput())
    if sys.stdout is None:
        sys.stdout = cast(Any, _ClosedOutput())
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives


def _reader_is_gone() -> bool:
    """Whether a broken pipe is standard output: a connection to a server may break too."""
    with contextlib.suppress(OSError, ValueError):
        watch = select.poll()
        watch.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in watch.poll(0))
    return False


def _let_go_of_stdout() -> None:
    # What could not be written would be tried again, and complained about, when the interpreter ends.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
