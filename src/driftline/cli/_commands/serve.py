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

from driftline.cli._group import Command

if TYPE_CHECKING:
    from driftline.gateway import CompactionSettings, GatewaySettings
    from driftline.http import Service
    from driftline.web import CompareLimits

_MIB = 1 << 20


@click.command(cls=Command)
@click.option("--gateway", metavar="ID", help="Also sync deltas; the gateway's id, as it stands in paths and tokens.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="The log's directory.")
@click.option("--payload-limit", default=50.0, show_default=True, help="MiB of each payload to compare.")
@click.option("--max-in-flight", default=64, show_default=True, help="Comparisons under way before others get 503.")
@click.option("--open-compare", is_flag=True, help="Comparing beside a gateway needs no token.")
@click.option("--log", metavar="URL", help="Keep the log in PostgreSQL, for several hosts.  [default: a file in DATA]")
@click.option("--lake", metavar="DIR|URL", help="Where deltas are flushed to.  [default: DATA/lake]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8787, show_default=True, help="0 takes a free one.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Server processes.")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="PEM certificate chain, to serve HTTPS.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="PEM key of the certificate.")
@click.option(
    "--per-address",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="Connections of one address; 0: no limit, as behind a proxy.",
)
@click.option("--jwt-secret-file", "secret_file", type=click.Path(path_type=Path), help="HS256 secrets, one a line.")
@click.option("--jwks", "key_set", metavar="FILE|URL", help="JSON web key set (RS256, ES256), or its https address.")
@click.option("--audience", "audiences", multiple=True, help="Accept tokens for this `aud`; can be repeated.")
@click.option("--issuer", help="Accept tokens with this `iss` only.")
@click.option(
    "--claim", "claim_names", multiple=True, metavar="NAME=CLAIM", help="The claim that stands for sub, gw or role."
)
@click.option("--gateway-from-audience", is_flag=True, help="A token without `gw` is for this gateway.")
@click.option("--insecure", is_flag=True, help="No authentication; loopback only.")
@click.option("--body-limit", type=click.FloatRange(0.001, None), default=16, show_default=True, help="MiB of a push.")
@click.option(
    "--rate-limit",
    default=200.0,
    show_default=True,
    help="Requests per second and client, ten of an address without a valid token; 0: none.",
)
@click.option("--max-pending", default=50000, show_default=True, help="Deltas waiting before pushes get 503.")
@click.option("--flush-mb", default=16.0, show_default=True, help="Flush when so many MiB have gathered.")
@click.option("--flush-seconds", default=60.0, show_default=True, help="Flush when a delta has waited so long.")
@click.option("--retention-days", type=float, help="Remove flushed deltas after so many days.  [default: never]")
@click.option("--history-days", type=click.FloatRange(0), default=30, show_default=True, help="Keep versions so long.")
@click.option("--snapshot-mb", default=2048, show_default=True, help="MiB of merged rows kept for new clients.")
@click.option("--compact-deltas", default=50000, show_default=True, help="Compact a table with so many new deltas.")
@click.option("--compact-mb", default=64.0, show_default=True, help="Compact a table with so many MiB of them.")
@click.option("--compact-seconds", default=300.0, show_default=True, help="Compact when one has waited so long.")
@click.option("--no-compact", is_flag=True, help="Leave compaction to `lake compact`.")
@click.option("--master", metavar="URL", help="Compact on this Spark master.")
@click.option("--state-feed/--no-state-feed", default=None, help="Begin, or end, a change data feed of `state`.")
@click.option("--adopt-lake", is_flag=True, help="Go on with a lake that belongs to another log of this gateway.")
@click.option("--cors-origin", "cors_origins", multiple=True, help="Allow a browser origin; can be repeated.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", help="How much to log."
)
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

    names = ("no_compact", "compact_deltas", "compact_mb", "compact_seconds", "master", "state_feed")
    off, deltas, size, seconds, master, feed = (options.pop(name) for name in names)
    if off and feed is not None:
        raise click.UsageError("with --no-compact the state is made by `lake compact`: give --state-feed there")
    engine = None if master is None else partial(_spark_folds, master)
    return None if off else CompactionSettings(deltas, round(size * _MIB), seconds, engine, feed)


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
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="[DIR]", default=".")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8790, show_default=True, help="0 takes a free one.")
@click.option("--open/--no-open", "open_browser", default=False, help="Open the page in a browser.")
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
