"""Errors that cross from a task to the driver: as data in its rows, so that the user sees one clear line."""

from __future__ import annotations

import base64
import pickle

from driftline.errors import DriftlineError


def error_text(error: DriftlineError) -> str:
    """An error as a string that travels in a column."""
    return base64.b64encode(pickle.dumps(error)).decode()


def raise_task_error(text: str | None) -> None:
    """Raise the error that a task sent, if it sent one."""
    if text is not None:
        raise pickle.loads(base64.b64decode(text))  # noqa: S301 - made by our own task
