"""The nginx recipe of the guide, tried with nginx: pushes of full size, events without delay, long polls."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.feeds import Feed
from support.gateways import GATEWAY, Client, Server, delta, running
from support.processes import PATIENCE, start_process, wait_until

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "gateway.md"

pytestmark = pytest.mark.nginx

FRAME = """
daemon off; {user} pid {here}/nginx.pid; error_log {here}/error.log;
events {{ }}
http {{
    access_log off; client_body_temp_path {here}/body; proxy_temp_path {here}/proxy;
    fastcgi_temp_path {here}/f; uwsgi_temp_path {here}/u; scgi_temp_path {here}/s;
    server {{ listen 127.0.0.1:{port}; {location} }}
}}
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[Server, str]]:
    with running(tmp_path / "data", "--per-address", "0", "--rate-limit", "0") as server:
        recipe = re.search(r"```nginx\n(.*?)```", GUIDE.read_text(), re.S)
        assert recipe is not None
        location = recipe.group(1).replace("http://127.0.0.1:8787", server.url)
        port = free_port()
        configuration = tmp_path / "nginx.conf"
        user = "user root;" if os.geteuid() == 0 else ""  # or its workers could not write below this folder
        configuration.write_text(FRAME.format(here=tmp_path, port=port, location=location, user=user))
        nginx = start_process([str(NGINX), "-p", str(tmp_path), "-c", str(configuration)], stderr=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: is_up(url), url)
            yield server, url
        finally:
            nginx.terminate()
            nginx.wait(PATIENCE)


def is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").is_success
    except httpx.HTTPError:
        return False


def test_the_recipe(proxied: tuple[Server, str]) -> None:
    server, url = proxied
    client = Client(url)
    large = delta(row="large", text="x" * (12 << 20))
    assert client.push(large).status_code == 200
    start = client.pull(since="0").json()["cursor"]
    with client.http.stream("GET", f"/sync/{GATEWAY}/feed", params={"cursor": start}) as response:
        live = Feed(response)
        assert live.block() == {"retry": "2000"}
        server.client().push(delta(row="1"))
        assert [each["rowId"] for each in live.event()["data"]["deltas"]] == ["1"]
    late = threading.Timer(0.5, lambda: server.client().push(delta(row="2")))
    late.start()
    answer = client.pull(cursor=client.pull_all(cursor=start)[1], wait="20").json()
    assert [each["rowId"] for each in answer["deltas"]] == ["2"]
    late.join()
    # Failed tries are counted for the address behind the proxy, not for the proxy.
    assert httpx.get(f"{url}/sync/{GATEWAY}/pull?since=0").status_code == 401
    assert json.loads(httpx.get(f"{url}/").text)["gateway"] == GATEWAY
