"""Authentication: JSON web tokens, checked against secrets and key sets that can be changed while the server runs."""

from __future__ import annotations

import base64
import http.client
import json
import logging
import os
import secrets
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt

from driftline.core import JsonObject, exact_loads, io_errors, write_atomically
from driftline.errors import DriftlineError, GatewayError, OptionError

SECRET_VARIABLE = "DRIFTLINE_JWT_SECRET"  # noqa: S105 - the name of a variable
MIN_SECRET_BYTES = 32  # RFC 7518, 3.2: an HS256 key has at least the size of the hash
ROLES = ("client", "admin")
ASYMMETRIC = ("RS256", "ES256")

_RELOAD_SECONDS = 1.0
_CACHED_TOKENS = 4096
_LEEWAY_SECONDS = 60  # between the clocks of a provider and of this machine
_KEYS_VALID_SECONDS = 86_400
_FETCH_SECONDS, _MAX_KEY_SET = 5, 1 << 20
PublicKey = tuple[str | None, str, Any]  # key id, algorithm, key
_logger = logging.getLogger("driftline.gateway.auth")


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, by its token."""

    client_id: str
    gateway: str
    role: str = "client"
    claims: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_admin(self) -> bool:
        """Whether admin routes are open."""
        return self.role == "admin"


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys that verify tokens: shared secrets, newest first, and public keys by id."""

    secrets: Sequence[str] = ()
    public: Sequence[PublicKey] = ()

    def candidates(self, algorithm: str, key_id: str | None) -> list[Any]:
        """The keys that may have signed a token with this header."""
        if algorithm == "HS256":
            return list(self.secrets)
        fitting = [(known, key) for known, kind, key in self.public if kind == algorithm]
        if key_id is None:
            return [key for _, key in fitting] if len(fitting) == 1 else []  # which of several is not guessed
        return [key for known, key in fitting if known == key_id]


@dataclass(frozen=True, slots=True)
class TokenPolicy:
    """What tokens must say beside a signature, and the names of the claims that an identity provider uses."""

    audiences: tuple[str, ...] = ()  # `aud` has one of them; without any, a token with `aud` is refused
    issuer: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)  # of the claims for sub, gw and role
    gateway: str | None = None  # of tokens without `gw` whose audience matches

    def claims(self, token: str, key: Any, algorithm: str) -> JsonObject:
        """The claims of a token that a key signed, under the gateway's names."""
        found: JsonObject = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=list(self.audiences) or None,
            issuer=self.issuer,
            leeway=_LEEWAY_SECONDS if self.issuer else 0,
            options={"require": ["exp"]},
        )
        # Verified by now: once more, with every digit of numbers that rules compare.
        found = exact_loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        mapped = {name: found.get(self.names.get(name, name)) for name in ("sub", "gw", "role")}
        if mapped["gw"] is None and self.audiences:
            mapped["gw"] = self.gateway
        for name in ("sub", "gw"):
            if mapped[name] is None:
                raise jwt.MissingRequiredClaimError(self.names.get(name, name))
        return {**found, **mapped, "role": mapped["role"] or "client"}


class ProviderKeys:
    """The public keys of an identity provider, fetched from its address: at the start, and then while they are used.

    Where a fetch fails, the keys that are known are valid for another day.
    """

    def __init__(self, address: str) -> None:
        parts = urllib.parse.urlsplit(address)
        is_local = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
        if parts.scheme != "https" and not is_local:  # its answer could be changed on the way
            message = f"--jwks {address}: keys are fetched by https (http on loopback only)"
            raise OptionError(message, code="invalid_url")
        self._address = address
        self._keys = _fetched_keys(address)
        self._fetched = self._tried = time.monotonic()

    def current(self) -> Sequence[PublicKey]:
        """The keys, none where they have not been confirmed for a day."""
        return self._keys if time.monotonic() - self._fetched < _KEYS_VALID_SECONDS else ()

    def renew(self, every: float) -> bool:
        """Fetch the keys unless that was tried less than so many seconds ago; whether they are other ones now."""
        if time.monotonic() - self._tried < every:
            return False
        self._tried = time.monotonic()
        try:
            found = _fetched_keys(self._address)
        except DriftlineError as error:
            _logger.error("keys not fetched", extra={"fields": {"code": error.code, "error": error.message}})
            return False
        self._fetched, before, self._keys = self._tried, self._keys, found
        return list(before) != found  # also where another key has the id of an earlier one


