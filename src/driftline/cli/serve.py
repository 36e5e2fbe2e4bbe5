"""`driftline serve`: the sync gateway as an HTTP server."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from driftline.gateway.settings import GatewaySettings

_EPILOG = """\b
Examples:
  driftline token rotate --secret-file secret.txt
  driftline serve --gateway main --data ./gateway --jwt-secret-file secret.txt
  driftline serve --gateway dev --data ./dev --insecure --port 8787

The secret can also stand in DRIFTLINE_JWT_SECRET. Logs are JSON lines on stderr.
"""


@click.command(epilog=_EPILOG)
@click.option("--gateway", required=True, metavar="ID", help="The gateway's id, as it stands in paths and tokens.")
@click.option("--data", required=True, type=click.Path(path_type=Path, file_okay=False), help="The log's directory.")
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
def serve(host: str, port: int, log_level: str, body_limit: float, flush_mb: float, **options: Any) -> None:
    """Serve push and pull of row deltas over HTTP."""
    from driftline.gateway import metrics
    from driftline.gateway.server import serve as run
    from driftline.gateway.settings import MIB, GatewaySettings, authenticator, check_insecure

    settings = GatewaySettings(body_limit=round(body_limit * MIB), flush_bytes=round(flush_mb * MIB), **options)
    check_insecure(settings, host)
    authenticator(settings)  # a missing key is said before the port is taken
    metrics.clear(settings.data / "metrics")
    run(partial(_make_service, settings), host, port, workers=settings.workers, log_level=log_level)


def _make_service(settings: GatewaySettings) -> tuple[ASGIApp, Callable[[], None]]:
    from driftline.gateway.http import gateway_app
    from driftline.gateway.service import Gateway

    gateway = Gateway(settings)
    return gateway_app(gateway), gateway.close
