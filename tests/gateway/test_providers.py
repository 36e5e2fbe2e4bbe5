"""Tokens of an identity provider: audience, issuer, claims under other names, and keys from an address."""

from __future__ import annotations

import base64
import contextlib
import hmac
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt import algorithms, encode

from driftline.errors import GatewayError, OptionError
from driftline.gateway import GatewaySettings, authenticator
from driftline.gateway._auth import Authenticator, KeySet, ProviderKeys, TokenPolicy
from support.gateways import GATEWAY, running

ISSUER, AUDIENCE = "https://login.example/", "sync"
SECRET = "a-secret-that-is-long-enough-for-hs256"


@pytest.fixture(scope="module")
def keys() -> list[Any]:
    return [rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2)]


def public(key: Any, kid: str) -> dict[str, Any]:
    return {**json.loads(algorithms.RSAAlgorithm.to_jwk(key.public_key())), "kid": kid, "alg": "RS256"}


def claims(**changes: Any) -> dict[str, Any]:
    content = {"sub": "ann", "gw": GATEWAY, "aud": AUDIENCE, "iss": ISSUER, "exp": int(time.time()) + 600, **changes}
    return {name: value for name, value in content.items() if value is not None}


def bearer(key: Any, kid: str | None = "k0", **changes: Any) -> str:
    headers = None if kid is None else {"kid": kid}
    return "Bearer " + encode(claims(**changes), key, algorithm="RS256", headers=headers)


class Provider:
    """An HTTP server on loopback whose answer can be changed."""

    def __init__(self) -> None:
        self.answer: Callable[[], tuple[int, bytes, dict[str, str]]] = lambda: (200, b"{}", {})
        self.asked = 0
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked += 1
                status, body, headers = provider.answer()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                with contextlib.suppress(OSError):  # who asked has gone
                    for part in [body] if isinstance(body, bytes) else body:
                        self.wfile.write(part)

            def log_message(self, *_: object) -> None:
                return None

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/keys"

    def serves(self, *found: dict[str, Any]) -> None:
        self.answer = lambda: (200, json.dumps({"keys": found}).encode(), {})


@contextmanager
def provider(*found: dict[str, Any]) -> Iterator[Provider]:
    made = Provider()
    made.serves(*found)
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join()


def refused(auth: Authenticator, header: str) -> str:
    with pytest.raises(GatewayError) as error:
        auth.caller(header)
    return str(error.value.code.wire)


def with_secret(**policy: Any) -> Authenticator:
    return Authenticator(lambda: KeySet((SECRET,)), (), TokenPolicy(**policy))


def own(**changes: Any) -> str:
    return "Bearer " + encode(claims(**changes), SECRET, algorithm="HS256")


def test_audience_and_issuer() -> None:
    auth = with_secret(audiences=("other", AUDIENCE), issuer=ISSUER)
    assert auth.caller(own()).client_id == "ann"
    assert auth.caller(own(aud=["x", AUDIENCE])).client_id == "ann"
    for changes in ({"aud": "x"}, {"aud": None}, {"aud": 7}, {"iss": "https://else/"}, {"iss": None}):
        assert refused(auth, own(**changes)) == "AUTH_ERROR"
    assert refused(with_secret(), own()) == "AUTH_ERROR"  # a token for an audience that nobody named
    assert with_secret().caller(own(aud=None)).client_id == "ann"


def test_leeway_is_for_a_provider_only() -> None:
    late = int(time.time()) - 20
    assert with_secret(audiences=(AUDIENCE,), issuer=ISSUER).caller(own(exp=late)).client_id == "ann"
    assert refused(with_secret(audiences=(AUDIENCE,)), own(exp=late)) == "AUTH_ERROR"
    assert refused(with_secret(audiences=(AUDIENCE,), issuer=ISSUER), own(exp=late - 60)) == "AUTH_ERROR"


