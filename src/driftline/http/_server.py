"""Processes: a listening socket, one server or several workers on it, and an orderly end."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, cast

import uvicorn
from starlette.types import ASGIApp

from driftline.errors import DriftlineError, EngineError, OptionError
from driftline.serving.connections import ACCEPTED_AT_ONCE, ConnectionLimits, limited_protocol
from driftline.serving.structured_log import log_to_stderr


class Service(NamedTuple):
    """What a worker serves: the application, what to call at the end, and what lets go of clients that stay."""

    app: ASGIApp
    close: Callable[[], None] = lambda: None
    drain: Callable[[], None] = lambda: None


MakeService = Callable[[], Service]  # called inside the worker

_DRAIN_SECONDS = 4  # for requests under way; the last flush has four more, together below ten
_KILL_SECONDS = 10
_CANNOT_START = 3
_QUEUED = 2048  # connections that wait to be taken
_logger = logging.getLogger("driftline.server")


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where and how to listen; plain data, so that worker processes can be given it."""

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
    # Said in full, because asyncio turns Nagle's delay off only for sockets that are TCP by name.
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
    """Serve until SIGTERM or SIGINT, then drain and end."""
    log_to_stderr(options.log_level)
    _check_certificate(options)
    with listen(options.host, options.port) as listener:
        if options.workers == 1:
            _run_worker(make_service, listener, options)
        else:
            _supervise(make_service, listener, options)


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
        _logger.info("listening", extra={"fields": {"host": host, "port": port}})
        # The server raises the signal again that ended it; here that is the wanted end.
        with contextlib.suppress(KeyboardInterrupt):
            _Server(config, service.drain).run(sockets=[listener])
    finally:
        service.close()
        _logger.info("closed")


class _Server(uvicorn.Server):
    """uvicorn's server with a long queue of connections, of which it takes few at a time.

    asyncio uses one number for both. Taking the whole queue at once would run out of files before the first
    connection too many is closed.
    """

    def __init__(self, config: uvicorn.Config, drain: Callable[[], None]) -> None:
        super().__init__(config)
        self._drain = drain

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(_QUEUED)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._drain()
        await super().shutdown(sockets)


def _check_certificate(options: ServerOptions) -> None:
    """A certificate or key that cannot be used is said before the port is taken."""
    if options.tls_cert is None or options.tls_key is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.tls_cert, options.tls_key)
    except (OSError, ssl.SSLError) as error:
        files = f"{options.tls_cert.name} and {options.tls_key.name}"
        raise OptionError(f"{files} cannot be used for TLS: {error}", code="invalid_certificate") from error


def _supervise(make_service: MakeService, listener: socket.socket, options: ServerOptions) -> None:
    """Keep `workers` processes alive; a dead one is replaced."""
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
                    # A worker that was killed is replaced; one that could not start would only fail again.
                    hopeless = process.exitcode == _CANNOT_START
                    processes[position] = process if hopeless else start()
    _end(processes)
    if hopeless:
        raise EngineError("a worker could not start, its reason is in the log above", code="worker_failed")


def _worker_main(make_service: MakeService, listener: socket.socket, options: ServerOptions) -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _run_worker(make_service, listener, options)
    except KeyboardInterrupt:
        return
    except DriftlineError as error:
        _logger.error("cannot start", extra={"fields": {"code": error.code, "error": error.message}})
        sys.exit(_CANNOT_START)


def _end_with_parent() -> None:
    """A supervisor that was killed leaves no workers behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _ended_by_signal() -> Iterator[Callable[[], bool]]:
    seen: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: seen.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + _KILL_SECONDS
    for process in processes:
        process.join(max(deadline - time.monotonic(), 0))
        if process.is_alive():
            process.kill()
            process.join()
