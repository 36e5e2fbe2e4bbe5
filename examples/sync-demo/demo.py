"""Two clients and a gateway: one of them is cut off for a while, both edit on, and they converge.

Run it with `python examples/sync-demo/demo.py`.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from driftline.client import Store
from driftline.gateway import sign

GATEWAY, TABLE = "demo", "todos"


def main() -> None:
    secret = secrets.token_urlsafe(32)
    with tempfile.TemporaryDirectory() as directory:
        server, url = start_gateway(Path(directory), secret)
        try:
            play(Path(directory), url, secret)
        finally:
            server.terminate()
            server.wait()


def play(directory: Path, url: str, secret: str) -> None:
    laptop, phone = (
        Store(directory / f"{name}.db", name, url=url, gateway=GATEWAY, token=token_for(name, secret))
        for name in ("laptop", "phone")
    )
    laptop.put(TABLE, "1", {"title": "buy milk", "done": False})
    laptop.put(TABLE, "2", {"title": "call Ada", "done": False})
    laptop.sync()
    phone.sync()
    show("both in touch", laptop, phone)

    # The phone loses its network; both go on.
    phone.put(TABLE, "1", {"done": True})
    phone.put(TABLE, "3", {"title": "written on the train", "done": False})
    laptop.put(TABLE, "1", {"title": "buy oat milk"})
    laptop.delete(TABLE, "2")
    laptop.sync()
    show("the phone is cut off", laptop, phone)

    phone.sync()
    laptop.sync()
    show("back again", laptop, phone)
    if laptop.rows(TABLE) != phone.rows(TABLE):
        sys.exit("the clients differ")
    print("converged")
    laptop.close()
    phone.close()


def show(when: str, *stores: Store) -> None:
    print(f"\n{when}")
    for store in stores:
        print(f"  {store.client_id:<7} {store.rows(TABLE)}")


def token_for(name: str, secret: str) -> str:
    return sign({"sub": name, "gw": GATEWAY, "exp": int(time.time()) + 3600}, secret)


def start_gateway(directory: Path, secret: str, *options: str) -> tuple[subprocess.Popen[str], str]:
    serve = [sys.executable, "-m", "driftline", "gateway", "serve", "--gateway", GATEWAY, "--port", "0"]
    server = subprocess.Popen(
        [*serve, "--data", str(directory / "gateway"), *options],
        env={**os.environ, "DRIFTLINE_JWT_SECRET": secret},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    listening = server.stderr.readline()
    port = re.search(r'"port": (\d+)', listening)
    if port is None:
        sys.exit(f"the gateway did not start: {listening}")
    threading.Thread(target=server.stderr.read, daemon=True).start()  # or its log would stop it one day
    return server, f"http://127.0.0.1:{port.group(1)}"


if __name__ == "__main__":
    main()