class Authenticator:
    """Turns `Authorization` headers into callers; key files are read again when they change."""

    def __init__(
        self,
        load: Callable[[], KeySet],
        watched: Sequence[Path] = (),
        policy: TokenPolicy | None = None,
        provider: ProviderKeys | None = None,
    ) -> None:
        self._load = load
        self._policy = policy or TokenPolicy()
        self._provider = provider
        self._watched = tuple(watched)
        self._keys = load()
        self._state = self._fingerprint()
        self._checked_at = time.monotonic()
        self._known: dict[str, Caller] = {}

    def caller(self, header: str | None) -> Caller:
        """The caller of an `Authorization: Bearer …` header."""
        if header is None:
            raise _unauthenticated("a bearer token is required")
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise _unauthenticated("the Authorization header is not a bearer token")
        self._reload_when_changed()
        token = token.strip()
        known = self._known.get(token)
        leeway = _LEEWAY_SECONDS if self._policy.issuer else 0
        if known is not None and known.claims["exp"] + leeway > time.time():
            return known
        claims = verify(token, self._all_keys(), self._policy)
        subject, gateway, role = claims["sub"], claims["gw"], claims.get("role", "client")
        if not isinstance(subject, str) or not subject or not isinstance(gateway, str):
            raise _unauthenticated("the token's sub and gw are not text")
        if isinstance(claims["exp"], bool) or not isinstance(claims["exp"], int | float) or claims["exp"] >= 1 << 63:
            raise _unauthenticated("the token's exp is not a time")  # the library also takes text with digits
        if role not in ROLES:
            raise GatewayError("the token's role is neither client nor admin", code="FORBIDDEN")
        caller = Caller(subject, gateway, role, claims)
        if len(self._known) >= _CACHED_TOKENS:
            self._known.clear()
        self._known[token] = caller
        return caller

    def lacks_key_of(self, header: str | None) -> bool:
        """Whether a provider may have a new key, with which a token was signed."""
        if self._provider is None or header is None:
            return False
        try:
            found = jwt.get_unverified_header(header.partition(" ")[2].strip())
        except (jwt.PyJWTError, ValueError, RecursionError):
            return False
        algorithm = str(found.get("alg"))
        return algorithm in ASYMMETRIC and not self._all_keys().candidates(algorithm, found.get("kid"))

    def renew_keys(self, every: float) -> None:
        """Fetch the provider's keys, unless that was tried less than so many seconds ago."""
        if self._provider is not None and (self._provider.renew(every) or not self._provider.current()):
            self._known.clear()

    def _all_keys(self) -> KeySet:
        if self._provider is None:
            return self._keys
        return KeySet(self._keys.secrets, (*self._keys.public, *self._provider.current()))

    def _reload_when_changed(self) -> None:
        now = time.monotonic()
        if now - self._checked_at < _RELOAD_SECONDS:
            return
        self._checked_at = now
        state = self._fingerprint()
        if state == self._state:
            return
        self._state = state
        try:
            self._keys = self._load()
        except DriftlineError as error:
            # A file that is missing or half written must not lock every client out.
            _logger.error("keys not reloaded", extra={"fields": {"code": error.code, "error": error.message}})
            return
        self._known.clear()

    def _fingerprint(self) -> list[tuple[int, int, int] | None]:
        found: list[tuple[int, int, int] | None] = []
        for path in self._watched:
            try:
                info = path.stat()
                found.append((info.st_mtime_ns, info.st_size, info.st_ino))
            except OSError:
                found.append(None)
        return found


