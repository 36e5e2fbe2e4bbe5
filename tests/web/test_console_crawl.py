"""Every page of a console that a link leads to: nothing dead, well-formed, readable, within its policy."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from support.console_folder import write_lake, write_pairs, write_repository
from support.console_server import Server
from support.html_pages import nesting_faults, policy_faults, reading_faults
from support.page_walker import Form, Page, Walker

# Data that would become an element, or break out of an attribute, where a page does not escape it.
PLANTED = """<b data-planted=1>&amp;"'</b>"""
ODD = """odd <i data-planted> & "q" '+ %41#?ü"""
SECTIONS = ("", "payloads", "pipelines", "lake", "changesets", "code")
PIPELINE = f"""
[pipeline]
name = "nightly"

[tables.people]
before = "old.csv"
after = "new.csv"
key = "id"
events = 'changes/{ODD.replace("'", "")}.jsonl'
fail_if = ["changed > 1%"]
"""


def write_tables(folder: Path) -> None:
    """Two versions of a table with more changes than a page shows."""
    head = f'id,name,"{PLANTED.replace(chr(34), chr(34) * 2)}"\n'
    cell = '"' + PLANTED.replace('"', '""') + '"'
    old = [f"{n},name {n},{cell}\n" for n in range(60)]
    new = [f"{n},{'changed' if n < 52 else f'name {n}'},{cell}\n" for n in range(2, 62)]
    for name, rows in (("old.csv", old), ("new.csv", new), (f"{ODD}.csv", new[:3])):
        (folder / name).write_text(head + "".join(rows), encoding="utf-8")


def write_changeset(folder: Path) -> None:
    import apsw

    connection = apsw.Connection(str(folder / "shop.db"))
    table = '"' + PLANTED.replace('"', '""') + '"'
    connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, {table} TEXT)")
    session = apsw.Session(connection, "main")
    session.attach()
    connection.executemany(f"INSERT INTO {table} VALUES (?, ?)", [(number, PLANTED) for number in range(60)])
    (folder / f"{ODD}.bin").write_bytes(session.changeset())
    (folder / "made.patchset").write_bytes(session.patchset())
    session.close()
    connection.execute(f"DELETE FROM {table}")
    connection.close()


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walker]:
    folder = tmp_path_factory.mktemp("console")
    write_tables(folder)
    write_pairs(folder / f"{ODD}.jsonl", endpoint=PLANTED)
    (folder / f"{ODD}.toml").write_text(PIPELINE)
    write_changeset(folder)
    write_lake(folder / "lake", title=PLANTED)
    shutil.copytree(folder / "lake", folder / "archive")
    write_repository(folder / "project", f"{ODD}.py", PLANTED)
    server = Server(folder)
    walker = Walker(server.address)
    yield walker
    walker.close()
    server.close()


@pytest.fixture(scope="module")
def pages(walker: Walker) -> list[Page]:
    """Every page and file that can be reached by links once each section has results to show."""
    walker.open("/").form("#compare").fill(a="old.csv", b=f"{ODD}.csv", key="id").run()
    walker.open("/").form("#compare").fill(a="old.csv", b="new.csv").run()
    walker.open("/payloads").form("form.compare").fill(pairs=f"{ODD}.jsonl", rules="new rules.yaml").run()
    walker.open("/pipelines").follow("main a", "nightly").form(".actions form").run()
    walker.open("/lake").follow("main a", "archive").follow(".tabs a", "Verify").form("main form").run()
    walker.open("/code").form("form.compare").run()
    return list(walker.reachable("/"))


@pytest.fixture(scope="module")
def shown(walker: Walker, pages: list[Page]) -> list[Page]:
    """The pages among them, and those that say what went wrong."""
    failed = walker.open("/").form("#compare").fill(a="old.csv", b="made.patchset").run()
    assert failed.all(".problem")
    wrong = [walker.open("/nowhere", 404), walker.open(f"/open?{urlencode({'path': PLANTED})}", 404)]
    wrong += [walker.open("/open?path=old.csv", 422), walker.open("/compare", 405), failed]
    accepting = [page for page in pages if page.all("form.cards")]
    assert accepting
    form = accepting[0].form("form.cards")
    form.check("rule", accepting[0].all("input[name=rule]")[0].get("value"))
    reached = [page for page in pages if page.is_html and "content-disposition" not in page.headers]
    return [*reached, *wrong, form.send()]


