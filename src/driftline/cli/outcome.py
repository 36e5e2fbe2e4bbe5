"""What a command ends with: exit codes, the one line of an error, Ctrl-C and a closed pipe."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from types import FrameType
from typing import Any, NoReturn

import click

from driftline.errors import Cancelled, DriftlineError, StorageError
from driftline.extras import explain

SAME = 0
DIFFERENT = 1
ERROR = 2
CANCELLED = 130

_COMPLETION_VARIABLE = "_DRIFTLINE_COMPLETE"
_DEBUG_VARIABLE = "DRIFTLINE_DEBUG"


def run_and_exit(command: click.Command, arguments: list[str]) -> NoReturn:
    """Run a click command and leave the process with the right exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    _make_stdout_whole()
    code = run(command, arguments)
    try:
        sys.stdout.flush()
    except OSError as error:
        # What a failed command could not print any more has been told already.
        code = code if code == ERROR else report(error, _wanted_error_format(arguments)) or code
        _point_stdout_to_nowhere()
    sys.exit(code)


def run(command: click.Command, arguments: list[str]) -> int:
    """Run a click command; its exit code. Errors are written to stderr in one line."""
    error_format = _wanted_error_format(arguments)
    try:
        if _COMPLETION_VARIABLE in os.environ:
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
    if isinstance(error, BrokenPipeError):
        _point_stdout_to_nowhere()
        return SAME
    known = _as_driftline_error(error)
    if error_format == "json":
        line = json.dumps({"error": known.to_dict()}, ensure_ascii=False, default=str)
    else:
        line = f"error[{known.code}]: {known.message}"
    print(" ".join(line.splitlines()), file=sys.stderr)
    return known.exit_code


def _as_driftline_error(error: BaseException) -> DriftlineError:
    if isinstance(error, DriftlineError):
        return error
    if isinstance(error, click.Abort):
        return Cancelled("cancelled")
    if isinstance(error, click.UsageError):
        return DriftlineError(_usage_message(error), code="usage")
    if isinstance(error, click.ClickException):
        return DriftlineError(error.format_message(), code="usage")
    if isinstance(error, ModuleNotFoundError) and (missing := explain(error)) is not None:
        return missing
    if isinstance(error, MemoryError):
        return StorageError("not enough memory: set a lower --memory, or use --engine spark", code="out_of_memory")
    if isinstance(error, OSError):
        from driftline.files import explain_os_error

        return explain_os_error(error, error.filename or "a file")
    return DriftlineError(
        f"{type(error).__name__}: {error} (a fault of driftline; {_DEBUG_VARIABLE}=1 shows where)", code="internal"
    )


def _usage_message(error: click.UsageError) -> str:
    hint = f" (see: {error.ctx.command_path} --help)" if error.ctx is not None else ""
    return error.format_message() + hint


def _wanted_error_format(arguments: list[str]) -> str:
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


def _make_stdout_whole() -> None:
    """Under `python -u` stdout is a raw file, which may take a part of the bytes and drop the rest without a word."""
    from driftline.files import UnbufferedWriter

    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.RawIOBase):
        sys.stdout.flush()
        encoding, errors = sys.stdout.encoding, sys.stdout.errors
        sys.stdout.detach()  # type: ignore[union-attr]
        sys.stdout = io.TextIOWrapper(UnbufferedWriter(raw), encoding=encoding, errors=errors, write_through=True)


def _point_stdout_to_nowhere() -> None:
    # The reader went away (`driftline … | head`): keep Python's exit-time flush from complaining.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
