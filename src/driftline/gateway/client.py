"""A small client of the gateway, for scripts: pushes in batches, pulls page by page, tries again when told to."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from driftline.deltas import RowDelta
from driftline.errors import GatewayError, OptionError

_RETRIED = (429, 503)
_TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Pulled:
    """A page: its deltas, and the cursor after them."""

    deltas: list[RowDelta]
    cursor: str
    has_more: bool
    server_hlc: int


class GatewayClient:
    """Talks to one gateway as one client; a push that got no answer is sent again, which changes nothing twice."""

    def __init__(
        self,
        url: str,
        gateway: str,
        client_id: str,
        *,
        token: str | None = None,
        patience: float = 30.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise OptionError(f"{url} is not an http or https address", code="invalid_url")
        self._root = f"{url.rstrip('/')}/v1/sync/{urllib.parse.quote(gateway, safe='')}"
        self._client_id = client_id
        self._token = token
        self._patience = patience
        self._sleep = sleep

    def push(self, deltas: Sequence[RowDelta], *, last_seen_hlc: int | None = None) -> dict[str, Any]:
        """Push one batch; the gateway's answer, with its timestamps as integers."""
        body: dict[str, Any] = {"clientId": self._client_id, "deltas": [delta.to_wire() for delta in deltas]}
        if last_seen_hlc is not None:
            body["lastSeenHlc"] = str(last_seen_hlc)
        answer: dict[str, Any] = self._request("/push", json.dumps(body, ensure_ascii=False).encode())
        # Only the protocol's own timestamps: a user's value may have a member that is called so too.
        applied = [{**delta, "hlc": int(delta["hlc"])} for delta in answer["deltas"]]
        return {**answer, "serverHlc": int(answer["serverHlc"]), "deltas": applied}

    def pull(self, *, cursor: str | None = None, since: int = 0, limit: int = 1000) -> Pulled:
        """One page after a cursor, or of everything with an hlc above `since`."""
        place = {"since": str(since)} if cursor is None else {"cursor": cursor}
        query = urllib.parse.urlencode({"clientId": self._client_id, "limit": limit, **place})
        answer = self._request(f"/pull?{query}")
        deltas = [RowDelta.from_wire(delta) for delta in answer["deltas"]]
        return Pulled(deltas, answer["cursor"], answer["hasMore"], int(answer["serverHlc"]))

    def pull_all(self, *, cursor: str | None = None, since: int = 0, limit: int = 1000) -> Iterator[Pulled]:
        """Every page up to the end of the log; the last one may be empty and carries the newest cursor."""
        while True:
            page = self.pull(cursor=cursor, since=since, limit=limit)
            yield page
            if not page.has_more:
                return
            cursor = page.cursor

    def _request(self, path: str, body: bytes | None = None) -> Any:
        deadline = time.monotonic() + self._patience
        pause = 0.2
        while True:
            try:
                return self._once(path, body)
            except _Later as later:
                pause = min(pause * 2, 5.0) if later.after is None else later.after
                if time.monotonic() + pause > deadline:
                    raise later.error from later
                self._sleep(pause)

    def _once(self, path: str, body: bytes | None) -> Any:
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(self._root + path, body, headers)  # noqa: S310 - checked in the constructor
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                refusal = _refusal(error)
            if error.code not in _RETRIED:
                raise refusal from error
            raise _Later(refusal, _seconds(error.headers.get("Retry-After"))) from error
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            raise _Later(GatewayError(f"no answer from the gateway: {reason}", code="unreachable"), None) from error


class _Later(Exception):  # noqa: N818 - a wish to be asked again
    def __init__(self, error: GatewayError, after: float | None) -> None:
        super().__init__(error.message)
        self.error = error
        self.after = after


def _refusal(error: urllib.error.HTTPError) -> GatewayError:
    try:
        body = json.loads(error.read(1 << 16))
        return GatewayError(body["error"], code=body["code"], status=error.code, request_id=body["requestId"])
    except (ValueError, KeyError, TypeError):
        return GatewayError(f"the gateway answered {error.code}", code="unexpected_answer", status=error.code)


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isdecimal() else None
