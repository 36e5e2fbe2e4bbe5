"""A small HTTP client of the gateway, for scripts: pushes, pulls, snapshots and the feed, with retries."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import select
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driftline.core import JsonObject
from driftline.deltas import SAFE_INTEGER, RowDelta
from driftline.errors import GatewayError, OptionError

Types = Mapping[str, Mapping[str, str]]  # by table and column

_RETRIED = (429, 503)
_TIMEOUT_SECONDS = 60
_PIECE = 64 << 10  # bytes of a body between two looks for an answer
_SILENCE_SECONDS = 45  # a feed sends a heartbeat every 15


@dataclass(frozen=True, slots=True)
class Pulled:
    """A page: its deltas, and the cursor after them."""

    deltas: list[RowDelta]
    cursor: str
    has_more: bool
    server_hlc: int
    server_time: int | None = None  # the gateway's wall clock, None from one of an earlier version
    types: Types | None = None  # of columns with exact numbers


@dataclass(frozen=True, slots=True)
class SnapshotPage:
    """Rows of a snapshot as in its lines, the next page, and the cursor after the last page."""

    rows: list[JsonObject]
    next: str | None
    cursor: str
    server_hlc: int
    server_time: int | None = None
    types: Types | None = None


def read_json(data: bytes | str) -> Any:
    """The content of a JSON text; an integer that is not exact in JavaScript is a double here too."""
    return json.loads(data, parse_int=_number)


def _number(token: str) -> int | float:
    value = int(token)
    return value if -SAFE_INTEGER <= value <= SAFE_INTEGER else float(value)


class _Attentive(http.client.HTTPConnection):
    """Sends a body piece by piece, and stops when the server has responded: it does not read the rest."""

    def send(self, data: Any) -> None:
        """Send the head of a request, or its body."""
        if not isinstance(data, bytes) or len(data) <= _PIECE:
            super().send(data)
            return
        # What is readable on an encrypted connection may be the protocol's own.
        is_plain = not isinstance(self.sock, ssl.SSLSocket)
        # The answer may have arrived before the connection was closed.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for start in range(0, len(data), _PIECE):
                if start and is_plain and select.select([self.sock], [], [], 0)[0]:
                    return
                super().send(data[start : start + _PIECE])


class _AttentiveTls(_Attentive, http.client.HTTPSConnection):
    """The same over TLS."""


class _Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Attentive, request)

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_AttentiveTls, request)


_opener = urllib.request.build_opener(_Handler)


class GatewayClient:
    """One client of one gateway; a push without a response is sent again, which changes nothing twice."""

    def __init__(
        self,
        url: str,
        gateway: str,
        client_id: str,
        *,
        token: str | Callable[[], str] | None = None,
        patience: float = 30.0,
        parameters: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise OptionError(f"{url} is not an http or https address", code="invalid_url")
        self._root = f"{url.rstrip('/')}/v1/sync/{urllib.parse.quote(gateway, safe='')}"
        self._client_id = client_id
        self._token = token
        self._parameters = {f"p.{name}": text for name, text in (parameters or {}).items()}
        self._patience = patience
        self._sleep = sleep

    def push(self, deltas: Sequence[RowDelta], *, last_seen_hlc: int | None = None) -> JsonObject:
        """Push one batch; the gateway's response, with its timestamps as integers."""
        body: JsonObject = {"clientId": self._client_id, "deltas": [delta.to_wire() for delta in deltas]}
        if last_seen_hlc is not None:
            body["lastSeenHlc"] = str(last_seen_hlc)
        answer: JsonObject = self._request("/push", json.dumps(body, ensure_ascii=False).encode())
        # Only the timestamps of the protocol: a user's value may have a member of that name too.
        applied = [{**delta, "hlc": int(delta["hlc"])} for delta in answer["deltas"]]
        return {**answer, "serverHlc": int(answer["serverHlc"]), "deltas": applied}

    def pull(self, *, cursor: str | None = None, since: int = 0, limit: int = 1000) -> Pulled:
        """One page after a cursor, or of everything with an hlc above `since`."""
        start = {"since": str(since)} if cursor is None else {"cursor": cursor}
        answer = self._request(self._path("/pull", limit=limit, **start))
        deltas = [RowDelta.from_wire(delta) for delta in answer["deltas"]]
        members = (int(answer["serverHlc"]), answer.get("serverTime"), answer.get("types"))
        return Pulled(deltas, answer["cursor"], answer["hasMore"], *members)

    def pull_all(self, *, cursor: str | None = None, since: int = 0, limit: int = 1000) -> Iterator[Pulled]:
        """Every page up to the end of the log; the last one may be empty and has the newest cursor."""
        has_more = True
        while has_more:
            page = self.pull(cursor=cursor, since=since, limit=limit)
            yield page
            cursor, has_more = page.cursor, page.has_more

    def snapshot(self, *, limit: int = 5000) -> Iterator[SnapshotPage]:
        """The state of all rows, page by page; each is complete."""
        start: JsonObject = {"limit": limit}
        while start:
            page = self._request(self._path("/snapshot", **start), read=_snapshot_page)
            yield page
            start = {"page": page.next} if page.next is not None else {}

    def feed(self, cursor: str) -> FeedReader:
        """Events from a cursor on, as they arrive."""
        return FeedReader(self._root + self._path("/feed", cursor=cursor), self._headers())

    def _path(self, route: str, **query: Any) -> str:
        return f"{route}?{urllib.parse.urlencode({'clientId': self._client_id, **self._parameters, **query})}"

    def _headers(self) -> dict[str, str]:
        token = self._token() if callable(self._token) else self._token
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _request(self, path: str, body: bytes | None = None, read: Callable[[bytes], Any] = read_json) -> Any:
        deadline = time.monotonic() + self._patience
        pause = 0.2
        while True:
            try:
                return self._once(path, body, read)
            except _Later as later:
                pause = min(pause * 2, 5.0) if later.after is None else later.after
                if time.monotonic() + pause > deadline:
                    raise later.error from later
                self._sleep(pause)

    def _once(self, path: str, body: bytes | None, read: Callable[[bytes], Any]) -> Any:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip", **self._headers()}
        request = urllib.request.Request(self._root + path, body, headers)  # noqa: S310 - checked in the constructor
        try:
            with _opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
                data = response.read()
                return read(gzip.decompress(data) if response.headers.get("Content-Encoding") == "gzip" else data)
        except urllib.error.HTTPError as error:
            with error:
                refusal = _refusal(error.code, error.read(1 << 16))
            if error.code not in _RETRIED:
                raise refusal from error
            text = error.headers.get("Retry-After") or ""
            raise _Later(refusal, float(text) if text.isdecimal() else None) from error
        except (urllib.error.URLError, http.client.HTTPException, OSError, EOFError) as error:
            raise _Later(_unreachable(error), None) from error
        except ValueError as error:  # half a response: requested again
            raise _Later(GatewayError(f"the answer is not whole: {error}", code="unexpected_answer"), None) from error


