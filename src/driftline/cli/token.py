"""`driftline gateway token`: make the tokens that a gateway checks, and change its secrets."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import click

from driftline.errors import OptionError

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@click.group(
    epilog="""\b
Examples:
  driftline gateway token rotate --secret-file secret.txt
  driftline gateway token create --sub laptop --gateway main --secret-file secret.txt
  driftline gateway token create --sub ops --gateway main --role admin --ttl 15m --secret-file secret.txt
"""
)
def token() -> None:
    """Make tokens for a sync gateway and change its secrets."""


@token.command(
    epilog="""\b
Examples:
  driftline gateway token create --sub laptop --gateway main --secret-file secret.txt
  driftline gateway token create --sub ops --gateway main --role admin --ttl 15m --claim teams='["red"]'
"""
)
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
def create(
    sub: str,
    gateway: str,
    role: str,
    ttl: str,
    claims: tuple[str, ...],
    secret_file: Path | None,
    private_key: Path | None,
    alg: str,
    kid: str | None,
) -> None:
    """Print a signed token.

    The secret comes from --secret-file or from DRIFTLINE_JWT_SECRET and is never printed.
    """
    from driftline.deltas._deltas import check_gateway_id
    from driftline.gateway._auth import sign

    check_gateway_id(gateway)
    now = int(time.time())
    content = {**_claims(claims), "sub": sub, "gw": gateway, "role": role, "iat": now, "exp": now + _ttl_seconds(ttl)}
    if private_key is not None:
        click.echo(sign(content, _read(private_key), algorithm=alg, key_id=kid))
    else:
        click.echo(sign(content, _signing_secret(secret_file)))


@token.command(
    epilog="""\b
Examples:
  driftline gateway token rotate --secret-file secret.txt
  driftline gateway token rotate --secret-file secret.txt --keep 0
"""
)
@click.option("--secret-file", required=True, type=click.Path(path_type=Path), help="The file the gateway reads.")
@click.option("--keep", default=1, show_default=True, type=click.IntRange(0), help="Old secrets that stay valid.")
def rotate(secret_file: Path, keep: int) -> None:
    """Put a new secret first in the file (made if missing).

    A running gateway notices. New tokens are signed with the new secret; tokens of the kept old ones stay valid, so
    rotate again with --keep 0 once they have expired.
    """
    from driftline.gateway._auth import rotate_secret_file

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


def _signing_secret(secret_file: Path | None) -> str:
    from driftline.gateway._auth import parse_secrets, read_secret_file
    from driftline.gateway._settings import SECRET_VARIABLE

    if secret_file is not None:
        found = read_secret_file(secret_file)
    else:
        found = parse_secrets(os.environ.get(SECRET_VARIABLE, ""), SECRET_VARIABLE)
    if not found:
        raise OptionError(f"no secret to sign with: give --secret-file or set {SECRET_VARIABLE}", code="no_keys")
    return found[0]


def _read(path: Path) -> str:
    from driftline.core._files import explain_io_errors

    with explain_io_errors(path):
        return path.read_text("utf-8")
