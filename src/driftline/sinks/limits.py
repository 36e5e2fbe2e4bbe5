"""At most so many events of each kind; order and counts stay those of the whole diff."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator

_ALWAYS = ("schema", "stats")


def limit_events(lines: Iterable[bytes], limit: int) -> Iterator[bytes]:
    """Pass on the first `limit` events of each kind; if any was held back, the stats say `truncated`.

    >>> events = [b'{"type":"added","row":{}}\\n', b'{"type":"added","row":{}}\\n', b'{"type":"stats"}\\n']
    >>> list(limit_events(events, 1))
    [b'{"type":"added","row":{}}\\n', b'{"type":"stats","truncated":true}\\n']
    """
    seen: Counter[str] = Counter()
    for line in lines:
        kind = kind_of(line)
        seen[kind] += 1
        if kind in _ALWAYS:
            truncated = any(count > limit for name, count in seen.items() if name not in _ALWAYS)
            yield _marked(line) if kind == "stats" and truncated else line
        elif seen[kind] <= limit:
            yield line


def kind_of(line: bytes) -> str:
    """The type of an event, which is always its first member."""
    return line.split(b'"', 4)[3].decode()


def _marked(line: bytes) -> bytes:
    event = json.loads(line)
    event["truncated"] = True
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
