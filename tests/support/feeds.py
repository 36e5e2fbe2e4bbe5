"""The live feed of a gateway, read event by event."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from support.gateways import GATEWAY, Client

FEED = f"/sync/{GATEWAY}/feed"


class Feed:
    """An open feed, read event by event."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()

    def block(self) -> dict[str, Any]:
        """The fields of the next block, comments as `comment`."""
        fields: dict[str, Any] = {}
        for line in self._lines:
            if not line:
                return fields
            name, _, value = line.partition(":")
            fields[name or "comment"] = value.strip()
        raise EOFError

    def event(self) -> dict[str, Any]:
        """The next event with data."""
        while "data" not in (fields := self.block()):
            pass
        return {**fields, "data": json.loads(fields["data"])}


@contextmanager
def feed(client: Client, headers: dict[str, str] | None = None, **query: str) -> Iterator[Feed]:
    with client.http.stream("GET", FEED, params=query, headers=headers or {}) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Feed(response)