class FeedReader:
    """An open feed: pairs of an event's name and its data; `close` ends it, also from another thread."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urllib.parse.urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.netloc, timeout=_SILENCE_SECONDS)
        self._target = f"{parts.path}?{parts.query}"
        self._headers = {"Accept": "text/event-stream", **headers}

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        try:
            self._connection.request("GET", self._target, headers=self._headers)
            response = self._connection.getresponse()
            if response.status != 200:
                raise _refusal(response.status, response.read(1 << 16))
            yield from _events(response)
        except (http.client.HTTPException, OSError, ValueError) as error:
            raise _unreachable(error) from error
        finally:
            self._connection.close()

    def close(self) -> None:
        """Shut the connection down, so that a blocked reader wakes up."""
        held = self._connection.sock
        if held is not None:
            with contextlib.suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)


def _events(lines: Iterable[bytes]) -> Iterator[tuple[str, Any]]:
    """The events of a stream, without one that is cut off."""
    fields: dict[str, str] = {}
    for line in lines:
        text = line.decode("utf-8").rstrip("\r\n")
        if text:
            name, _, value = text.partition(":")
            fields[name] = value.removeprefix(" ")
        else:
            if "data" in fields:
                yield fields.get("event", "message"), read_json(fields["data"])
            fields = {}


def _snapshot_page(data: bytes) -> SnapshotPage:
    first, *rows, last = [read_json(line) for line in data.splitlines()]
    if "page" not in first or "end" not in last:
        raise ValueError("a snapshot page without its end")
    head, end = first["page"], last["end"]
    members = (int(head["serverHlc"]), head.get("serverTime"), head.get("types"))
    return SnapshotPage(rows, end["next"], end["cursor"], *members)


class _Later(Exception):  # noqa: N818 - a request to try again
    def __init__(self, error: GatewayError, after: float | None) -> None:
        super().__init__(error.message)
        self.error = error
        self.after = after


def _refusal(status: int, answer: bytes) -> GatewayError:
    try:
        body = json.loads(answer)
        members = {name: value for name, value in body.items() if name not in ("error", "code", "requestId", "status")}
        return GatewayError(
            body["error"], code=str(body["code"]), status=status, request_id=body["requestId"], **members
        )
    except (ValueError, KeyError, TypeError):
        return GatewayError(f"the gateway answered {status}", code="unexpected_answer", status=status)


def _unreachable(error: Exception) -> GatewayError:
    return GatewayError(f"no answer from the gateway: {getattr(error, 'reason', error)}", code="unreachable")
