"""Server processes: a listening socket with one or several workers, limits for connections, logs on stderr.

uvicorn waits without limit for the rest of a request's headers, and for a client that does not read its response;
`LimitedProtocol` has deadlines and caps, so that slow clients do not block others (gateway §12).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import multiprocessing
import os
import resource
import signal
import socket
import ssl
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from driftline.errors import DriftlineError, EngineError, OptionError
from driftline.http._requests import raw_refusal

ACCEPTED_AT_ONCE = 16
# For the log, the lake, pipes to other processes, and connections that are about to be refused.
_SPARE_FILES = 64 + 4 * ACCEPTED_AT_ONCE
_HEADER_SECONDS = 10.0
_BLOCKED_SECONDS = 30.0
_DRAIN_SECONDS = 4  # for active requests; the last flush has four more, together below ten
_KILL_SECONDS = 10
_CANNOT_START = 3
_QUEUED = 2048  # connections that wait to be accepted
_logger = logging.getLogger("driftline.server")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of one process; 0 per address is no limit (behind a proxy all clients have one address)."""

    connections: int = 3000
    per_address: int = 100
    header_seconds: float = _HEADER_SECONDS
    blocked_seconds: float = _BLOCKED_SECONDS


class Service(NamedTuple):
    """What a worker serves: the application, a function to close it, and one that releases streaming clients."""

    app: ASGIApp
    close: Callable[[], None] = lambda: None
    drain: Callable[[], None] = lambda: None


