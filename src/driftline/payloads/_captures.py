"""Captured traffic as pairs, from HAR and GoReplay files (payloads §9), and masked values (payloads §10.4).

Requests are the same when method, path, query (in any order) and body (JSON in any order, forms by their parts) are;
host, scheme and fragment do not matter, because Old and New have different addresses. Equal requests pair in order of
arrival. An answer whose body the capture does not have is an error, never an empty body. A mask is
a token that separates equal from unequal and nothing else. It is keyed (HMAC-SHA256), because a plain hash of an email
address can be found by trying addresses.

>>> request_key("get", "http://new/a?a=2&b=1") == request_key("GET", "https://old/a?b=1&a=2")
True
>>> masker = Masker(("$..email",), key=b"k")
>>> masker.value({"email": "a@x", "n": 1})["email"] == masker.value({"email": "a@x"})["email"]
True
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import io
import json
import re
import secrets
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from driftline.core import open_bytes
from driftline.errors import InputError, PayloadError
from driftline.payloads._compare.plan import Renames
from driftline.payloads._compare.report import Entry, Report
from driftline.payloads._rules.path_rules import PathState, bad_flag, start_state
from driftline.payloads._values.limits import EngineConfig
from driftline.payloads._values.paths import STEP, unescaped
from driftline.payloads._values.text import parse_json, to_json_bytes
from driftline.payloads._values.values import Json

_GZIP_MAGIC = b"\x1f\x8b"
_GOR_END = "\n🐵🙈🙉\n".encode()
_OLD_RESPONSE, _NEW_RESPONSE = "2", "3"
# Parts of a path that name one thing: numbers, UUIDs and long hexadecimal words.
_NAMES_ONE = re.compile(r"[0-9]+|[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|[0-9a-f]{16,}")
_UNMATCHED = ("unmatched_in_old", "unmatched_in_new")
_TOKEN_DIGITS = 12
# A test of the key values in the path of a keyed item.
_KEY_TEST = re.compile(
    r"@(?P<path>(?:\.[^.\['\s=]+|\['(?:[^'\\]|\\.)*'\])+)==(?P<value>'(?:[^'\\]|\\.)*'|[^\s&)]+)(?P<rest> && )?",
    re.DOTALL,
)
# Messages of masked entries, without their values.
_MESSAGES = {
    "PRECISION_EXCEEDED": "Value difference exceeds the precision tolerance",
    "DATETIME_EXCEEDED": "Time difference exceeds the tolerance",
}

_FORM, _MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
Names = tuple[tuple[str, str], ...]


class RequestKey(NamedTuple):
    """What makes two requests the same."""

    method: str
    path: str
    query: Names = ()
    body: str = ""  # a digest
    headers: Names = ()


@dataclass(frozen=True, slots=True)
class PairingOptions:
    """How requests of Old find those of New where method, path, query and body alone do not pair them."""

    paths: tuple[tuple[re.Pattern[str], str], ...] = ()  # patterns and what replaces them in Old's paths
    dropped_query: frozenset[str] = frozenset()
    headers: tuple[str, ...] = ()  # of the request, lower case

    @classmethod
    def of(cls, paths: Iterable[str], dropped_query: Iterable[str], headers: Iterable[str]) -> PairingOptions:
        """Options as the command line has them; a path is `PATTERN=REPLACEMENT`."""
        found = tuple(map(_path_option, paths))
        return cls(found, frozenset(dropped_query), tuple(sorted(name.lower() for name in headers)))

    def key(self, request: Request, *, is_old: bool) -> RequestKey:
        address = urlsplit(request.url)
        path = address.path or "/"
        for pattern, replacement in self.paths if is_old else ():
            path = pattern.sub(replacement, path)
        query = sorted(parse_qsl(address.query, keep_blank_values=True))
        kept = tuple(pair for pair in query if pair[0] not in self.dropped_query)
        headers = tuple((name, request.headers[name]) for name in self.headers if name in request.headers)
        return RequestKey(request.method.upper(), path, kept, _digest(request), headers)


def _path_option(text: str) -> tuple[re.Pattern[str], str]:
    pattern, separator, replacement = text.rpartition("=")
    if not separator or not pattern:
        raise bad_flag("--map-path", text, "write it like '^/v1/=/v2/', a pattern and what replaces it in Old's paths")
    try:
        found = re.compile(pattern)
        found.sub(replacement, "")
    except (re.error, IndexError) as error:
        raise bad_flag("--map-path", text, f"not a pattern with its replacement ({error})") from None
    return found, replacement


class Request(NamedTuple):
    """The identity of a request; a body is text, bytes, or the parts of a form."""

    method: str
    url: str
    body: str | bytes | list[FormPart] = b""
    kind: str = ""  # the content type, with its parameters
    headers: Mapping[str, str] = {}


FormPart = tuple[str, str, str]  # name, name of the file, value (a digest for a file of a multipart body)


class CaptureError(ValueError):
    """A message that cannot be read; the others still can."""


class NoBodyError(CaptureError):
    """The capture does not have the body of an answer."""


class Exchange(NamedTuple):
    """A request and its response, or why the response cannot be read."""

    key: RequestKey
    response: dict[str, Json] | None  # status, headers and body
    problem: str | None = None
    arrival: str = ""  # GoReplay's id of a request, which distinguishes equal ones
    has_body: bool = True  # False where the answer had one that the capture does not have

    @classmethod
    def failed(cls, key: RequestKey, error: Exception, arrival: str = "") -> Exchange:
        return cls(key, None, str(error), arrival, not isinstance(error, NoBodyError))

    @property
    def endpoint(self) -> str:
        """Method and path, with placeholders for parts that name one thing."""
        parts = ["{id}" if _NAMES_ONE.fullmatch(part) else part for part in self.key.path.split("/")]
        return f"{self.key.method} {'/'.join(parts)}"


def capture_pairs(
    paths: Iterable[Path], limit: int | None = None, options: PairingOptions | None = None
) -> Iterator[dict[str, Json]]:
    """The records of one GoReplay file, or of a HAR file of Old and one of New, in order of arrival."""
    most = EngineConfig().max_payload_bytes if limit is None else limit
    pairing = options or PairingOptions()
    given = list(paths)
    if len(given) == 1:
        old, new = read_gor(given[0], most, pairing)
    else:
        old, new = (list(read_har(path, most, pairing, is_old=at == 0)) for at, path in enumerate(given))
    waiting: dict[tuple[RequestKey, str], list[Exchange]] = {}
    for exchange in reversed(new):
        waiting.setdefault((exchange.key, exchange.arrival), []).append(exchange)
    seen: Counter[str] = Counter()
    for exchange in old:
        partners = waiting.get((exchange.key, exchange.arrival))
        yield _record({"old": exchange, "new": partners.pop() if partners else None}, seen)
    left = {id(exchange) for partners in waiting.values() for exchange in partners}
    for exchange in new:
        if id(exchange) in left:
            yield _record({"old": None, "new": exchange}, seen)


def _record(sides: dict[str, Exchange | None], seen: Counter[str]) -> dict[str, Json]:
    found = [exchange for exchange in sides.values() if exchange is not None]
    method, path, query, body, headers = found[0].key
    name = f"{method} {path}" + (f"?{'&'.join(f'{key}={value}' for key, value in query)}" if query else "")
    name += f" {body[:8]}" if body else ""
    name += "".join(f" {header}={value}" for header, value in headers)
    seen[name] += 1
    record: dict[str, Any] = {"id": name if seen[name] == 1 else f"{name} #{seen[name]}", "endpoint": found[0].endpoint}
    problems = [exchange.problem for exchange in found if exchange.problem is not None]
    if problems:
        lacking = sum(not exchange.has_body for exchange in found)
        return {**record, "error": "; ".join(problems), **({"no_body": lacking} if lacking else {})}
    for side, exchange in sides.items():
        record |= {"missing": side} if exchange is None else {side: exchange.response}
    return record


def request_key(method: str, url: str, body: str | bytes | list[FormPart] = b"", kind: str = "") -> RequestKey:
    """What makes two requests the same; `kind` is the content type of the body."""
    return PairingOptions().key(Request(method, url, body, kind), is_old=False)


def form_parts(data: bytes, kind: str) -> list[FormPart] | None:
    """The parts of a form, whatever their order and the boundary between them; None where a body is no form."""
    name, _, parameters = kind.partition(";")
    if name.strip().lower() == _FORM and data:
        pairs = parse_qsl(data.decode("utf-8", "replace"), keep_blank_values=True)
        return [(field, "", value) for field, value in pairs]
    boundary = re.search(r'boundary="?([^";]+)', parameters)
    if name.strip().lower() != _MULTIPART or boundary is None:
        return None
    parts = []
    for part in data.split(b"--" + boundary[1].encode("latin-1", "replace"))[1:]:
        head, separator, content = part.replace(b"\r\n", b"\n").partition(b"\n\n")
        if separator:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', head.decode("utf-8", "replace")))
            content = content.removesuffix(b"\n")
            value = hashlib.sha256(content).hexdigest() if "filename" in labels else content.decode("utf-8", "replace")
            parts.append((labels.get("name", ""), labels.get("filename", ""), value))
    return parts


def _digest(request: Request) -> str:
    given = request.body
    data = given.encode("utf-8", "surrogatepass") if isinstance(given, str) else given
    parts = data if isinstance(data, list) else form_parts(data, request.kind)
    data = data if parts is None else json.dumps(sorted(parts)).encode()
    assert isinstance(data, bytes)
    if not data:
        return ""
    with suppress(ValueError, RecursionError):  # else it is not JSON, and the bytes themselves count
        data = json.dumps(json.loads(data), sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(data).hexdigest()


def decoded_body(data: bytes, headers: dict[str, str], limit: int) -> Any:
    """The JSON value of a body (an array for NDJSON), or digest and length of one that is not JSON."""
    if not data:
        return None
    data = _decompressed(data, headers.get("content-encoding", ""), limit)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if "ndjson" in kind or "jsonlines" in kind or kind == "application/jsonl":
        return [parse_json(line, "a line of the body") for line in data.splitlines() if line.strip()]
    if kind.endswith(("/json", "+json")) or (not kind and data.lstrip()[:1] in (b"{", b"[")):
        return parse_json(data, "the body")
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def _decompressed(data: bytes, encodings: str, limit: int) -> bytes:
    import gzip

    # Last a step that changes nothing: the limit holds for a body without encodings too.
    for encoding in (*reversed([name.strip().lower() for name in encodings.split(",") if name.strip()]), "identity"):
        if encoding in ("gzip", "x-gzip"):
            try:
                data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(limit + 1)
            except (OSError, EOFError, zlib.error) as error:
                raise CaptureError(f"the body is damaged: {error}") from None
        elif encoding == "deflate":
            data = _inflated(data, limit)
        elif encoding != "identity":
            raise CaptureError(f"the encoding {encoding!r} is not known")
        if len(data) > limit:
            raise CaptureError(f"the body has more than {limit:,} bytes")
    return data


def _inflated(data: bytes, limit: int) -> bytes:
    """Decompress `deflate` to its end; it is zlib by the standard, and often raw in practice."""
    for bits in (zlib.MAX_WBITS, -zlib.MAX_WBITS):
        stream = zlib.decompressobj(bits)
        with suppress(zlib.error):
            found = stream.decompress(data, limit + 1)
            if stream.eof or len(found) > limit:
                return found
    raise CaptureError("the body is damaged: not deflate, or cut short")


def _response(status: int, headers: dict[str, str], data: bytes, limit: int) -> dict[str, Json]:
    if status <= 0:
        raise CaptureError(f"the capture has no answer: status {status}, the request was blocked or aborted")
    return {"status": status, "headers": dict(headers), "body": decoded_body(data, headers, limit)}


def _joined(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers by their names in lower case; repeated ones are one."""
    found: dict[str, str] = {}
    for given, value in headers:
        name = given.lower()
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


