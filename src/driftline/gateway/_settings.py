"""The settings of a gateway, as plain data that worker processes can take over."""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driftline.deltas import check_gateway_id
from driftline.errors import OptionError
from driftline.gateway import _auth as auth
from driftline.gateway._lake.snapshot import DEFAULT_KEPT_BYTES
from driftline.gateway._log.log import DeltaLog
from driftline.gateway._log.sqlite import SqliteLog

_MIB = 1 << 20

# A scheduler of folds, open while the context is (the command line passes one that opens a Spark session).
OpenEngine = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """When a table is compacted: by the number, the size or the age of its pending deltas."""

    deltas: int = 50_000
    size: int = 64 << 20
    seconds: float = 300.0
    open_engine: OpenEngine | None = None  # where folds run; None: on threads of the compaction process
    feed: bool | None = None  # whether `state` gets a change data feed; None: as it is


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """One gateway: its id, its directory and its limits."""

    gateway: str
    data: Path
    lake: str | None = None  # a directory or object-store URL; by default `lake` inside the data directory
    log: str | None = None  # the address of a PostgreSQL database; by default a file in the data directory
    secret_file: Path | None = None
    key_set: str | None = None  # the file or the address of a JSON web key set
    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    claim_names: Mapping[str, str] = field(default_factory=dict)  # of an identity provider, for sub, gw and role
    gateway_from_audience: bool = False
    insecure: bool = False
    workers: int = 1
    body_limit: int = 16 * _MIB
    rate_limit: float = 200.0
    max_pending: int = 50_000
    flush_bytes: int = 16 * _MIB
    flush_seconds: float = 60.0
    retention_days: float | None = None
    history_days: float | None = 30.0  # how long the Delta logs of the lake are kept; None: for ever
    cors_origins: tuple[str, ...] = ()
    snapshot_bytes: int = DEFAULT_KEPT_BYTES  # of merged rows that are stored for pages of snapshots
    adopt_lake: bool = False  # take over a lake that belongs to another log
    compaction: CompactionSettings | None = field(default_factory=CompactionSettings)  # None: by hand only
    run: str = field(default_factory=lambda: secrets.token_hex(8))  # names this start, in all its processes
    open_compare: bool = False  # whether comparisons beside the gateway need no token

    def __post_init__(self) -> None:
        check_gateway_id(self.gateway)
        if self.workers < 1:
            raise OptionError("--workers is at least 1")
        if self.log is not None and not self.log.startswith(("postgresql://", "postgres://")):
            raise OptionError("--log is the address of a PostgreSQL database: postgresql://user@host/database")

    def open_log(self) -> DeltaLog:
        """The gateway's log."""
        if self.log is None:
            return SqliteLog(self.data / "log.sqlite")
        from driftline.gateway._log.postgres import PostgresLog

        return PostgresLog(self.log, self.gateway)

    @property
    def lake_location(self) -> str:
        """The location of the lake."""
        return self.lake or str(self.data / "lake")


def authenticator(settings: GatewaySettings, environment: Mapping[str, str] = os.environ) -> auth.Authenticator | None:
    """The authenticator that the settings define; None only with `--insecure`."""
    if settings.insecure:
        return None
    is_address = settings.key_set is not None and "://" in settings.key_set
    key_file = None if settings.key_set is None or is_address else Path(settings.key_set)
    paths = [path for path in (settings.secret_file, key_file) if path is not None]
    if is_address and not (settings.audiences and settings.issuer):
        message = "a provider signs tokens for many services: --jwks with an address needs --audience and --issuer"
        raise OptionError(message, code="no_audience")
    if settings.gateway_from_audience and not settings.audiences:
        raise OptionError("--gateway-from-audience needs --audience", code="no_audience")

    def load() -> auth.KeySet:
        known = auth.parse_secrets(environment.get(auth.SECRET_VARIABLE, ""), auth.SECRET_VARIABLE)
        if settings.secret_file is not None:
            known += auth.read_secret_file(settings.secret_file)
        public = [] if key_file is None else auth.read_key_set(key_file)
        return auth.KeySet(tuple(known), tuple(public))

    keys = load()
    if not keys.secrets and not keys.public and not is_address:
        ways = f"set {auth.SECRET_VARIABLE}, or give --jwt-secret-file or --jwks"
        raise OptionError(f"a gateway needs keys to check tokens with: {ways}", code="no_keys")
    own = settings.gateway if settings.gateway_from_audience else None
    policy = auth.TokenPolicy(settings.audiences, settings.issuer, settings.claim_names, own)
    return auth.Authenticator(load, paths, policy, auth.ProviderKeys(settings.key_set or "") if is_address else None)


def check_insecure(settings: GatewaySettings, host: str) -> None:
    """Without authentication a gateway only listens on loopback."""
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if settings.insecure and not is_loopback:
        raise OptionError(f"--insecure is for loopback only, not for {host}", code="insecure_host")
