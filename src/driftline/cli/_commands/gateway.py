"""`driftline gateway`: serve one, and send deltas to one and fetch them as JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from driftline.cli.commands import Function, LazyGroup
from driftline.cli.lake_views import counted, tell
from driftline.errors import DeltaError, GatewayError, OptionError

if TYPE_CHECKING:
    from driftline.client._http import GatewayClient
    from driftline.deltas import RowDelta

_TOKEN_VARIABLE = "DRIFTLINE_TOKEN"  # noqa: S105 - the name of a variable


def _gateway_options(command: Function) -> Function:
    options = (
        click.option("--url", default="http://127.0.0.1:8787", show_default=True, help="The gateway's address."),
        click.option("--gateway", "--gw", required=True, metavar="ID", help="The gateway's id."),
        click.option("--client-id", help="Who is asking.  [default: the token's subject]"),
        click.option("--token-file", type=click.Path(path_type=Path), help=f"The token.  [or: {_TOKEN_VARIABLE}]"),
        click.option("--patience", default=30.0, show_default=True, help="Seconds to go on trying when told to wait."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.group(
    cls=LazyGroup,
    lazy={
        "serve": ("driftline.cli.serve:serve", "Serve a gateway (the same as `driftline serve`)."),
        "push": ("driftline.cli.gateway:push", "Send row deltas to a gateway."),
        "pull": ("driftline.cli.gateway:pull", "Fetch row deltas from a gateway."),
        "token": ("driftline.cli.token:token", "Make tokens for a gateway and change its secrets."),
    },
)
def gateway() -> None:
    """Sync row deltas through a gateway: serve one, push, pull, make tokens."""


@click.command(
    epilog="""\b
Examples:
  driftline gateway push deltas.jsonl --gateway main --token-file token.txt
  driftline lake changes … --format deltas | driftline gateway push - --gateway main
"""
)
@click.argument("deltas", type=click.File("rb"))
@_gateway_options
@click.option("--batch", default=1000, show_default=True, type=click.IntRange(1, 10_000), help="Deltas of one push.")
def push(deltas: IO[bytes], batch: int, **options: Any) -> None:
    """Send row deltas (JSON lines, `-` for stdin) to a gateway.

    Sending the same deltas again changes nothing. Prints how many were accepted and how many of them were new.
    """
    client = _client(**options)
    accepted = applied = server_hlc = 0
    for group in _batches(_read_deltas(deltas), batch):
        answer = client.push(group)
        accepted += answer["accepted"]
        applied += len(answer["deltas"])
        server_hlc = answer["serverHlc"]
    record = {"accepted": accepted, "applied": applied, "serverHlc": str(server_hlc)}
    tell(record, f"{counted(accepted, 'delta')} accepted, {applied:,} of them new")


@click.command(
    epilog="""\b
Examples:
  driftline gateway pull --gateway main --token-file token.txt > deltas.jsonl
  driftline gateway pull --gateway main --token-file token.txt --cursor-file cursor.txt -o new.jsonl
  driftline gateway pull --gateway main --token-file token.txt --cursor-file cursor.txt --snapshot > rows.jsonl
"""
)
@_gateway_options
@click.option("--since", default="0", show_default=True, help="Only deltas with a greater hlc.")
@click.option("--cursor-file", type=click.Path(path_type=Path), help="Go on where the last pull with it ended.")
@click.option("--refetch", is_flag=True, help="Forget the cursor and fetch everything.")
@click.option("--snapshot", is_flag=True, help="Fetch the state of all rows; the cursor goes on behind it.")
@click.option("--limit", default=5000, show_default=True, type=click.IntRange(1, 10_000), help="Deltas of a page.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="A file instead of stdout.")
def pull(output: Path | None, cursor_file: Path | None, **wanted: Any) -> None:
    """Fetch row deltas from a gateway as JSON lines, in order of arrival.

    With --cursor-file each delta is fetched once, also those that arrive late. A gateway that has forgotten old deltas
    has a snapshot to begin with: lines with the columns of each row and their stamps.
    """
    from driftline.core._files import open_output, write_atomically

    cursor = None
    with open_output(output) as out:
        for rows, reached in _pages(cursor_file, **wanted):
            lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
            out.write("".join(f"{line}\n" for line in lines).encode())
            cursor = reached
    if cursor_file is not None and cursor is not None:
        write_atomically(cursor_file, f"{cursor}\n".encode())


def _pages(
    cursor_file: Path | None, *, since: str, refetch: bool, snapshot: bool, limit: int, **options: Any
) -> Iterator[tuple[list[Any], str]]:
    """The lines of each page, and the cursor after it."""
    from driftline.deltas._wire import hlc_from_wire

    client = _client(**options)
    if snapshot:
        yield from ((page.rows, page.cursor) for page in client.snapshot(limit=limit))
        return
    cursor = None
    if cursor_file is not None and cursor_file.exists() and not refetch:
        cursor = cursor_file.read_text("ascii", "replace").strip()
    try:
        for page in client.pull_all(cursor=cursor, since=hlc_from_wire(since, "--since"), limit=limit):
            yield [delta.to_wire() for delta in page.deltas], page.cursor
    except GatewayError as error:
        if error.code == "MUST_REFETCH":
            raise GatewayError(f"{error.message} with --snapshot", code=error.code, reason=error.reason) from error
        raise


def _client(url: str, gateway: str, client_id: str | None, token_file: Path | None, patience: float) -> GatewayClient:
    from driftline.client._http import GatewayClient

    token = _token(token_file)
    name = client_id or _subject(token)
    if name is None:
        raise OptionError(f"who is asking? Give --token-file, {_TOKEN_VARIABLE} or --client-id", code="no_client")
    return GatewayClient(url, gateway, name, token=token, patience=patience)


def _token(token_file: Path | None) -> str | None:
    from driftline.core._files import explain_io_errors

    if token_file is None:
        return os.environ.get(_TOKEN_VARIABLE) or None
    with explain_io_errors(token_file):
        return token_file.read_text("utf-8").strip()


def _subject(token: str | None) -> str | None:
    import jwt

    if token is None:
        return None
    try:
        return str(jwt.decode(token, options={"verify_signature": False}).get("sub"))
    except jwt.PyJWTError as error:
        raise OptionError(f"the token cannot be read: {error}", code="bad_token") from error


def _read_deltas(lines: IO[bytes]) -> Iterator[RowDelta]:
    from driftline.deltas import RowDelta

    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                delta = RowDelta.from_wire(json.loads(line))
            except (ValueError, DeltaError, RecursionError) as error:
                message = error.message if isinstance(error, DeltaError) else f"not JSON ({error})"
                raise DeltaError(f"line {number}: {message}", line=number) from error
            yield delta


def _batches(deltas: Iterator[RowDelta], size: int) -> Iterator[list[RowDelta]]:
    group: list[RowDelta] = []
    for delta in deltas:
        group.append(delta)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group
