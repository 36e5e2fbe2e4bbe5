"""A console in a process of its own, and what people with a keyboard or a screen reader would miss on a page."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from support.processes import PATIENCE, start_process

ROOT = Path(__file__).parents[2]
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
SCREENSHOTS = ROOT / "out" / "screenshots"


class Server:
    """A `driftline ui` process on a free port of loopback."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-m", "driftline", "ui", str(folder), "--port", "0", *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        self.folder = folder
        self.process = start_process(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline()
        self.log: list[str] = []
        self._reader = threading.Thread(target=self.log.extend, args=(self.process.stderr,), daemon=True)
        self._reader.start()
        self.address = re.search(r"http://[^ ]+", self.said).group().split("?")[0].rstrip("/")  # type: ignore[union-attr]
        self.port = int(self.address.rpartition(":")[2])

    def ask(self, method: str, path: str, body: str | bytes = "", **headers: str) -> tuple[int, str, dict[str, str]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body.encode() if isinstance(body, str) else body
        connection.request(method, path, data, {"Origin": self.address, **sent})
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        connection.close()
        return answer.status, text, {name.lower(): value for name, value in answer.getheaders()}

    def token(self) -> str:
        return re.search(r'name="form-token" content="([^"]+)"', self.ask("GET", "/")[1]).group(1)  # type: ignore[union-attr]

    def post(self, address: str, **fields: str | list[str]) -> tuple[int, str, dict[str, str]]:
        """Send a form as a page of the console would."""
        return self.ask("POST", address, urlencode({"form_token": self.token(), **fields}, doseq=True))

    def close(self) -> None:
        """End the process; what it wrote must not hold an error that no page reported."""
        self.process.terminate()
        self.process.wait(PATIENCE)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        assert "Traceback" not in "".join(self.log), "".join(self.log)


def problems(page: Any, *rules: str) -> list[str]:
    """What axe finds wrong for people who use a keyboard, a screen reader or weak eyes; all rules, or those named."""
    # axe needs eval, which the policy of the page forbids: it is brought in from outside the page's own world.
    if page.evaluate("typeof axe === 'undefined'"):
        page.evaluate(AXE.read_text() + "; undefined")
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("async options => (await axe.run(options)).violations", options)
    return [f"{each['id']}: {each['nodes'][0]['html'][:120]}" for each in found]


def look_at(page: Any, name: str, *, dark_colours: bool = False, once: bool = False) -> None:
    """Pictures of a page, wide and narrow, light and dark, for people to look at; nothing stands in their way.

    Dark colours come from the same names on all pages: one that has them all is looked at for contrast. `once` is for
    a page that is made of the same parts as another.
    """
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    in_dark = ("color-contrast",) if dark_colours else None
    ways = (("light", 1440, ()), ("dark", 1440, in_dark), ("light", 420, None))
    for scheme, width, rules in ways[:1] if once else ways:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        page.screenshot(path=SCREENSHOTS / f"{name}-{scheme}-{width}.png")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
        found = [] if rules is None else problems(page, *rules)
        assert not found, found
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(color_scheme="light")
