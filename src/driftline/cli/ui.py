"""`driftline ui`: the console in a browser."""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from driftline.http._server import Service

_EPILOG = """\b
Examples:
  driftline ui
  driftline ui exports/ --port 9000
  driftline ui --host 0.0.0.0

The console shows tables, results, pipelines and lakes below DIR and nothing outside it; what it makes is kept in
DIR/.driftline.
It listens on this machine only, unless --host names another address: then it asks for the token it prints.
"""


@click.command(epilog=_EPILOG)
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8790, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--open/--no-open", "open_browser", default=False, help="Open the page in a browser.")
def ui(folder: Path, host: str, port: int, open_browser: bool) -> None:
    """Look in a browser: diffs, payloads, pipelines, lakes, changesets, code."""
    from driftline.http._server import ServerOptions, listen, serve

    with listen(host, port) as free:  # which port 0 stands for, or that the port is taken
        port = free.getsockname()[1]
    options = ServerOptions(host=host, port=port, log_level="warning")
    serve(partial(_make_console, folder, host, port, open_browser), options)


def _make_console(folder: Path, host: str, port: int, open_browser: bool) -> Service:
    """Called when the port is open already, so that whoever reads the address can follow it at once."""
    from driftline.http._server import Service
    from driftline.web.console.app import Console
    from driftline.web.console.guard import Guard

    token = None if host in ("127.0.0.1", "localhost", "::1") else secrets.token_urlsafe(16)
    console = Console(folder)
    guarded = Guard(console.app(), host=host, port=port, token=token)
    address = f"http://{host}:{port}/" + (f"?token={token}" if token else "")
    click.echo(f"driftline ui: {address} (Ctrl-C ends it)", err=True)
    console.warm_up()
    if open_browser:
        click.launch(address)
    return Service(guarded)