# HAR files.
def read_har(path: Path, limit: int, options: PairingOptions, *, is_old: bool) -> Iterator[Exchange]:
    """The exchanges of a HAR file, or of the one in a zip file, in order of arrival."""
    import zipfile

    with zipfile.ZipFile(path) if path.is_file() and zipfile.is_zipfile(path) else nullcontext() as archive:
        content = parse_json(_har_text(path, archive), path.name)
        entries = content.get("log", {}).get("entries") if isinstance(content, dict) else None
        if not isinstance(entries, list):
            raise _bad_input(f"{path} is not a HAR file: log.entries is missing", path)
        for number, entry in enumerate(entries):
            try:
                key = options.key(_har_request(entry["request"]), is_old=is_old)
                response = entry["response"]
                status, headers = int(response["status"]), _har_headers(response)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise _bad_input(f"{path}: entry {number} lacks {error}", path) from None
            try:
                has_body = status > 0 and key.method != "HEAD"
                data = _har_body(response, headers, path, archive, limit) if has_body else b""
                yield Exchange(key, _response(status, headers, data, limit))
            except (CaptureError, PayloadError) as error:
                yield Exchange.failed(key, error)


def _bad_input(message: str, path: Path) -> InputError:
    return InputError(message, code="invalid_input", path=str(path))


