"""Keys: rotation while the server runs, key sets, and the words of the command line."""

from __future__ import annotations

import base64
import hmac
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from support.gateways import GATEWAY, SECRET, SOURCE, Client, running
from support.processes import run_process, wait_until

pytestmark = pytest.mark.servers


def driftline(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "DRIFTLINE_JWT_SECRET"}
    return run_process(
        [sys.executable, "-m", "driftline", *words],
        env={**clean, "PYTHONPATH": str(SOURCE), **environment},
        capture_output=True,
        text=True,
    )


def pull_status(url: str, token: str) -> int:
    client = Client(url)
    client.http.headers["Authorization"] = f"Bearer {token}"
    return client.pull(since="0").status_code


def create(secret_file: Path, *more: str) -> str:
    made = driftline(
        "gateway", "token", "create", "--sub", "alice", "--gateway", GATEWAY, "--secret-file", str(secret_file), *more
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def test_secrets_rotate_while_the_server_runs(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.txt"
    rotated = driftline("gateway", "token", "rotate", "--secret-file", str(secrets))
    assert (rotated.returncode, rotated.stdout) == (0, "")
    assert secrets.read_text().strip() not in rotated.stderr
    assert secrets.stat().st_mode & 0o077 == 0
    old = create(secrets)
    with running(
        tmp_path / "data", "--jwt-secret-file", str(secrets), environment={"DRIFTLINE_JWT_SECRET": ""}
    ) as server:
        assert pull_status(server.url, old) == 200
        driftline("gateway", "token", "rotate", "--secret-file", str(secrets))
        new = create(secrets)
        wait_until(lambda: pull_status(server.url, new) == 200)
        assert pull_status(server.url, old) == 200  # the old secret was kept
        driftline("gateway", "token", "rotate", "--secret-file", str(secrets), "--keep", "1")
        wait_until(lambda: pull_status(server.url, old) == 401)
        assert pull_status(server.url, new) == 200


def test_key_sets_with_rsa_and_elliptic_curves(tmp_path: Path) -> None:
    rsa_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    curve_key = ec.generate_private_key(ec.SECP256R1())
    foreign = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    algorithms = jwt.algorithms
    keys = [
        {**json.loads(algorithms.RSAAlgorithm.to_jwk(rsa_key.public_key())), "kid": "r1", "alg": "RS256"},
        {**json.loads(algorithms.ECAlgorithm.to_jwk(curve_key.public_key())), "kid": "e1", "alg": "ES256"},
    ]
    (tmp_path / "keys.json").write_text(json.dumps({"keys": keys}))
    for name, key in (("r", rsa_key), ("e", curve_key), ("f", foreign)):
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (tmp_path / f"{name}.pem").write_bytes(pem)

    def made(name: str, algorithm: str, *more: str) -> str:
        key = str(tmp_path / f"{name}.pem")
        words = ("--sub", "alice", "--gateway", GATEWAY, "--private-key", key, "--alg", algorithm, *more)
        return driftline("gateway", "token", "create", *words).stdout.strip()

    with running(
        tmp_path / "data", "--jwks", str(tmp_path / "keys.json"), environment={"DRIFTLINE_JWT_SECRET": ""}
    ) as server:
        assert pull_status(server.url, made("r", "RS256", "--kid", "r1")) == 200
        assert pull_status(server.url, made("r", "RS256")) == 200
        assert pull_status(server.url, made("e", "ES256", "--kid", "e1")) == 200
        assert pull_status(server.url, made("f", "RS256", "--kid", "r1")) == 401
        assert pull_status(server.url, made("r", "RS256", "--kid", "other")) == 401
        # HS256 is not configured here: nor with the public key as the secret, the old trick.
        claims = {"sub": "alice", "gw": GATEWAY, "exp": int(time.time()) + 60}
        assert pull_status(server.url, jwt.encode(claims, SECRET, algorithm="HS256")) == 401
        pem = rsa_key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        assert pull_status(server.url, signed_by_hand(claims, pem)) == 401


def signed_by_hand(claims: dict[str, Any], key: bytes) -> str:
    """HS256 without the library, which refuses to use a public key as a secret."""
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "HS256"}, claims)]
    signature = hmac.digest(key, b".".join(parts), "sha256")
    return b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


def test_without_authentication_only_on_loopback(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--insecure", environment={"DRIFTLINE_JWT_SECRET": ""}) as server:
        client = Client(server.url)
        del client.http.headers["Authorization"]
        assert client.push().status_code == 200
        assert client.pull(since="0", clientId="alice").status_code == 200
        assert client.pull(since="0").status_code == 400
        assert client.http.get("/sync/other/pull?since=0&clientId=a").status_code == 403
        assert client.http.post(f"/sync/{GATEWAY}/push", content=b"[").status_code == 400
        assert client.admin("flush").status_code == 200


SERVE = ("serve", "--gateway", GATEWAY, "--port", "0")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((*SERVE, "--data", "d"), "no_keys"),
        ((*SERVE, "--data", "d", "--insecure", "--host", "0.0.0.0"), "insecure_host"),
        ((*SERVE, "--data", "d", "--jwt-secret-file", "missing.txt"), "not_found"),
        (("serve", "--gateway", "no gateway", "--data", "d", "--insecure"), "validation_error"),
        (("serve", "--data", "d"), "usage"),
        (("gateway", "token", "create", "--sub", "a", "--gateway", "g"), "no_keys"),
        (("gateway", "token", "create", "--sub", "a", "--gateway", "g", "--ttl", "soon"), "invalid_option"),
        (("gateway", "token", "create", "--sub", "a", "--gateway", "g", "--claim", "x"), "invalid_option"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, words: tuple[str, ...], code: str) -> None:
    ended = driftline(*words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"error[{code}]: ")
    assert len(ended.stderr.splitlines()) == 1
    assert not Path("d").exists()


def test_weak_secrets_are_refused_and_not_shown() -> None:
    ended = driftline("gateway", "token", "create", "--sub", "a", "--gateway", "g", DRIFTLINE_JWT_SECRET="hunter2")
    assert ended.returncode == 2
    assert "error[weak_secret]" in ended.stderr
    assert "hunter2" not in ended.stderr


def test_claims_of_a_token() -> None:
    words = (
        "gateway",
        "token",
        "create",
        "--sub",
        "a",
        "--gateway",
        "g",
        "--role",
        "admin",
        "--ttl",
        "2h",
        "--claim",
        'teams=["x"]',
    )
    made = driftline(*words, DRIFTLINE_JWT_SECRET=SECRET)
    claims = jwt.decode(made.stdout.strip(), SECRET, algorithms=["HS256"])
    assert claims["exp"] - claims["iat"] == 7200
    assert (claims["sub"], claims["gw"], claims["role"], claims["teams"]) == ("a", "g", "admin", ["x"])


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_data_directory_belongs_to_one_gateway(tmp_path: Path, workers: str) -> None:
    with running(tmp_path):
        pass
    words = ("serve", "--gateway", "other", "--data", str(tmp_path), "--port", "0", "--workers", workers, "--insecure")
    ended = driftline(*words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "this data directory belongs to gateway 'gw-1', not 'other'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_older_names_still_work_and_say_what_they_are_called_now(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    ended = driftline("token", "rotate", "--secret-file", str(secret))
    assert (ended.returncode, '"driftline gateway token"' in ended.stderr) == (0, True)
    ended = driftline("token", "create", "--sub", "a", "--gw", "g", "--secret-file", str(secret))
    assert ended.stdout.count(".") == 2