def test_claims_under_other_names() -> None:
    names = {"gw": "https://example/gateway", "role": "https://example/role", "sub": "email"}
    auth = with_secret(audiences=(AUDIENCE,), names=names)
    token = own(gw=None, email="ann@example", role="admin", **{"https://example/gateway": GATEWAY})
    caller = auth.caller(token)
    assert (caller.client_id, caller.gateway, caller.role) == ("ann@example", GATEWAY, "client")
    assert caller.claims["sub"] == "ann@example"  # what rules compare is the caller's identity
    assert refused(auth, own(email="ann@example")) == "AUTH_ERROR"
    admin = own(email="a", **{"https://example/gateway": GATEWAY, "https://example/role": "admin"})
    assert auth.caller(admin).is_admin
    for role in ("Admin", ["admin"], True):
        header = own(email="a", **{"https://example/gateway": GATEWAY, "https://example/role": role})
        assert refused(auth, header) == "FORBIDDEN"


def test_the_gateway_of_an_audience() -> None:
    auth = with_secret(audiences=(AUDIENCE,), gateway=GATEWAY)
    assert auth.caller(own(gw=None)).gateway == GATEWAY
    assert auth.caller(own(gw="gw-2")).gateway == "gw-2"
    assert refused(auth, own(gw=None, aud="x")) == "AUTH_ERROR"
    assert refused(with_secret(audiences=(AUDIENCE,)), own(gw=None)) == "AUTH_ERROR"


def test_keys_of_an_address(keys: list[Any]) -> None:
    with provider(public(keys[0], "k0")) as served:
        auth = Authenticator(KeySet, (), TokenPolicy((AUDIENCE,), ISSUER), ProviderKeys(served.address))
        assert auth.caller(bearer(keys[0])).client_id == "ann"
        assert auth.caller(bearer(keys[0], None)).client_id == "ann"  # the only key there is
        served.serves(public(keys[0], "k0"), public(keys[1], "k1"))
        new = bearer(keys[1], "k1")
        assert refused(auth, new) == "AUTH_ERROR"
        assert auth.lacks_key_of(new)
        auth.renew_keys(3600)  # fetched a moment ago: not again
        assert served.asked == 1
        auth.renew_keys(0)
        assert auth.caller(new).client_id == "ann"
        assert not auth.lacks_key_of(new)
        assert refused(auth, bearer(keys[0], None)) == "AUTH_ERROR"  # one of two keys: which is not said
        served.answer = lambda: (500, b"", {})
        auth.renew_keys(0)
        assert auth.caller(bearer(keys[1], "k1", sub="bob")).client_id == "bob"  # known keys stay
        served.serves(public(keys[1], "k1"))
        auth.renew_keys(0)
        assert refused(auth, bearer(keys[0])) == "AUTH_ERROR"  # a key that was withdrawn, also for a known token


def test_another_key_under_a_known_id(keys: list[Any]) -> None:
    """A provider that lost a key may serve the new one under its id: tokens of the lost one end, known or not."""
    with provider(public(keys[0], "k0")) as served:
        auth = Authenticator(KeySet, (), TokenPolicy((AUDIENCE,), ISSUER), ProviderKeys(served.address))
        known = bearer(keys[0])
        assert auth.caller(known).client_id == "ann"
        served.serves(public(keys[1], "k0"))
        auth.renew_keys(0)
        assert refused(auth, known) == "AUTH_ERROR"
        assert auth.caller(bearer(keys[1])).client_id == "ann"