def _har_text(path: Path, archive: Any) -> bytes:
    if archive is None:
        with open_bytes(path) as stream:
            return stream.read()
    from zipfile import BadZipFile

    names = sorted(name for name in archive.namelist() if name.endswith(".har"))
    if len(names) != 1:
        raise _bad_input(f"{path} has {len(names)} .har files in it, one is stated", path)
    try:
        return bytes(archive.read(names[0]))
    except (OSError, EOFError, RuntimeError, zlib.error, BadZipFile) as error:
        raise _bad_input(f"{path}: {names[0]} cannot be read: {error}", path) from None


def _attached(name: str, path: Path, archive: Any, limit: int) -> bytes:
    """An attached body beside the HAR file, in its folder or zip file; at most a byte beyond the limit is read."""
    from zipfile import BadZipFile

    place = PurePosixPath(name)
    if place.is_absolute() or ".." in place.parts:
        raise CaptureError(f"the attached body {name!r} is outside of the capture's folder")
    try:
        with archive.open(name) if archive is not None else (path.parent / place).open("rb") as stream:
            return stream.read(limit + 1)
    except (OSError, KeyError, ValueError, EOFError, zlib.error, BadZipFile):
        raise NoBodyError(f"the capture has no body: the attached file {name!r} is not there") from None


