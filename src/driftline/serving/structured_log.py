"""Logs on stderr: one JSON object a line, or words where a person watches. Tokens and secrets never get here."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime


class JsonLines(logging.Formatter):
    """A record as one line of JSON, with what was given as `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class Words(logging.Formatter):
    """The same for a terminal: the time of day, the event, and its fields.

    >>> told = {"msg": "listening", "levelno": logging.INFO, "created": 0, "fields": {"port": 8787}}
    >>> record = logging.makeLogRecord(told)
    >>> Words().format(record).partition("  ")[2]
    'listening  port=8787'
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        fields = "".join(f"  {name}={value}" for name, value in getattr(record, "fields", {}).items())
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{time}  {level}{record.getMessage()}{fields}{trace}"


def log_to_stderr(level: str = "info") -> None:
    """Send driftline's and the server's records to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Words() if sys.stderr.isatty() else JsonLines())
    for name in ("driftline", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level.upper() if name == "driftline" else logging.WARNING)
