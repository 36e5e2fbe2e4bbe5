"""What every server offers, with a gateway or without: one front, one shape of errors, TLS, tokens for comparisons."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from driftline.client._http import GatewayClient
from driftline.errors import DriftlineError, LakeError
from driftline.gateway._log.sqlite import SqliteLog
from driftline.http._requests import public_error
from support.compare_server import serving
from support.gateways import GATEWAY, SECRET, Server, delta, running, token
from support.processes import run_process, wait_until

pytestmark = pytest.mark.servers

PAIR = {"old_json": 1, "new_json": 1, "schema_fragment": {}}
FRONT = ["/", "/docs", "/openapi.json", "/health", "/ready", "/metrics", "/v1/health", "/v1/metrics"]


def check_front(url: str) -> None:
    for path in FRONT:
        assert httpx.get(url + path).status_code == 200, path
    index = httpx.get(url).json()
    for path in index["links"].values():
        if "sync" not in path and path != "/v1/compare":
            assert httpx.get(url + path).status_code == 200, path
    assert httpx.get(url, headers={"Accept": "text/html"}).headers["content-type"].startswith("text/html")
    assert "/v1/compare" in httpx.get(f"{url}/docs").text
    missing = httpx.get(f"{url}/nowhere")
    assert (missing.status_code, set(missing.json())) == (404, {"error", "code", "requestId"})
    refused = httpx.get(f"{url}/v1/compare")
    assert refused.status_code == 405
    assert (refused.json()["code"], refused.headers["x-request-id"]) == (
        "METHOD_NOT_ALLOWED",
        refused.json()["requestId"],
    )


def test_the_front_is_the_same_with_a_gateway_and_without(shared_server: Server) -> None:
    check_front(shared_server.url)
    assert httpx.get(shared_server.url).json()["gateway"] == GATEWAY
    with serving() as alone:
        check_front(alone)
        assert httpx.get(alone).json()["gateway"] is None
        httpx.post(f"{alone}/v1/compare", json=PAIR)
        metrics = httpx.get(f"{alone}/metrics").text
        assert 'driftline_requests_total{route="compare",status="200"} 1' in metrics


def test_comparing_beside_a_gateway_needs_its_token(shared_server: Server, tmp_path: Path) -> None:
    compare = f"{shared_server.url}/v1/compare"
    for path in (compare, f"{compare}/batch"):
        refused = httpx.post(path, json=PAIR)
        assert (refused.status_code, refused.json()["code"]) == (401, "AUTH_ERROR")
        assert refused.headers["www-authenticate"] == "Bearer"
        foreign = httpx.post(path, json=PAIR, headers={"Authorization": f"Bearer {token(gw='gw-2')}"})
        assert (foreign.status_code, foreign.json()["code"]) == (403, "FORBIDDEN")
    answer = httpx.post(compare, json=PAIR, headers={"Authorization": f"Bearer {token()}"})
    assert answer.json()["is_match"] is True
    assert httpx.get(f"{compare}/openapi.json").status_code == 200
    with running(tmp_path, "--open-compare") as server:
        assert httpx.post(f"{server.url}/v1/compare", json=PAIR).json()["is_match"] is True


def test_cors_exposes_what_clients_need(tmp_path: Path) -> None:
    with running(tmp_path, "--cors-origin", "https://app.example") as server:
        answer = httpx.get(f"{server.url}/sync/{GATEWAY}/pull", headers={"Origin": "https://app.example"})
        exposed = answer.headers["access-control-expose-headers"].lower()
        assert "retry-after" in exposed
        assert "x-request-id" in exposed
        asked = {
            "Access-Control-Request-Method": "GET",
            "Access-Control-Request-Headers": "authorization,last-event-id",
        }
        asked["Origin"] = "https://app.example"
        assert httpx.options(f"{server.url}/sync/{GATEWAY}/pull", headers=asked).status_code == 200


def test_codes_that_the_protocol_does_not_know() -> None:
    assert public_error(DriftlineError("the path /x", code="strange")).code == "INTERNAL_ERROR"
    assert "/x" not in public_error(DriftlineError("the path /x", code="strange")).message
    trouble = public_error(LakeError("/secret/lake is gone"))
    assert (trouble.code, trouble.context["retry_after"]) == ("BACKPRESSURE_ERROR", 5)
    assert "secret" not in trouble.message


def start(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "driftline", "serve", "--gateway", GATEWAY, "--port", "0", *options]
    return run_process(command, capture_output=True, text=True, check=False)


def test_keys_and_certificates_are_looked_at_before_the_port_is_taken(tmp_path: Path) -> None:
    data = ["--data", str(tmp_path / "data")]
    missing = start(*data, "--jwt-secret-file", str(tmp_path / "none.txt"))
    assert missing.returncode == 2
    assert "none.txt" in missing.stderr
    (tmp_path / "empty.pem").write_text("")
    insecure = [*data, "--insecure", "--tls-cert", str(tmp_path / "empty.pem")]
    assert "error[invalid_option]" in start(*insecure).stderr
    broken = start(*insecure, "--tls-key", str(tmp_path / "empty.pem"))
    assert (broken.returncode, "error[invalid_certificate]" in broken.stderr) == (2, True)
    assert not (tmp_path / "data").exists()


UNREADABLE = "keys not reloaded"


def test_a_secret_file_that_goes_away_keeps_its_keys(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET)
    options = ("--jwt-secret-file", str(secret), "--rate-limit", "0")
    with running(tmp_path / "data", *options, environment={"DRIFTLINE_JWT_SECRET": ""}) as server:
        client = server.client()
        assert client.pull(since="0").status_code == 200
        secret.unlink()
        # Requests make the server look at the file.
        wait_until(lambda: client.pull(since="0") and [each for each in server.lines if each["event"] == UNREADABLE])
        assert [client.pull(since="0").status_code for _ in range(3)] == [200] * 3
        secret.write_text("another-secret-that-is-long-enough-here")
        wait_until(lambda: client.pull(since="0").status_code == 401)
        server.stop()
        assert any(line["event"] == UNREADABLE for line in server.lines)


def certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate of its own for 127.0.0.1, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert, private = directory / "cert.pem", directory / "key.pem"
    cert.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return cert, private


@pytest.mark.parametrize("workers", ["1", "2"])
def test_tls(tmp_path: Path, workers: str) -> None:
    cert, key = certificate(tmp_path)
    options = ("--tls-cert", str(cert), "--tls-key", str(key), "--workers", workers)
    with running(tmp_path / "data", *options) as server:
        url = server.url.replace("http:", "https:")
        with httpx.Client(verify=ssl.create_default_context(cafile=str(cert))) as http:
            headers = {"Authorization": f"Bearer {token()}"}
            body = json.dumps({"clientId": "alice", "deltas": [delta()]})
            assert http.post(f"{url}/v1/sync/{GATEWAY}/push", content=body, headers=headers).status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health")


def test_a_users_values_stay_as_they_are(shared_server: Server) -> None:
    from driftline.deltas import RowDelta

    client = GatewayClient(shared_server.url, GATEWAY, "alice", token=token())
    made = RowDelta.from_wire(delta(row="values", note={"myHlc": "7", "deep": [{"HLC": "8"}]}))
    answer: Any = client.push([made])
    assert answer["deltas"][0]["columns"][0]["value"] == {"myHlc": "7", "deep": [{"HLC": "8"}]}
    assert answer["deltas"][0]["hlc"] == made.hlc
    assert isinstance(answer["serverHlc"], int)


def test_rules_that_an_older_version_took_still_hold(tmp_path: Path) -> None:
    mine = {"name": "b", "tables": ["todos"], "filters": [{"column": "owner", "op": "eq", "value": "jwt:sub"}]}
    listed = {"name": "c", "tables": ["todos"], "filters": [{"column": "n", "op": "gt", "value": [1]}]}
    with running(tmp_path) as server:
        server.stop()
    log = SqliteLog(tmp_path / "log.sqlite")
    stored = json.dumps({"version": 2, "buckets": [mine, listed]}).encode()
    log.change_document("rules", lambda _: stored, "config", "rules")
    log.close()
    with running(tmp_path) as server:
        owned = (delta(row="1", owner="alice", n=5), delta(row="2", owner="bob", n=5))
        assert server.client(role="admin").push(*owned).status_code == 200
        assert [each["rowId"] for each in server.client().pull_all()[0]] == ["1"]
        # They said nothing about writing: a client may write what it may read, and the operator is told at the start.
        assert server.client().push(delta(row="2", n=6)).json()["reason"] == "write_rules"
        assert any('without "writes"' in line.get("event", "") for line in server.lines)