def _har_request(request: dict[str, Any]) -> Request:
    posted = request.get("postData") or {}
    kind, parameters, text = str(posted.get("mimeType") or ""), posted.get("params"), posted.get("text") or ""
    body: Any = text
    if parameters and not text:
        names = ("name", "fileName", "value")
        body = [tuple(str(part.get(name) or "") for name in names) for part in parameters]
    headers = {str(one["name"]).lower(): str(one["value"]) for one in request.get("headers") or []}
    return Request(request["method"], request["url"], body, kind or headers.get("content-type", ""), headers)


def _har_headers(response: dict[str, Any]) -> dict[str, str]:
    headers = _joined((str(one["name"]), str(one["value"])) for one in response.get("headers") or [])
    kind = (response.get("content") or {}).get("mimeType")
    return {**headers, "content-type": str(kind)} if kind and "content-type" not in headers else headers


def _har_body(response: dict[str, Any], headers: dict[str, str], path: Path, archive: Any, limit: int) -> bytes:
    content = response.get("content") or {}
    text = content.get("text") or ""
    sizes = (content.get("size"), response.get("bodySize"))
    received = next((size for size in sizes if isinstance(size, int | float) and size > 0), 0)
    if not isinstance(text, str):
        raise CaptureError("the body of the capture is no text")
    if not text and content.get("_file"):
        data = _attached(str(content["_file"]), path, archive, limit)
    elif content.get("encoding") == "base64":
        try:
            data = base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise CaptureError(f"the body is not base64: {error}") from None
    else:
        data = text.encode("utf-8", "surrogatepass")
    if not data and received:
        raise NoBodyError(f"the capture has no body, {received:,} bytes were received")
    if not data.startswith(_GZIP_MAGIC):
        headers.pop("content-encoding", None)  # a HAR contains bodies decoded
    return data


