"""`driftline serve`: the compare service, and the sync gateway where one is named, as one HTTP server."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from driftline.gateway.settings import GatewaySettings
    from driftline.web.compare_service import CompareLimits

_EPILOG = """\b
Examples:
  driftline serve
  driftline serve --port 8787 --workers 4 --payload-limit 5
  driftline token rotate --secret-file secret.txt
  driftline serve --gateway main --data ./gateway --jwt-secret-file secret.txt
  driftline serve --gateway dev --data ./dev --insecure --port 8787

Every server compares payloads (POST /v1/compare and /v1/compare/batch, its page is at /v1/compare/docs); it keeps
nothing and asks for no token. With --gateway it also syncs row deltas. The secret can also stand in
DRIFTLINE_JWT_SECRET. Logs are JSON lines on stderr.
"""


@click.command(epilog=_EPILOG)
@click.option("--gateway", metavar="ID", help="Also sync deltas; the gateway's id, as it stands in paths and tokens.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="The log's directory.")
@click.option("--payload-limit", default=50.0, show_default=True, help="MiB of each payload to compare.")
@click.option("--max-in-flight", default=64, show_default=True, help="Comparisons under way before others get 503.")
@click.option("--lake", metavar="DIR|URL", help="Where deltas are flushed to.  [default: DATA/lake]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8787, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--workers", default=1, show_default=True, type=click.IntRange(1, 64), help="Server processes.")
@click.option("--jwt-secret-file", "secret_file", type=click.Path(path_type=Path), help="HS256 secrets, one a line.")
@click.option("--jwks", "key_set_file", type=click.Path(path_type=Path), help="JSON web key set (RS256, ES256).")
@click.option("--insecure", is_flag=True, help="No authentication; loopback only.")
@click.option("--body-limit", default=16, show_default=True, type=click.FloatRange(0.001), help="MiB of a push.")
@click.option("--rate-limit", default=200.0, show_default=True, help="Requests per second and client; 0: none.")
@click.option("--max-pending", default=50_000, show_default=True, help="Deltas waiting before pushes get 503.")
@click.option("--flush-mb", default=16.0, show_default=True, help="Flush when so many MiB have gathered.")
@click.option("--flush-seconds", default=60.0, show_default=True, help="Flush when a delta has waited so long.")
@click.option("--retention-days", type=float, help="Forget flushed deltas after so many days.  [default: never]")
@click.option("--cors-origin", "cors_origins", multiple=True, help="Allow a browser origin; can be repeated.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", help="How much to log."
)
def serve(
    host: str, port: int, log_level: str, workers: int, payload_limit: float, max_in_flight: int, **options: Any
) -> None:
    """Serve payload comparisons, and push and pull of row deltas, over HTTP."""
    from driftline.gateway.server import serve as run
    from driftline.web.compare_service import CompareLimits

    limits = CompareLimits(payload_limit, max_in_flight)
    settings = _gateway_settings(host, workers, **options)
    run(partial(_make_service, limits, settings), host, port, workers=workers, log_level=log_level)


def _gateway_settings(
    host: str, workers: int, *, gateway: str | None, data: Path | None, body_limit: float, flush_mb: float, **rest: Any
) -> GatewaySettings | None:
    from driftline.gateway import metrics
    from driftline.gateway.settings import MIB, GatewaySettings, authenticator, check_insecure

    if gateway is None and data is None:
        return None
    if gateway is None or data is None:
        raise click.UsageError("a gateway needs both --gateway ID and --data DIR")
    rest.update(body_limit=round(body_limit * MIB), flush_bytes=round(flush_mb * MIB))
    settings = GatewaySettings(gateway=gateway, data=data, workers=workers, **rest)
    check_insecure(settings, host)
    authenticator(settings)  # a missing key is said before the port is taken
    metrics.clear(settings.data / "metrics")
    return settings


def _make_service(limits: CompareLimits, settings: GatewaySettings | None) -> tuple[ASGIApp, Callable[[], None]]:
    from driftline.web.app import PathGroup, compose
    from driftline.web.compare_service import CompareService

    comparing = CompareService(limits, is_alone=settings is None)
    group = PathGroup(comparing.paths, comparing)
    if settings is None:
        return compose([group]), _nothing_to_close
    from driftline.gateway.http import gateway_app
    from driftline.gateway.service import Gateway

    gateway = Gateway(settings)
    return compose([group], gateway_app(gateway)), gateway.close


def _nothing_to_close() -> None:
    """The compare service keeps nothing."""
