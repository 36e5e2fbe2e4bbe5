"""The console as people use it: a real server, a real browser, hostile data and hostile requests."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from browser import CHROMIUM

ROOT = Path(__file__).parents[2]
AXE = Path(__file__).parent / "vendor" / "axe.min.js"


class Server:
    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-m", "driftline", "ui", str(folder), "--port", "0", *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        self.folder = folder
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline()
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

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("tables")
    for name in ("monday.csv", "tuesday.csv"):
        shutil.copy(ROOT / "examples/customers" / name, folder / name)
    (folder.parent / "secret.csv").write_text("id\n1\n")
    (folder / "link.csv").symlink_to(folder.parent / "secret.csv")
    running = Server(folder)
    yield running
    running.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed; it shows the pages as people see them")
    with api.sync_playwright() as tool:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        running = tool.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield running
        running.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page of its own; errors on its console, and so violations of the policy, fail the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    shown = context.new_page()
    complaints: list[str] = []
    shown.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    shown.on("pageerror", lambda error: complaints.append(str(error)))
    yield shown
    context.close()
    assert complaints == []


def compare(page: Any, server: Server) -> None:
    page.goto(server.address)
    page.fill("input[name=a]", "monday.csv")
    page.fill("input[name=b]", "tuesday.csv")
    page.press("input[name=b]", "Tab")
    page.wait_for_selector("input[name=key][value=id]:checked")
    page.click("button.primary")
    page.wait_for_url("**/results/*")
    page.wait_for_selector(".rates")


def problems(page: Any) -> list[str]:
    """What axe finds wrong for people who use a keyboard, a screen reader or weak eyes."""
    # axe needs eval, which the policy of the page forbids: it is brought in from outside the page's own world.
    page.evaluate(AXE.read_text() + "; undefined")
    found = page.evaluate("async () => (await axe.run({resultTypes: ['violations']})).violations")
    return [f"{each['id']}: {each['nodes'][0]['html'][:120]}" for each in found]


def test_from_two_files_to_a_filtered_diff_with_mouse_and_keys(page: Any, server: Server) -> None:
    compare(page, server)
    assert "79" in page.inner_text(".kinds .added")
    assert page.inner_text(".rates li:first-child .name") == "balance"
    page.click(".rates li:first-child a")
    page.wait_for_url("**column=balance")
    assert "88 rows" in page.inner_text(".tools [role=status]")
    page.keyboard.press("c")
    page.wait_for_url("**kind=changed**")
    page.click(".chip >> nth=0")
    page.wait_for_url(lambda url: "kind=" not in url)
    page.keyboard.press("/")
    page.keyboard.type("C00004")
    page.wait_for_url("**q=C00004**")
    page.wait_for_selector(".changes tbody tr")
    assert page.locator(".changes tbody tr").count() == 1
    assert page.inner_text("td.cell").split() == ["2182.89", "2270.20", "+87.31", "(+4.0%)"]
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 1
    page.keyboard.press("Escape")
    page.go_back()
    page.wait_for_selector(".changes tbody tr:nth-child(2)")


def test_pages_rows_and_theme_by_keyboard(page: Any, server: Server) -> None:
    compare(page, server)
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("[...document.querySelectorAll('.changes tbody tr')].indexOf(document.activeElement)") == 1
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**page=2")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") in ("light", "dark")
    with page.expect_download() as download:
        page.click("summary >> text=Download")
        page.click(".menu a >> text=csv")
    assert Path(download.value.path()).read_text().startswith("_change,")


def test_reading_works_without_scripts(browser: Any, page: Any, server: Server) -> None:
    compare(page, server)
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(page.url)
    plain.click(".kinds .added")
    assert "79 rows" in plain.inner_text(".tools [role=status]")
    plain.fill("#search", "Hugo")
    plain.click("form.tools button")
    assert plain.locator(".changes tbody tr").count() > 0
    context.close()


def test_nothing_stands_in_the_way_of_people(page: Any, server: Server) -> None:
    page.goto(server.address)
    assert problems(page) == []
    compare(page, server)
    assert problems(page) == []
    page.emulate_media(color_scheme="dark")
    assert problems(page) == []


def test_screenshots_are_written(browser: Any, page: Any, server: Server, request: pytest.FixtureRequest) -> None:
    compare(page, server)
    folder = ROOT / "out" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    for scheme, width in (("light", 1440), ("dark", 1440), ("light", 420)):
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        shown = context.new_page()
        shown.goto(page.url)
        shown.wait_for_selector(".rates")
        shown.screenshot(path=folder / f"diff-{scheme}-{width}.png")
        assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
            "the page itself never scrolls sideways"
        )
        context.close()


# --- hostile data ----------------------------------------------------------------------------------------------------


def write_events(path: Path, columns: list[str], rows: list[dict[str, Any]]) -> None:
    lines: list[Any] = [{"type": "schema", "columns_a": columns, "columns_b": columns}]
    lines += [{"type": "added", "key": {columns[0]: row.get(columns[0])}, "row": row} for row in rows]
    counts = {"rows_added": len(rows), "rows_removed": 0, "rows_changed": 0, "rows_unchanged": 0}
    lines.append({"type": "stats", "rows_total_compared": 0, **counts})
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


def test_hostile_cells_are_text(page: Any, server: Server) -> None:
    nasty = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
    wide = ["id", *(f"c{n}" for n in range(5000))]
    write_events(server.folder / "nasty.jsonl", wide, [{"id": nasty, "c0": "\u202eabc", "c1": "x" * 1_000_000}])
    page.goto(f"{server.address}/open?path=nasty.jsonl")
    page.wait_for_selector(".rates")
    assert nasty in page.inner_text("th[scope=row]")
    assert page.title() == "nasty.jsonl · driftline"
    assert "more columns are not shown" in page.inner_text("main")


def test_files_that_are_no_results_are_named(server: Server) -> None:
    (server.folder / "cut.jsonl").write_text('{"type":"schema","columns_a":["a"],"columns_b":["a"]}\n{"type":"added"')
    (server.folder / "binary.jsonl").write_bytes(b"\x00\xff\xfe" * 1000)
    for name, words in (("cut.jsonl", "cut off"), ("binary.jsonl", "holds no events"), ("monday.csv", "no events")):
        status, text, _ = server.ask("GET", f"/open?{urlencode({'path': name})}")
        assert status == 422
        assert words in text
        assert "Traceback" not in text


def test_damaged_and_changing_files_do_no_harm(server: Server) -> None:
    path = server.folder / "moving.jsonl"
    dice = random.Random(5)
    for round_number in range(25):
        write_events(path, ["id", "v"], [{"id": str(n), "v": "é" * dice.randint(0, 9)} for n in range(200)])
        data = bytearray(path.read_bytes())
        for _ in range(dice.randint(0, 4)):
            data[dice.randrange(60, len(data))] = dice.randrange(256)
        path.write_bytes(data[: len(data) - dice.choice([0, 0, dice.randrange(len(data) // 2)])])
        for query in ("", "&page=3", "&q=7", "&kind=added&page=2"):
            status, text, _ = server.ask("GET", f"/open?path=moving.jsonl{query}")
            assert status in (200, 409, 422), (round_number, query, text[:500])
            assert "Internal Server Error" not in text


# --- hostile requests ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../secret.csv", "/etc/passwd", "link.csv", "a\0b", "", "nowhere.csv", "..", "x/../../y"]
)
def test_nobody_leaves_the_folder(server: Server, name: str) -> None:
    query = urlencode({"path": name, "a": name, "b": "monday.csv"})
    assert server.ask("GET", f"/open?{query}")[0] == 404
    assert server.ask("GET", f"/columns?{query}")[0] == 404
    form = urlencode({"form_token": server.token(), "a": name, "b": "monday.csv"})
    assert server.ask("POST", "/compare", form)[0] == 404


def test_static_files_and_ids_do_not_leave_either(server: Server) -> None:
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/results/../../etc", "/results/..%2f..", "/jobs/zzz"):
        status, text, _ = server.ask("GET", path)
        assert status == 404
        assert "import" not in text


def test_requests_from_elsewhere_are_refused(server: Server) -> None:
    token = server.token()
    form = urlencode({"form_token": token, "a": "monday.csv", "b": "tuesday.csv"})
    assert server.ask("GET", "/", Host="evil.example")[0] == 421
    assert server.ask("GET", "/", Host=f"127.0.0.1.evil.example:{server.port}")[0] == 421
    assert server.ask("POST", "/compare", form, Origin="http://evil.example")[0] == 403
    assert server.ask("POST", "/compare", form, Origin="null")[0] == 403
    assert server.ask("POST", "/compare", form.replace(token, "guessed"))[0] == 403
    assert server.ask("PUT", "/uploads/x.csv", "id\n1\n")[0] == 403
    assert server.ask("PUT", "/uploads/.hidden", "id\n1\n", X_Form_Token=token)[0] == 422
    assert server.ask("PUT", "/uploads/x.csv", "id\n1\n", X_Form_Token=token)[0] == 200
    assert server.ask("POST", "/compare", "x" * (2 << 20))[0] == 413
    assert not (server.folder / "x.csv").exists()


def test_every_answer_carries_the_policy(server: Server) -> None:
    for path in ("/", "/static/console.js", "/nowhere", "/open?path=../x"):
        headers = server.ask("GET", path)[2]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_beyond_loopback_a_token_is_asked_for(tmp_path: Path) -> None:
    server = Server(tmp_path, "--host", "0.0.0.0")
    try:
        token = server.said.partition("token=")[2].split()[0]
        assert server.ask("GET", "/")[0] == 401
        assert server.ask("GET", "/?token=wrong")[0] == 401
        status, _, headers = server.ask("GET", f"/?token={token}")
        assert (status, headers["location"]) == (303, "/")
        assert "HttpOnly" in headers["set-cookie"]
        assert server.ask("GET", "/", Cookie=headers["set-cookie"].split(";")[0])[0] == 200
    finally:
        server.close()


def test_a_failed_comparison_says_why(page: Any, server: Server) -> None:
    (server.folder / "ragged.csv").write_text("id,v\n1\n")
    page.goto(server.address)
    page.fill("input[name=a]", "monday.csv")
    page.fill("input[name=b]", "ragged.csv")
    page.click("button.primary")
    page.wait_for_selector(".problem")
    assert "error[" in page.inner_text(".problem")
    assert "internal" not in page.inner_text(".problem")
    assert server.ask("GET", "/")[0] == 200