# GoReplay files.
def read_gor(path: Path, limit: int, options: PairingOptions) -> tuple[list[Exchange], list[Exchange]]:
    """The exchanges of Old and of New in a GoReplay file: requests (1), original (2) and replayed responses (3)."""
    with open_bytes(path) as stream:
        records = stream.read().split(_GOR_END)
    requests: dict[str, RequestKey] = {}
    sides: dict[str, dict[str, Exchange]] = {_OLD_RESPONSE: {}, _NEW_RESPONSE: {}}
    for record in records:
        if not record.strip():
            continue
        head, _, message = record.lstrip(b"\n").partition(b"\n")
        words = head.decode("latin-1").split()
        if len(words) < 2 or words[0] not in ("1", "2", "3"):
            raise _bad_input(f"{path} is not a GoReplay file: {head[:40]!r}", path)
        kind, arrival = words[:2]
        if kind == "1":
            requests[arrival] = options.key(_gor_request(message), is_old=True)
            continue
        key = requests.get(arrival, RequestKey("", arrival))
        try:
            response = _gor_response(message, limit, has_body=key.method != "HEAD")
            sides[kind][arrival] = Exchange(key, response, arrival=arrival)
        except (CaptureError, PayloadError) as error:
            sides[kind][arrival] = Exchange.failed(key, error, arrival)
    return list(sides[_OLD_RESPONSE].values()), list(sides[_NEW_RESPONSE].values())


def _gor_request(message: bytes) -> Request:
    start, headers, body = _http_message(message)
    words = start.split()
    with suppress(CaptureError):  # a damaged body still distinguishes requests
        body = _unchunked(body, headers)
    method, url = words[0] if words else "", words[1] if len(words) > 1 else "/"
    return Request(method, url, body, headers.get("content-type", ""), headers)


def _gor_response(message: bytes, limit: int, *, has_body: bool) -> dict[str, Json]:
    start, headers, body = _http_message(message)
    words = start.split()
    if len(words) < 2 or not words[1].isdigit():
        raise CaptureError(f"the answer begins with {start[:40]!r}")
    length, is_chunked = headers.get("content-length", ""), "chunked" in headers.get("transfer-encoding", "").lower()
    stated = int(length) if length.isdigit() and has_body and words[1] != "304" and not is_chunked else 0
    if stated and not body:
        raise NoBodyError(f"the capture has no body, {stated:,} bytes were received")
    if len(body) < stated:
        raise CaptureError(f"the body is cut short: the capture has {len(body):,} of {stated:,} bytes")
    return _response(int(words[1]), headers, _unchunked(body, headers), limit)


def _http_message(message: bytes) -> tuple[str, dict[str, str], bytes]:
    head, _, body = message.partition(b"\r\n\r\n")
    start, *lines = head.decode("latin-1").split("\r\n")
    parts = (line.partition(":") for line in lines)
    return start, _joined((name.strip(), value.strip()) for name, _, value in parts), body


def _unchunked(body: bytes, headers: dict[str, str]) -> bytes:
    if "chunked" not in headers.get("transfer-encoding", "").lower():
        length = headers.get("content-length", "")
        return body[: int(length)] if length.isdigit() else body
    pieces, rest = list[bytes](), body
    while body:  # until the empty chunk
        size, separator, rest = rest.partition(b"\r\n")
        try:
            count = int(size.split(b";")[0] or b"x", 16)
        except ValueError:
            raise CaptureError("the chunks of the body are damaged or cut short") from None
        if count == 0:
            return b"".join(pieces)
        if not separator or len(rest) < count:
            raise CaptureError("the chunks of the body are cut short")
        pieces.append(rest[:count])
        rest = rest[count:].removeprefix(b"\r\n")
    return b""


