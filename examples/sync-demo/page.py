"""A to-do page in the browser, synced through a gateway: open it twice, or switch one of its panes offline.

Run it with `python examples/sync-demo/page.py`; it prints its address. The tokens that it hands out to anybody who
asks are for a demonstration on this machine only.
"""

from __future__ import annotations

import argparse
import json
import secrets
import signal
import tempfile
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from demo import GATEWAY, start_gateway, token_for

HERE = Path(__file__).parent
CLIENT = HERE.parents[1] / "clients" / "javascript" / "src"
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".json": "application/json"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8080, help="of the page; 0 takes a free one")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C, the gateway too
    secret = secrets.token_urlsafe(32)
    with tempfile.TemporaryDirectory() as directory, ThreadingHTTPServer(("127.0.0.1", options.port), Page) as page:
        address = f"http://127.0.0.1:{page.server_address[1]}"
        server, url = start_gateway(Path(directory), secret, "--cors-origin", address)
        Page.url, Page.secret = url, secret
        print(f"{address}/ shows two clients, {address}/?clients=laptop one of them; Ctrl-C ends it", flush=True)
        try:
            page.serve_forever()
        except KeyboardInterrupt:
            pass
        finally:
            server.terminate()
            server.wait()


class Page(BaseHTTPRequestHandler):
    """The page's files, where the gateway is, and tokens."""

    url = secret = ""

    def do_GET(self) -> None:
        target = urllib.parse.urlsplit(self.path)
        name = target.path.lstrip("/") or "index.html"
        if name == "config.json":
            self.answer(json.dumps({"url": self.url, "gateway": GATEWAY}).encode(), ".json")
        elif name == "token":
            client = dict(urllib.parse.parse_qsl(target.query)).get("client", "guest")
            self.answer(token_for(client, self.secret).encode(), ".html")
        else:
            self.file(CLIENT / name.removeprefix("driftline/") if name.startswith("driftline/") else HERE / name)

    def do_POST(self) -> None:
        """What a page that played its story by itself (`?play`) has to say."""
        told = self.rfile.read(min(int(self.headers.get("Content-Length", "0")), 10_000)).decode(errors="replace")
        print("played", " ".join(told.split()), flush=True)
        self.answer(b"{}", ".json")

    def file(self, path: Path) -> None:
        if path.suffix in TYPES and path.parent in (HERE, CLIENT) and path.is_file():
            self.answer(path.read_bytes(), path.suffix)
        else:
            self.send_error(404)

    def answer(self, body: bytes, suffix: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", TYPES[suffix])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the library's name
        pass


if __name__ == "__main__":
    main()