def test_keys_that_were_not_confirmed_for_a_day(keys: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with provider(public(keys[0], "k0")) as served:
        auth = Authenticator(KeySet, (), TokenPolicy((AUDIENCE,), ISSUER), ProviderKeys(served.address))
        known = bearer(keys[0])
        assert auth.caller(known).client_id == "ann"
        monkeypatch.setattr("driftline.gateway._auth._KEYS_VALID_SECONDS", 0)
        auth.renew_keys(3600)  # tried a moment ago
        assert refused(auth, known) == "AUTH_ERROR"


def test_a_public_key_is_no_secret(keys: list[Any]) -> None:
    """A token that was signed with the text of a public key, as though it were a shared secret."""
    forged = jwk_signed(keys[0], claims())
    with provider(public(keys[0], "k0")) as served:
        for secrets in ((), (SECRET,)):
            load = partial(KeySet, secrets)
            auth = Authenticator(load, (), TokenPolicy((AUDIENCE,), ISSUER), ProviderKeys(served.address))
            assert refused(auth, forged) == "AUTH_ERROR"


def jwk_signed(key: Any, content: dict[str, Any]) -> str:
    form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    header = {"alg": "HS256", "typ": "JWT", "kid": "k0"}
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in (header, content)]
    mac = hmac.digest(key.public_key().public_bytes(*form), b".".join(parts), "sha256")
    return "Bearer " + b".".join([*parts, base64.urlsafe_b64encode(mac).rstrip(b"=")]).decode()


def test_a_response_that_never_ends(keys: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftline.gateway._auth._FETCH_SECONDS", 0.3)
    ended = threading.Event()

    def trickle() -> Iterator[bytes]:
        while not ended.wait(0.02):
            yield b" "

    with provider() as served:
        served.answer = lambda: (200, trickle(), {})  # type: ignore[return-value, assignment]
        with pytest.raises(OptionError, match="no complete response"):
            ProviderKeys(served.address)
        ended.set()


def test_no_secret_comes_from_a_key_set() -> None:
    secret = {"kty": "oct", "k": "YS1zZWNyZXQtdGhhdC1pcy1sb25nLWVub3VnaC1mb3ItaHMyNTY", "kid": "s", "alg": "HS256"}
    with provider(secret) as served:
        auth = Authenticator(KeySet, (), TokenPolicy((AUDIENCE,), ISSUER), ProviderKeys(served.address))
        assert refused(auth, own()) == "AUTH_ERROR"


def test_what_an_address_may_not_be(keys: list[Any]) -> None:
    with pytest.raises(OptionError, match="https"):
        ProviderKeys("http://login.example/keys")
    with provider(public(keys[0], "k0")) as served, provider(public(keys[0], "k0")) as other:
        answers: list[tuple[int, bytes, dict[str, str]]] = [
            (404, b"", {}),
            (200, b"no json", {}),
            (200, b" " * (1 << 21), {}),
            (302, b"", {"Location": other.address}),
        ]
        for answer in answers:
            served.answer = lambda found=answer: found  # type: ignore[misc]
            with pytest.raises(OptionError):
                ProviderKeys(served.address)
        assert other.asked == 0


def test_settings_of_an_address(tmp_path: Any) -> None:
    def made(**more: Any) -> Any:
        return authenticator(GatewaySettings(gateway=GATEWAY, data=tmp_path, **more), {})

    with pytest.raises(OptionError, match="--audience and --issuer"):
        made(key_set="https://login.example/keys", audiences=("a",))
    with pytest.raises(OptionError, match="needs --audience"):
        made(key_set="keys.json", gateway_from_audience=True)


@pytest.mark.servers
def test_a_running_gateway_learns_a_new_key(tmp_path: Any, keys: list[Any]) -> None:
    with provider(public(keys[0], "k0")) as served:
        options = ("--jwks", served.address, "--audience", AUDIENCE, "--issuer", ISSUER, "--claim", "sub=email")
        quiet = {"DRIFTLINE_JWT_SECRET": ""}
        with running(tmp_path / "data", *options, "--gateway-from-audience", environment=quiet) as server:
            client = server.client()

            def status(header: str) -> int:
                found = client.http.get(f"/sync/{GATEWAY}/pull?since=0", headers={"Authorization": header})
                return int(found.status_code)

            assert status(bearer(keys[0], email="ann", gw=None)) == 200
            assert status(bearer(keys[0], email="ann", aud="x")) == 401
            assert status(bearer(keys[1], "k1", email="ann")) == 401  # its one fetch of this half minute
            asked = served.asked
            assert {status(bearer(keys[1], "k1", email="ann")) for _ in range(5)} == {401}
            assert served.asked == asked