# Masks.
class Masker:
    """Masks what some paths select, in values, in shown containers, in the keys of paths and in ids."""

    def __init__(self, paths: tuple[str, ...], key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)
        self._start, located, bad = start_state(paths)
        for path, reason in bad.items():
            raise bad_flag("--mask", path, f"not a JSONPath ({reason})")
        for looked_up in located:
            raise bad_flag("--mask", looked_up.text, "only names, * and .. can be used here")
        self._renames: Renames | None = None

    def with_aliases(self, renames: Renames | None) -> Masker:
        """The same masker for payloads whose Old has other names."""
        self._renames = renames
        return self

    def token(self, value: object) -> str:
        """The token of a value: equal values have equal tokens in one run."""
        return f"masked:{hmac.new(self._key, to_json_bytes(value), hashlib.sha256).hexdigest()[:_TOKEN_DIGITS]}"

    def identity(self, value: object, name: str) -> Any:
        """The id of a record, masked where a path selects the member it comes from."""
        return self.token(value) if value is not None and self._start.step(name).removed_by is not None else value

    def value(self, value: object) -> Any:
        """A whole payload."""
        return self._below(value, self._start, self._start.removed_by is not None)

    def _below(self, value: object, state: PathState, is_masked: bool) -> Any:
        if is_masked:
            return None if value is None else self.token(value)
        if isinstance(value, dict):
            return {name: self._below(item, *self._step(state, name)) for name, item in value.items()}
        if isinstance(value, list):
            below = state.step(None)
            return [self._below(item, below, below.removed_by is not None) for item in value]
        return value

    def _step(self, state: PathState, name: str) -> tuple[PathState, bool]:
        found = state.step(name)
        # A member of Old may have a name that the paths do not know.
        others = [state.step(other) for other in (self._renames.names(name) if self._renames is not None else ())]
        return found, any(one.removed_by is not None for one in (found, *others))

    def report(self, report: Report) -> Report:
        """A report with masked values, paths and messages."""
        coverage = report.coverage
        if coverage is not None:
            unmatched = {name: [self._masked(path)[0] for path in coverage[name]] for name in _UNMATCHED}
            coverage = {**coverage, **unmatched}
        return replace(
            report,
            diffs=list(map(self.entry, report.diffs)),
            warnings=list(map(self.entry, report.warnings)),
            coverage=coverage,
            trace=None if report.trace is None else list(map(self.entry, report.trace)),
        )

    def entry(self, entry: Entry) -> Entry:
        """An entry with masked values, path and message."""
        path, state, is_masked = self._masked(entry["path"])
        shown = Entry({**entry, "path": path})
        for name in ("old_value", "new_value"):
            if name in entry:
                shown[name] = self._below(entry[name], state, is_masked)
        if is_masked and entry.get("type") == "VALUE_MISMATCH":
            shown["message"] = f"Values differ: {shown['old_value']} != {shown['new_value']}"
        elif is_masked and "message" in entry:
            shown["message"] = _MESSAGES.get(entry["type"]) or str(entry["message"])
        return shown

    def _masked(self, path: str) -> tuple[str, PathState, bool]:
        """A path with its keys masked, how far the mask paths are matched there, and whether one is."""
        return self._stepped(path, self._start, self._start.removed_by is not None)

    def _stepped(self, path: str, state: PathState, is_masked: bool) -> tuple[str, PathState, bool]:
        parts = ["$"]
        for found in STEP.finditer(path):
            quoted = found["quoted"]
            state = state.step(found["name"] if quoted is None else unescaped(quoted))  # None for the items of an array
            text = found.group()
            if found["test"] is not None:
                text = f"[?({_KEY_TEST.sub(partial(self._key_test, state, is_masked), found['test'])})]"
            parts.append(text)
            is_masked = is_masked or state.removed_by is not None
        return "".join(parts), state, is_masked

    def _key_test(self, state: PathState, is_masked: bool, found: re.Match[str]) -> str:
        """A test of the key values of a keyed item."""
        value: Any = found["value"]
        if self._stepped(found["path"], state, is_masked)[2]:
            plain = unescaped(value[1:-1]) if value.startswith("'") else value
            if plain is value:
                with suppress(ValueError):
                    plain = json.loads(value)
            value = f"'{self.token(plain)}'"
        return f"@{found['path']}=={value}{found['rest'] or ''}"
