"""`driftline serve`: the compare service, and a named sync gateway, as one HTTP server; `driftline ui`: the console."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from driftline.cli._group import Command, parameters

if TYPE_CHECKING:
    from driftline.gateway import CompactionSettings, GatewaySettings
    from driftline.http import Service
    from driftline.web import CompareLimits

_MIB = 1 << 20


@click.command(cls=Command)
@parameters("serve")
def serve(payload_limit: float, max_in_flight: int, per_address: int, **options: Any) -> None:
    """Serve payload comparisons, and push and pull of row deltas, over HTTP."""
    from driftline.http import ConnectionLimits, ServerOptions, serve as run
    from driftline.web import CompareLimits

    names = ("host", "port", "workers", "log_level", "tls_cert", "tls_key")
    serving = ServerOptions(
        connections=ConnectionLimits(per_address=per_address), **{name: options.pop(name) for name in names}
    )
    limits = CompareLimits(payload_limit, max_in_flight)
    settings = _gateway_settings(serving.host, serving.workers, **options)
    with _metrics_directory(settings) as directory:
        run(partial(_make_service, limits, settings, directory), serving)


def _gateway_settings(
    host: str, workers: int, *, gateway: str | None, data: Path | None, body_limit: float, flush_mb: float, **rest: Any
) -> GatewaySettings | None:
    from driftline.gateway import GatewaySettings, authenticator, check_insecure

    if gateway is None and data is None:
        return None
    if gateway is None or data is None:
        raise click.UsageError("a gateway needs both --gateway ID and --data DIR")
    rest.update(body_limit=round(body_limit * _MIB), flush_bytes=round(flush_mb * _MIB), compaction=_compaction(rest))
    rest["claim_names"] = _claim_names(rest["claim_names"])
    rest.update(snapshot_bytes=rest.pop("snapshot_mb") * _MIB)
    settings = GatewaySettings(gateway=gateway, data=data, workers=workers, **rest)
    check_insecure(settings, host)
    authenticator(settings)  # a missing key is said before the port is taken
    return settings


def _claim_names(texts: tuple[str, ...]) -> dict[str, str]:
    found = dict(text.partition("=")[::2] for text in texts)
    for name, claim in found.items():
        if name not in ("sub", "gw", "role") or not claim:
            raise click.UsageError(f"--claim {name}={claim}: sub, gw or role, = and the name of a claim")
    return found


def _compaction(options: dict[str, Any]) -> CompactionSettings | None:
    """What the options say about compaction; they are taken out."""
    from driftline.gateway import CompactionSettings

    names = ("no_compact", "compact_deltas", "compact_mb", "compact_seconds", "master")
    off, deltas, size, seconds, master = (options.pop(name) for name in names)
    engine = None if master is None else partial(_spark_folds, master)
    return None if off else CompactionSettings(deltas, round(size * _MIB), seconds, engine)


@contextmanager
def _spark_folds(master: str) -> Iterator[Any]:
    """Folds on a Spark master; opened inside the process that compacts."""
    from driftline.spark import lake_engine, open_session

    with open_session(master) as session:
        yield lake_engine(session)


@contextmanager
def _metrics_directory(settings: GatewaySettings | None) -> Iterator[Path]:
    """The directory of the workers' counters; without a gateway it is removed at the end."""
    from driftline.http import clear

    if settings is not None:
        clear(settings.data / "metrics")
        yield settings.data / "metrics"
        return
    with TemporaryDirectory(prefix="driftline-metrics-") as directory:
        yield Path(directory)


def _make_service(limits: CompareLimits, settings: GatewaySettings | None, directory: Path) -> Service:
    from driftline.http import Metrics, Service
    from driftline.web import application

    metrics = Metrics(directory)
    if settings is None:
        return Service(application(metrics, limits), metrics.close)
    from driftline.gateway import Gateway

    gateway = Gateway(settings, metrics)

    def close() -> None:
        gateway.close()
        metrics.close()

    return Service(application(metrics, limits, gateway), close, gateway.feeds.stop)


# `driftline ui`: the console in a browser.


@click.command(cls=Command)
@parameters("ui")
def ui(folder: Path, host: str, port: int, open_browser: bool) -> None:
    """Look in a browser: diffs, payloads, pipelines, lakes, changesets, code."""
    from driftline.http import ServerOptions, listen, serve

    with listen(host, port) as free:  # which port 0 stands for, or that the port is taken
        port = free.getsockname()[1]
    options = ServerOptions(host=host, port=port, log_level="warning")
    serve(partial(_make_console, folder, host, port, open_browser), options)


def _make_console(folder: Path, host: str, port: int, open_browser: bool) -> Service:
    """Called when the port is open already, so that the printed address works at once."""
    from driftline.http import Service
    from driftline.web import Console, Guard

    token = None if host in ("127.0.0.1", "localhost", "::1") else secrets.token_urlsafe(16)
    console = Console(folder)
    guarded = Guard(console.app(), host=host, port=port, token=token)
    address = f"http://{host}:{port}/" + (f"?token={token}" if token else "")
    click.echo(f"driftline ui: {address} (Ctrl-C ends it)", err=True)
    console.warm_up()
    if open_browser:
        click.launch(address)
    return Service(guarded)