def forms_of(pages: list[Page], method: str) -> dict[tuple[str, ...], Form]:
    """The forms of pages, one for each action and set of field names."""
    found: dict[tuple[str, ...], Form] = {}
    for page in pages:
        for element in page.all("form"):
            form = Form(page, element)
            if form.method == method:
                names = sorted({each.get("name") for each in form.controls})
                found.setdefault((urlsplit(form.action).path, *names), form)
    return found


def faults(pages: list[Page], find: Callable[[Page], list[str]]) -> dict[str, str]:
    """The faults of pages, each with the first page that has it."""
    found: dict[str, str] = {}
    for page in pages:
        for fault in find(page):
            found.setdefault(fault, page.address)
    return found


def test_every_kind_of_page_is_reached_by_links(pages: list[Page]) -> None:
    reached = Counter(page.path.rpartition("/")[0] or page.path for page in pages)
    views = {
        (page.path, parse_qs(urlsplit(page.address).query).get("show", ["rows"])[0])
        for page in pages
        if page.path.endswith(("/view", "/batch"))
    }
    assert {f"/{name}" for name in SECTIONS} <= {page.path for page in pages}
    assert {"/results", "/code", "/open"} <= set(reached) | {page.path for page in pages}
    assert {show for path, show in views if path == "/lake/view"} == {"rows", "row", "log", "proof"}
    assert {show for path, show in views if path == "/changesets/view"} == {"rows", "sql", "inverse", "apply"}
    assert {show for path, show in views if path == "/payloads/batch"} >= {"places", "failed", "rules", "unused"}
    assert any(page.path == "/pipelines/run" for page in pages)
    assert {page.headers["content-type"].partition(";")[0] for page in pages if page.path.endswith("/download")} == {
        "application/json",
        "application/x-ndjson",
        "text/csv",
        "text/html",
        "text/markdown",
    }


def test_every_change_of_a_changeset_stands_on_one_page(walker: Walker) -> None:
    page = walker.open("/changesets").follow(".files a", ".bin")
    assert "60 changes of 1 table" in page.one(".meta").text
    rows = [row.all("td")[1].text for row in page.all(".changes tbody tr")]
    while page.all("a[rel=next]"):
        page = page.follow("a[rel=next]")
        rows += [row.all("td")[1].text for row in page.all(".changes tbody tr")]
    assert sorted(rows, key=int) == [str(number) for number in range(60)]


def test_links_within_a_page_lead_to_an_element(shown: list[Page]) -> None:
    for page in shown:
        known = {each.get("id") for each in page.document.below}
        for link in page.all("a[href*=#]"):
            assert page.link_to(link) == page.address
            assert link.get("href").partition("#")[2] in known, f"{link} on {page}"


def test_every_file_that_a_page_loads_is_there(walker: Walker, shown: list[Page]) -> None:
    kinds = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    loaded = {
        each.get("src") or each.get("href")
        for page in shown
        for selector in ("script", "link", "img")
        for each in page.all(selector)
    }
    assert loaded == {
        "/static/look.css",
        "/static/cards.css",
        "/static/code.css",
        "/static/run.css",
        "/static/console.css",
        "/static/console.js",
        "/static/icon.svg",
    }
    for address in loaded:
        answer = walker.open(address)
        assert answer.headers["content-type"].partition(";")[0] == kinds[address.rpartition(".")[2]]
        assert answer.content


def test_pages_are_well_formed(shown: list[Page]) -> None:
    assert faults(shown, lambda page: nesting_faults(page.document)) == {}


