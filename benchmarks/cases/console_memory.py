"""Memory of the console at a million events: a real server process, asked as a browser asks it.

Two tables whose rows all differ are compared on the start page; the result is looked at, turned to its last page,
filtered by column, searched and downloaded; then a file of events is opened in another server. Each row has the
resident memory of the server then, and its peak (at most 300 MB; the process that compares is apart, and ends).
"""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

from benchmarks.contest import Row


class Browser:
    """Requests of one browser to a console that was started for it."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "driftline", "ui", str(folder), "--port", "0", "--no-open"]
        self.server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.server.stderr is not None
        found = re.search(r"http://[^ /]+:(\d+)", self.server.stderr.readline())
        assert found is not None
        self.port = int(found[1])

    def ask(self, method: str, path: str, body: str = "") -> tuple[int, str, str]:
        """The status, the text and the new place of an answer; what is downloaded is read and thrown away."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, body, {"Origin": f"http://127.0.0.1:{self.port}"})
        answer = connection.getresponse()
        if answer.getheader("content-disposition"):
            while answer.read(1 << 20):
                pass
            return answer.status, "", ""
        return answer.status, answer.read().decode(), answer.getheader("location") or ""

    def post(self, path: str, **fields: str) -> str:
        """Send a form; where it leads to."""
        token = re.search(r'name="form-token" content="([^"]+)"', self.ask("GET", "/")[1])
        assert token is not None
        return self.ask("POST", path, urlencode({"form_token": token[1], **fields}))[2]

    def memory(self) -> tuple[int, int]:
        """Resident memory of the server now, and the most it ever was, in MB."""
        text = Path(f"/proc/{self.server.pid}/status").read_text()
        now, most = (int(re.search(rf"{name}:\s+(\d+)", text)[1]) for name in ("VmRSS", "VmHWM"))  # type: ignore[index]
        return now // 1000, most // 1000


def write_tables(folder: Path, rows: int, share: float = 1.0) -> None:
    """Two tables of six columns, in which that share of the rows differs in one."""
    every = round(1 / share)
    for name, moved in (("old.csv", 0), ("new.csv", 1)):
        with (folder / name).open("w") as out:
            out.write("id,name,city,amount,day,note\n")
            for row in range(rows):
                shift = moved if row % every == 0 else 0
                cells = (
                    row,
                    f"name {row % 9973}",
                    f"city {row % 97}",
                    f"{row + shift}.50",
                    f"2026-01-{row % 28 + 1:02}",
                )
                out.write(",".join(map(str, cells)) + f",note {row}\n")


def run(full: bool) -> list[Row]:
    rows = 1_000_000 if full else 200_000
    with tempfile.TemporaryDirectory() as folder:
        write_tables(Path(folder), rows)
        found = []
        for steps in (_compared, _opened):
            browser = Browser(Path(folder))
            try:
                found += [_row(f"{rows:,} events: {step}", *browser.memory()) for step in steps(browser, Path(folder))]
            finally:
                browser.server.terminate()
                browser.server.wait()
        return found


def _row(case: str, now: int, most: int) -> Row:
    print(f"  {case}: {now} MB, peak {most} MB", file=sys.stderr, flush=True)
    return Row(case, "driftline ui", {"rss_mb": now, "peak_mb": most})


def _compared(browser: Browser, folder: Path) -> Iterator[str]:
    """What a user does with two tables, one step after the other."""
    browser.ask("GET", "/")
    yield "start page"
    job = browser.post("/compare", a="old.csv", b="new.csv", key="id")
    while not (result := browser.ask("GET", job)[2]):
        time.sleep(0.2)
    yield "compared"
    yield from _looked_at(browser, result, "?")
    for name in ("csv", "html"):
        browser.ask("GET", f"{result}/download?format={name}")
        yield f"download {name}"


def _opened(browser: Browser, folder: Path) -> Iterator[str]:
    """What a user does with a file of events from elsewhere, in another console: nothing is known of it yet."""
    command = [sys.executable, "-m", "driftline", "diff", "old.csv", "new.csv", "--key", "id", "-o", "foreign.jsonl"]
    subprocess.run(command, cwd=folder, check=False)
    yield from (f"file of events, {step}" for step in _looked_at(browser, "/open?path=foreign.jsonl", "&"))


def _looked_at(browser: Browser, result: str, mark: str) -> Iterator[str]:
    while "counting" in browser.ask("GET", result)[1]:
        time.sleep(0.2)
    yield "first page"
    for step, query in (("last page", "page=99999"), ("column", "column=amount"), ("search", "q=note+77777")):
        status, text, _ = browser.ask("GET", f"{result}{mark}{query}")
        assert status == 200, text
        yield step
