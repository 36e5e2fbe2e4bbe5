"""`driftline gateway`: send deltas to a gateway, fetch them as JSON lines, and make its tokens."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from driftline.cli._group import LazyGroup, several
from driftline.cli._views import counted, print_result
from driftline.core import io_errors, open_output, write_atomically
from driftline.errors import DeltaError, GatewayError, OptionError

if TYPE_CHECKING:
    from driftline.client import GatewayClient
    from driftline.deltas import RowDelta

_TOKEN_VARIABLE = "DRIFTLINE_TOKEN"  # noqa: S105 - the name of a variable
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


_gateway_options = several(
    click.option("--url", default="http://127.0.0.1:8787", show_default=True, help="The gateway's address."),
    click.option("--gateway", "--gw", required=True, metavar="ID", help="The gateway's id."),
    click.option("--client-id", help="The id of the client.  [default: the token's subject]"),
    click.option("--token-file", type=click.Path(path_type=Path), help="The token.  [or: DRIFTLINE_TOKEN]"),
    click.option("--patience", default=30.0, show_default=True, help="Seconds to retry while the gateway is busy."),
)


@click.group(cls=LazyGroup)
def gateway() -> None:
    """Sync row deltas through a gateway (`driftline serve --gateway ID`): push, pull, make tokens."""


@gateway.command(short_help="Send row deltas to a gateway.")
@click.argument("deltas", type=click.File("rb"))
@_gateway_options
@click.option("--batch", type=click.IntRange(1, 10000), default=1000, show_default=True, help="Deltas of one push.")
def push(deltas: IO[bytes], batch: int, **options: Any) -> None:
    """Send row deltas (JSON lines, `-` for stdin) to a gateway.

    Sending the same deltas again changes nothing. Prints how many were accepted and how many of them were new.
    """
    client = _client(**options)
    accepted = applied = server_hlc = 0
    found = _read_deltas(deltas)
    while group := list(islice(found, batch)):
        answer = client.push(group)
        accepted += answer["accepted"]
        applied += len(answer["deltas"])
        server_hlc = answer["serverHlc"]
    record = {"accepted": accepted, "applied": applied, "serverHlc": str(server_hlc)}
    print_result(record, f"{counted(accepted, 'delta')} accepted, {applied:,} of them new")


@gateway.command(short_help="Fetch row deltas from a gateway.")
@_gateway_options
@click.option("--since", default="0", show_default=True, help="Only deltas with a greater hlc.")
@click.option("--cursor-file", type=click.Path(path_type=Path), help="Go on where the last pull with it ended.")
@click.option("--refetch", is_flag=True, help="Ignore the cursor and fetch everything.")
@click.option("--snapshot", is_flag=True, help="Fetch the state of all rows; the cursor goes on behind it.")
@click.option("--limit", type=click.IntRange(1, 10000), default=5000, show_default=True, help="Deltas of a page.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="A file instead of stdout.")
def pull(output: Path | None, cursor_file: Path | None, **requested: Any) -> None:
    """Fetch row deltas from a gateway as JSON lines, in order of arrival.

    With --cursor-file each delta is fetched once, also those that arrive late. A gateway that has forgotten old deltas
    has a snapshot to begin with: lines with the columns of each row and their stamps.
    """

    cursor = None
    with open_output(output) as out:
        for rows, reached in _pages(cursor_file, **requested):
            lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
            out.write("".join(f"{line}\n" for line in lines).encode())
            cursor = reached
    if cursor_file is not None and cursor is not None:
        write_atomically(cursor_file, f"{cursor}\n".encode())


def _pages(
    cursor_file: Path | None, *, since: str, refetch: bool, snapshot: bool, limit: int, **options: Any
) -> Iterator[tuple[list[Any], str]]:
    """The lines of each page, and the cursor after it."""
    from driftline.deltas import hlc_from_wire

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
    from driftline.client import GatewayClient

    token = _token(token_file)
    name = client_id or _subject(token)
    if name is None:
        raise OptionError(f"who is asking? Give --token-file, {_TOKEN_VARIABLE} or --client-id", code="no_client")
    return GatewayClient(url, gateway, name, token=token, patience=patience)


def _token(token_file: Path | None) -> str | None:
    if token_file is None:
        return os.environ.get(_TOKEN_VARIABLE) or None
    with io_errors(token_file):
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


@gateway.group(short_help="Make tokens for a gateway and change its secrets.")
def token() -> None:
    """Make tokens for a sync gateway and change its secrets."""


@token.command()
@click.option("--sub", required=True, help="The client's id.")
@click.option("--gateway", "--gw", required=True, metavar="ID", help="The gateway's id.")
@click.option(
    "--role", type=click.Choice(["client", "admin"]), default="client", show_default=True, help="What it may do."
)
@click.option("--ttl", default="1h", show_default=True, help="How long it is valid: 30s, 15m, 12h, 7d.")
@click.option("--claim", "claims", multiple=True, metavar="NAME=JSON", help="One more claim, for sync rules.")
@click.option("--secret-file", type=click.Path(path_type=Path), help="HS256 secrets; the first one signs.")
@click.option("--private-key", type=click.Path(path_type=Path), help="PEM key, to sign with RS256 or ES256.")
@click.option("--alg", type=click.Choice(["RS256", "ES256"]), default="RS256", help="Algorithm of --private-key.")
@click.option("--kid", help="Key id of --private-key in the key set.")
def create(sub: str, gateway: str, role: str, ttl: str, claims: tuple[str, ...], **signing: Any) -> None:
    """Print a signed token.

    The secret comes from --secret-file or from DRIFTLINE_JWT_SECRET and is never printed.
    """
    from driftline.deltas import check_gateway_id

    check_gateway_id(gateway)
    now = int(time.time())
    content = {**_claims(claims), "sub": sub, "gw": gateway, "role": role, "iat": now, "exp": now + _ttl_seconds(ttl)}
    click.echo(_signed(content, **signing))


def _signed(
    content: dict[str, Any], secret_file: Path | None, private_key: Path | None, alg: str, kid: str | None
) -> str:
    from driftline.gateway import sign, signing_secret

    if private_key is None:
        return sign(content, signing_secret(secret_file))
    with io_errors(private_key):
        return sign(content, private_key.read_text("utf-8"), algorithm=alg, key_id=kid)


@token.command()
@click.option("--secret-file", type=click.Path(path_type=Path), required=True, help="The file the gateway reads.")
@click.option("--keep", type=click.IntRange(0), default=1, show_default=True, help="Old secrets that stay valid.")
def rotate(secret_file: Path, keep: int) -> None:
    """Put a new secret first in the file (made if missing).

    A running gateway notices. New tokens are signed with the new secret; tokens of the kept old ones stay valid, so
    rotate again with --keep 0 once they have expired.
    """
    from driftline.gateway import rotate_secret_file

    count = rotate_secret_file(secret_file, keep)
    click.echo(f"{secret_file.name} holds {count} secret{'s' if count > 1 else ''}", err=True)


def _claims(texts: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise OptionError(f"--claim {text!r} is not NAME=JSON")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value  # plain words need no quotes
    return found


def _ttl_seconds(text: str) -> int:
    match = re.fullmatch(r"([1-9][0-9]{0,8})([smhd])", text)
    if match is None:
        raise OptionError(f"--ttl {text!r} is not a time like 30s, 15m, 12h or 7d")
    return int(match.group(1)) * _SECONDS[match.group(2)]
