"""The console's templates and how they show sizes and times."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache

from jinja2 import Environment

from driftline.sinks._pages import environment

_SHORT = 24  # characters


def render(template: str, **shown: object) -> str:
    """A template of this folder, filled in."""
    return _templates().get_template(template).render(**shown)


def compile_templates() -> None:
    """Make every template ready."""
    templates = _templates()
    for name in templates.list_templates():
        templates.get_template(name)


@cache
def _templates() -> Environment:
    templates = environment("driftline.web.console")
    templates.filters.update(bytes=byte_size, timestamp=timestamp, seconds=seconds)
    templates.tests["short"] = is_short
    return templates


def is_short(value: object) -> bool:
    """Whether a cell stands on one line: a date or a word is not broken."""
    return len(str(value)) <= _SHORT


def byte_size(count: int) -> str:
    """A size in the unit that reads best."""
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def timestamp(value: str) -> str:
    """A time as a date and a time of day."""
    return datetime.fromisoformat(value).astimezone(UTC).strftime("%-d %b %Y %H:%M")


def seconds(value: float) -> str:
    """A duration, with as many digits as matter."""
    return f"{value:.1f} s" if value < 100 else f"{int(value // 60)} min {int(value % 60)} s"