def test_pages_are_accessible(shown: list[Page]) -> None:
    assert faults(shown, lambda page: reading_faults(page.document)) == {}
    for page in shown:
        assert page.title.endswith(" · driftline")
        assert len(page.all("h1")) == 1, page
        assert page.one("h1").text
        assert page.one("header nav a[aria-current=page]")
        assert page.link_to(page.one("a.skip")) == page.address


def test_every_page_names_its_section(shown: list[Page]) -> None:
    for page in shown:
        if page.status == 200:
            first = page.path.split("/")[1]
            section = first.capitalize() if first in SECTIONS[1:] else "Tables"
            assert page.one("header nav a[aria-current=page]").text == section, page


def test_the_policy_forbids_nothing_that_a_page_needs(shown: list[Page]) -> None:
    assert faults(shown, lambda page: policy_faults(page.document, page.headers["content-security-policy"])) == {}
    addresses = [link.get("href") for page in shown for link in page.all("a")]
    assert all(address.startswith(("/", "#")) and not address.startswith("//") for address in addresses)


def test_hostile_data_is_text_on_every_page(shown: list[Page]) -> None:
    for page in shown:
        assert not page.all("[data-planted]"), page
    texts = [(page.path.split("/")[1], page.one("#content").raw_text) for page in shown]
    cells = {name for name, text in texts if "<b data-planted" in text}
    files = {name for name, text in texts if "<i data-planted" in text}
    assert cells >= {"results", "open", "payloads", "lake", "changesets", "code"}
    assert files >= {"", "results", "open", "payloads", "pipelines", "changesets", "code"}


def test_every_form_that_asks_answers(shown: list[Page]) -> None:
    found = forms_of(shown, "get")
    actions = {"/open", "/payloads/batch", "/payloads/accept", "/changesets/view", "/lake/view"}
    assert {path for path, *_ in found} >= actions
    for form in found.values():
        for control in form.controls:
            if control.has("required") and not form.value(control.get("name")):
                offered = form.page.all(f"datalist[id={control.get('list')}] option")
                form.fill(**{control.get("name"): offered[0].get("value")})
        assert form.send().is_html


def test_forms_need_no_script(shown: list[Page]) -> None:
    for page in shown:
        for element in page.all("form"):
            assert Form(page, element).needs_no_script, f"{element} on {page}"


def test_forms_that_change_something_are_only_taken_from_our_pages(walker: Walker, shown: list[Page]) -> None:
    found = forms_of(shown, "post")
    assert {path.rpartition("/")[2] for path, *_ in found} >= {"compare", "again", "accept", "start", "verify", "code"}
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    for form in found.values():
        assert form.control("form_token").get("value") == form.page.one("meta[name=form-token]").get("content")
        fields = [(name, value or "x") for name, value in form.entries(check=False)]
        body = urlencode(fields)
        guessed = urlencode([(name, "guessed" if name == "form_token" else value) for name, value in fields])
        without = urlencode([(name, value) for name, value in fields if name != "form_token"])
        for text in (guessed, without):
            answer = walker.send("POST", form.action, text, headers)
            assert (answer.status_code, "out of date" in answer.text) == (403, True), form
        for origin in ("http://evil.example", "null", walker.origin + "0"):
            assert walker.send("POST", form.action, body, {**headers, "Origin": origin}).status_code == 403, form
        site = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
        assert walker.send("POST", form.action, body, {**headers, **site}).status_code == 403, form
        assert walker.send("POST", form.action, body, {**headers, "Host": "evil.example"}).status_code == 421, form


def test_the_view_that_a_script_swaps_in_is_the_one_of_the_page(walker: Walker, shown: list[Page]) -> None:
    with_view = [page for page in shown if page.all("#view")]
    assert with_view
    for page in with_view:
        part = walker.fragment(page.address)
        assert f'<div id="view">{part}</div>' in page.content.decode(), page
    addresses = {page.address for page in with_view}
    for page in shown:
        for link in page.all("a[data-swap]"):
            assert page.link_to(link) in addresses, f"{link} on {page}"