MakeService = Callable[[], Service]  # called inside the worker


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where and how to listen; plain data, so that it can be sent to worker processes."""

    host: str = "127.0.0.1"
    port: int = 8787
    workers: int = 1
    log_level: str = "info"
    tls_cert: Path | None = None
    tls_key: Path | None = None
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise OptionError("TLS needs both --tls-cert and --tls-key")


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, because asyncio turns Nagle's delay off only for sockets with IPPROTO_TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OptionError(f"cannot listen on {host} port {port}: {error.strerror}", code="cannot_listen") from error
    listener.listen(_QUEUED)
    return listener


def serve(make_service: MakeService, options: ServerOptions) -> None:
    """Serve until SIGTERM or SIGINT, then finish the active requests."""
    log_to_stderr(options.log_level)
    if options.tls_cert is not None and options.tls_key is not None:
        try:  # before the port is opened
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.tls_cert, options.tls_key)
        except (OSError, ssl.SSLError) as error:
            files = f"{options.tls_cert.name} and {options.tls_key.name}"
            raise OptionError(f"{files} cannot be used for TLS: {error}", code="invalid_certificate") from error
    with listen(options.host, options.port) as listener:
        (_run_worker if options.workers == 1 else _supervise)(make_service, listener, options)


def _run_worker(make_service: MakeService, listener: socket.socket, options: ServerOptions) -> None:
    log_to_stderr(options.log_level)
    service = make_service()
    config = uvicorn.Config(
        service.app,
        http=cast(Any, limited_protocol(options.connections)),
        ws="none",
        backlog=ACCEPTED_AT_ONCE,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
        ssl_certfile=options.tls_cert,
        ssl_keyfile=options.tls_key,
    )
    try:
        host, port = listener.getsockname()[:2]
        with _ended_by_signal() as ended:  # from here on, since an exception may be lost in a callback of an import
            _logger.info("listening", extra={"fields": {"host": host, "port": port}})
            _Server(config, service.drain, ended).run(sockets=[listener])
    finally:
        service.close()
        _logger.info("closed")


class _Server(uvicorn.Server):
    """uvicorn's server with a long queue of connections, of which it accepts few at a time.

    asyncio uses one number for both. If it accepted the complete queue at once, it would run out of files before the
    first connection too many is closed.
    """

    def __init__(self, config: uvicorn.Config, drain: Callable[[], None], ended: Callable[[], bool]) -> None:
        super().__init__(config)
        self._drain, self._ended = drain, ended

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(_QUEUED)

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._ended()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._drain()
        await super().shutdown(sockets)


def _supervise(make_service: MakeService, listener: socket.socket, options: ServerOptions) -> None:
    """Run `workers` processes; one that dies is replaced."""
    context = multiprocessing.get_context("spawn")

    def start() -> BaseProcess:
        process = context.Process(target=_worker_main, args=(make_service, listener, options))
        process.start()
        return process

    processes = [start() for _ in range(options.workers)]
    hopeless = False
    with _ended_by_signal() as ended:
        while not ended() and not hopeless:
            time.sleep(0.2)
            for position, process in enumerate(processes):
                if not process.is_alive() and not ended():
                    _logger.error("worker died", extra={"fields": {"exitCode": process.exitcode}})
                    # A worker that was killed is replaced; one that could not start would fail again.
                    hopeless = process.exitcode == _CANNOT_START
                    processes[position] = process if hopeless else start()
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _KILL_SECONDS
    for process in processes:
        process.join(max(deadline - time.monotonic(), 0))
        process.kill()
        process.join()
    if hopeless:
        raise EngineError("a worker could not start, its reason is in the log above", code="worker_failed")


def _worker_main(make_service: MakeService, listener: socket.socket, options: ServerOptions) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # raises KeyboardInterrupt
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _run_worker(make_service, listener, options)
    except KeyboardInterrupt:
        return
    except DriftlineError as error:
        _logger.error("cannot start", extra={"fields": {"code": error.code, "error": error.message}})
        sys.exit(_CANNOT_START)


def _end_with_parent() -> None:
    """Stop this worker when its supervisor has ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def _ended_by_signal() -> Iterator[Callable[[], bool]]:
    seen: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda number, _: seen.append(number)) for number in numbers]
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@dataclass(slots=True)
class _OpenConnections:
    """The number of connections of this process, by address."""

    limits: ConnectionLimits
    by_address: Counter[str] = field(default_factory=Counter)
    total: int = 0

    def enter(self, address: str) -> bytes | None:
        """Count a new connection; the response that refuses it above a limit."""
        if self.total >= self.limits.connections:
            return raw_refusal("OVERLOADED", "too many connections: try again")
        if 0 < self.limits.per_address <= self.by_address[address]:
            return raw_refusal("RATE_LIMITED", "too many connections from this address")
        self.total += 1
        self.by_address[address] += 1
        return None

    def leave(self, address: str) -> None:
        self.total -= 1
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 with deadlines for headers and for clients that stop reading."""

    def __init__(self, *arguments: Any, open_connections: _OpenConnections, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._open = open_connections
        self._address: str | None = None  # None: not counted, refused
        self._header_deadline: asyncio.TimerHandle | None = None
        self._blocked_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, or refuse and close it."""
        address = _address(transport.get_extra_info("peername"))
        refusal = self._open.enter(address)
        if refusal is not None:
            transport.write(refusal)
            transport.close()
            return
        self._address = address
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Feed the parser; the deadline counts from the first byte of a request to the end of its headers."""
        if self._address is None:
            return
        if self._header_deadline is None and self._is_between_requests():
            self._await_headers()
        super().data_received(data)
        if not self._is_between_requests():
            self._cancel_header_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the closed connection."""
        if self._address is None:
            return
        self._open.leave(self._address)
        self._cancel_header_deadline()
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the deadline of a client that does not read."""
        super().pause_writing()
        self._blocked_deadline = self.loop.call_later(self._open.limits.blocked_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the deadline."""
        if self._blocked_deadline is not None:
            self._blocked_deadline.cancel()
            self._blocked_deadline = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP with the common error body."""
        self.transport.write(raw_refusal("VALIDATION_ERROR", "this is not an HTTP request"))
        self.transport.close()

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _await_headers(self) -> None:
        self._header_deadline = self.loop.call_later(self._open.limits.header_seconds, self._headers_are_late)

    def _cancel_header_deadline(self) -> None:
        if self._header_deadline is not None:
            self._header_deadline.cancel()
            self._header_deadline = None

    def _headers_are_late(self) -> None:
        self._header_deadline = None
        if self._is_between_requests() and not self.transport.is_closing():
            self.transport.write(raw_refusal("REQUEST_TIMEOUT", "the request's headers took too long"))
            self.transport.close()


def limited_protocol(limits: ConnectionLimits) -> Callable[..., LimitedProtocol]:
    """The protocol for uvicorn with its own counts; connections are bounded by the limit of open files."""
    requested, infinite = limits.connections + _SPARE_FILES, resource.RLIM_INFINITY
    granted, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if granted != infinite and granted < requested:
        granted = requested if hard == infinite else min(requested, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
    granted = requested if granted == infinite else granted
    connections = min(limits.connections, max(granted - _SPARE_FILES, 1))
    return partial(LimitedProtocol, open_connections=_OpenConnections(replace(limits, connections=connections)))


def _address(peer: Any) -> str:
    """The address of a client: an IPv4 address, or the 64-bit network that one IPv6 host usually has."""
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except (ValueError, TypeError, IndexError):
        return "unknown"
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class JsonLines(logging.Formatter):
    """A record as one line of JSON, with its `fields`."""

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
    """A record as text for a terminal: the time of day, the event, and its fields.

    >>> attributes = {"msg": "listening", "levelno": logging.INFO, "created": 0, "fields": {"port": 8787}}
    >>> record = logging.makeLogRecord(attributes)
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
    """Write driftline's and the server's records to stderr, as text or JSON; no record holds a token."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Words() if sys.stderr.isatty() else JsonLines())
    for name in ("driftline", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level.upper() if name == "driftline" else logging.WARNING)
