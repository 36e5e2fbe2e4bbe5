"""More room on Python's stack for as long as a deep payload is compared, and not a moment longer."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_wanted: list[int] = []
_before = 0


@contextmanager
def room_on_the_stack(frames: int) -> Iterator[None]:
    """Raise the recursion limit, which is the whole process's, until the last user is done."""
    global _before
    with _lock:
        if not _wanted:
            _before = sys.getrecursionlimit()
        _wanted.append(frames)
        sys.setrecursionlimit(max(_before, *_wanted))
    try:
        yield
    finally:
        with _lock:
            _wanted.remove(frames)
            sys.setrecursionlimit(max(_before, *_wanted) if _wanted else _before)