def verify(token: str, keys: KeySet, policy: TokenPolicy) -> JsonObject:
    """The claims of a token that one of the keys signed and that has not expired."""
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise _unauthenticated("the token is malformed") from error
    algorithm, key_id = str(header.get("alg")), header.get("kid")
    candidates = keys.candidates(algorithm, key_id) if algorithm in ("HS256", *ASYMMETRIC) else []
    if not candidates:
        raise _unauthenticated("the token is signed with an algorithm or key that is not configured")
    for key in candidates:
        try:
            return policy.claims(token, key, algorithm)
        except jwt.InvalidSignatureError:
            continue
        except jwt.ExpiredSignatureError as error:
            raise _unauthenticated("the token has expired") from error
        except (jwt.PyJWTError, ValueError, TypeError, ArithmeticError) as error:  # the library passes some on
            raise _unauthenticated(f"the token is not valid: {error}") from error
    raise _unauthenticated("the token's signature is not valid")


def sign(claims: Mapping[str, Any], key: str, *, algorithm: str = "HS256", key_id: str | None = None) -> str:
    """A signed token."""
    headers = {"kid": key_id} if key_id else None
    try:
        return jwt.encode(dict(claims), key, algorithm=algorithm, headers=headers)
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise OptionError(f"the key cannot sign with {algorithm}: {error}", code="invalid_key") from error


def parse_secrets(text: str, where: str) -> list[str]:
    """Secrets separated by white space, the newest first; short ones are refused."""
    found = [word for word in text.split() if word]
    for secret in found:
        if len(secret.encode()) < MIN_SECRET_BYTES:
            raise OptionError(
                f"a secret in {where} is below {MIN_SECRET_BYTES} bytes: `driftline gateway token rotate` makes one",
                code="weak_secret",
            )
    return found


def read_secret_file(path: Path) -> list[str]:
    """The secrets of a file, one a line."""
    with io_errors(path):
        return parse_secrets(path.read_text("utf-8"), path.name)


def signing_secret(path: Path | None) -> str:
    """The newest secret of a file, or of the environment where no file is named."""
    variable = os.environ.get(SECRET_VARIABLE, "")
    found = parse_secrets(variable, SECRET_VARIABLE) if path is None else read_secret_file(path)
    if not found:
        raise OptionError(f"no secret to sign with: give --secret-file or set {SECRET_VARIABLE}", code="no_keys")
    return found[0]


def rotate_secret_file(path: Path, keep: int) -> int:
    """Put a new secret first and keep the newest old ones, which still verify tokens; the number of secrets now."""
    old = read_secret_file(path) if path.exists() else []
    lines = [secrets.token_urlsafe(MIN_SECRET_BYTES), *old[:keep]]
    write_atomically(path, ("\n".join(lines) + "\n").encode())
    path.chmod(0o600)
    return len(lines)


def read_key_set(path: Path) -> list[PublicKey]:
    """The public RS256 and ES256 keys of a JSON web key set in a file."""
    with io_errors(path):
        return _parse_key_set(path.read_text("utf-8"), path.name)


def _parse_key_set(text: str | bytes, where: str) -> list[PublicKey]:
    try:
        keys = jwt.PyJWKSet.from_dict(json.loads(text)).keys
    except (ValueError, jwt.PyJWTError, AttributeError, TypeError) as error:
        raise OptionError(f"{where} is not a JSON web key set: {error}", code="invalid_key_set") from error
    signing = [key for key in keys if key.algorithm_name in ASYMMETRIC and key.public_key_use != "enc"]
    return [(key.key_id, key.algorithm_name, key.key) for key in signing]


class _SameHost(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if (old.scheme, old.netloc) != (new.scheme, new.netloc):
            raise OptionError(f"{req.full_url} redirects to another host", code="invalid_key_set")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _fetched_keys(address: str) -> list[PublicKey]:
    text, deadline = b"", time.monotonic() + _FETCH_SECONDS
    try:
        with urllib.request.build_opener(_SameHost).open(address, timeout=_FETCH_SECONDS) as response:
            while len(text) <= _MAX_KEY_SET and (part := response.read1(1 << 16)):
                text += part
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no complete response within {_FETCH_SECONDS} s")
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise OptionError(f"no keys from {address}: {reason}", code="invalid_key_set") from error
    if len(text) > _MAX_KEY_SET:
        raise OptionError(f"{address} is larger than {_MAX_KEY_SET} bytes", code="invalid_key_set")
    return _parse_key_set(text, address)


def _unauthenticated(message: str) -> GatewayError:
    return GatewayError(message, code="AUTH_ERROR")
