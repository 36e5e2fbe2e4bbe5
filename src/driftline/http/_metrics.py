"""Prometheus counters of all worker processes: each has a memory-mapped file, a scrape adds them up."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

ROUTES = (
    *("push", "pull", "feed", "snapshot", "flush", "schema", "sync-rules"),
    *("compare", "index", "docs", "openapi", "health", "ready", "metrics", "other"),
)
STATUSES = (200, 400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 422, 429, 500, 503)
LATENCY_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TIMED_ROUTES = ("push", "pull", "compare")

_PLAIN = {
    "driftline_deltas_accepted_total": "Deltas acknowledged, known ones included.",
    "driftline_deltas_applied_total": "Deltas that were new.",
    "driftline_deltas_pulled_total": "Deltas sent to clients.",
    "driftline_received_bytes_total": "Bytes of push bodies.",
    "driftline_sent_bytes_total": "Bytes of pull answers.",
    "driftline_feed_events_total": "Events sent to feeds.",
    "driftline_flushes_total": "Flushes to the lake.",
    "driftline_flushed_deltas_total": "Deltas written to the lake.",
    "driftline_flush_errors_total": "Flushes that failed and will be tried again.",
    "driftline_set_back_total": "Times that the log, or the lake, was found set back.",
    "driftline_set_aside_deltas_total": "Deltas below the lake's horizon, kept aside.",
    "driftline_compactions_total": "Tables folded into a new snapshot.",
    "driftline_snapshot_pages_total": "Pages of snapshots sent to clients.",
    "driftline_lake_damaged_total": "Snapshots that a missing or damaged file of the lake prevented.",
    "driftline_imported_deltas_total": "Deltas taken in from the lake.",
}
_WORD = struct.Struct("<d")


def _request_series() -> Iterable[str]:
    for route in ROUTES:
        for status in STATUSES:
            yield f'driftline_requests_total{{route="{route}",status="{status}"}}'


def _latency_series() -> Iterable[str]:
    for route in TIMED_ROUTES:
        for bound in (*LATENCY_BOUNDS, "+Inf"):
            yield f'driftline_request_seconds_bucket{{route="{route}",le="{bound}"}}'
        yield f'driftline_request_seconds_sum{{route="{route}"}}'
        yield f'driftline_request_seconds_count{{route="{route}"}}'


SERIES = (*_PLAIN, *_request_series(), *_latency_series())
_SLOT = {name: position * _WORD.size for position, name in enumerate(SERIES)}
_SIZE = len(SERIES) * _WORD.size


class Metrics:
    """The counters of this process, in a file that the other workers can read."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        with open(directory / f"{os.getpid()}.counters", "w+b") as file:
            file.truncate(_SIZE)
            self._memory = mmap.mmap(file.fileno(), _SIZE)

    def add(self, name: str, amount: float = 1) -> None:
        """Increase a counter."""
        slot = _SLOT[name]
        _WORD.pack_into(self._memory, slot, _WORD.unpack_from(self._memory, slot)[0] + amount)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a finished request."""
        known = status if status in STATUSES else 200 if status < 400 else 400 if status < 500 else 500
        self.add(f'driftline_requests_total{{route="{route}",status="{known}"}}')
        if route in TIMED_ROUTES:
            for bound in LATENCY_BOUNDS:
                if seconds <= bound:
                    self.add(f'driftline_request_seconds_bucket{{route="{route}",le="{bound}"}}')
            self.add(f'driftline_request_seconds_bucket{{route="{route}",le="+Inf"}}')
            self.add(f'driftline_request_seconds_sum{{route="{route}"}}', seconds)
            self.add(f'driftline_request_seconds_count{{route="{route}"}}')

    def totals(self) -> dict[str, float]:
        """Every counter, added up over all processes."""
        sums = [0.0] * len(SERIES)
        for path in self._directory.glob("*.counters"):
            data = path.read_bytes()
            if len(data) == _SIZE:
                sums = [total + value for total, (value,) in zip(sums, _WORD.iter_unpack(data), strict=True)]
        return dict(zip(SERIES, sums, strict=True))

    def close(self) -> None:
        """Release the memory; the file stays for the other workers."""
        self._memory.close()


def clear(directory: Path) -> None:
    """Remove the counts of an earlier server; called before workers start."""
    for path in directory.glob("*.counters"):
        path.unlink(missing_ok=True)


def prometheus_text(totals: Mapping[str, float], gauges: Mapping[str, tuple[str, float]]) -> str:
    """The Prometheus text format; request series without a count are left out."""
    lines = []
    for name, text in _PLAIN.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} counter", f"{name} {totals[name]:.17g}"]
    lines += ["# HELP driftline_requests_total Finished requests.", "# TYPE driftline_requests_total counter"]
    lines += [f"{name} {totals[name]:.17g}" for name in _request_series() if totals[name]]
    lines += ["# HELP driftline_request_seconds Time to answer.", "# TYPE driftline_request_seconds histogram"]
    lines += [f"{name} {totals[name]:.17g}" for name in _latency_series()]
    for name, (text, value) in gauges.items():
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name} {value:.17g}"]
    return "\n".join(lines) + "\n"
