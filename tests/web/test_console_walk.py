"""The console's pages without a browser: a real server, its links followed, its forms filled in and sent."""

from __future__ import annotations

import csv
import json
import shutil
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import driftline as dl
from driftline import codeindex
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.tables import check_options, remedies
from driftline.web._console.start import options_of
from support.console_folder import (
    HOUR,
    PIPELINE,
    REVIEWED,
    copy_tables,
    write_databases,
    write_events,
    write_lake,
    write_pairs,
    write_pipeline,
    write_repository,
    write_reviewed_repository,
)
from support.console_server import Server
from support.html_pages import Document, nesting_faults, parsed, policy_faults, reading_faults
from support.lakes import delta, load_lake
from support.page_walker import Form, Page, Walker


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("console")
    copy_tables(made)
    (made.parent / "secret.csv").write_text("id\n1\n")
    return made


@pytest.fixture(scope="module")
def walker(folder: Path) -> Iterator[Walker]:
    server = Server(folder)
    walker = Walker(server.address)
    yield walker
    walker.close()
    server.close()


def count(page: Page, kind: str) -> int:
    """The count of a kind, as the page says it beside the view."""
    return int("".join(each for each in page.one(f".kinds .{kind} b").text if each.isdigit()))


def fragment(walker: Walker, form: Form, address: str) -> Document:
    """What the page's script shows when it sends the fields of a form as they are."""
    headers = {"X-Fragment": "1", "Content-Type": "application/x-www-form-urlencoded"}
    answer = walker.send("POST", address, urlencode(form.entries()), headers)
    assert answer.status_code == 200, answer.text
    return parsed(answer.text)


# --- tables ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result(walker: Walker) -> Page:
    """The page of a comparison that is done."""
    return walker.open("/").form("#compare").fill(a="monday.csv", b="tuesday.csv", key="id").run()


@pytest.fixture(scope="module")
def changes(folder: Path) -> dict[str, dict[str, list[str]]]:
    """The keys of the rows of each kind; of changed rows with the columns that differ."""
    tables = []
    for name in ("monday.csv", "tuesday.csv"):
        with (folder / name).open(newline="", encoding="utf-8") as file:
            tables.append({row["id"]: row for row in csv.DictReader(file)})
    old, new = tables
    both = {key: [name for name in row if row[name] != old[key][name]] for key, row in new.items() if key in old}
    return {
        "added": {key: [] for key in new if key not in old},
        "removed": {key: [] for key in old if key not in new},
        "changed": {key: names for key, names in both.items() if names},
    }


def shown_rows(page: Page) -> list[tuple[str, str]]:
    """The kind and the key of each row of a page."""
    return [(row.get("class"), row.one("th.key").text) for row in page.all(".changes tbody tr")]


def all_rows(page: Page) -> list[tuple[str, str]]:
    """The rows of this page and of all that come after it."""
    rows = shown_rows(page)
    while page.all("a[rel=next]"):
        page = page.follow("a[rel=next]")
        rows += shown_rows(page)
    return rows


def test_the_start_page_offers_the_tables_of_the_folder(walker: Walker, folder: Path) -> None:
    page = walker.open("/")
    form = page.form("#compare")
    assert page.title == "Compare · driftline"
    assert folder.name in page.one(".lead").text
    for name in ("a", "b"):
        offered = page.all(f"datalist[id={form.control(name).get('list')}] option")
        assert {"monday.csv", "tuesday.csv"} <= {each.get("value") for each in offered}
    assert not page.one("details.rules").has("open")
    with pytest.raises(AssertionError, match="is required"):
        form.send()


def test_the_key_is_offered_with_what_is_known_of_each_column(walker: Walker, folder: Path) -> None:
    shown = parsed(walker.fragment("/columns?a=monday.csv&b=tuesday.csv"))
    with (folder / "monday.csv").open(encoding="utf-8") as file:
        names = next(csv.reader(file))
    boxes = shown.all("input[type=checkbox][name=key]")
    assert sorted(box.get("value") for box in boxes) == sorted(names)
    assert [box.get("value") for box in boxes if box.has("checked")] == ["id"]
    assert "unique ✓" in shown.all("label.choice")[0].text
    assert "repeats" in shown.one("label.choice", "city").text


def test_a_diff_counts_what_changed(result: Page, changes: dict[str, dict[str, list[str]]]) -> None:
    assert result.title == "monday.csv → tuesday.csv · driftline"
    assert result.one("h1").text == "monday.csv → tuesday.csv"
    assert result.one(".meta").text.startswith("key id · ")
    assert {kind: count(result, kind) for kind in changes} == {kind: len(rows) for kind, rows in changes.items()}
    by_column = Counter(name for names in changes["changed"].values() for name in names)
    shown = {each.one(".name").text: each.one(".count").text for each in result.all(".rates li")}
    assert {name: int(text) for name, text in shown.items() if text != "same"} == by_column
    counts = [by_column[name] for name in shown]
    assert counts == sorted(counts, reverse=True)
    compared = count(result, "unchanged") + len(changes["changed"])
    rate = result.all(".rates li")[0].one(".rate").text
    assert rate == f"{100 * (compared - counts[0]) / compared:.1f} %"


def test_every_row_stands_on_one_page(result: Page, changes: dict[str, dict[str, list[str]]]) -> None:
    rows = all_rows(result)
    assert len(rows) == len(set(rows))
    assert set(rows) == {(kind, key) for kind, keys in changes.items() for key in keys}
    assert f"{len(rows)} rows" in result.one(".tools [role=status]").text
    last = result.follow("a[aria-label=Last page]")
    assert shown_rows(last) == rows[50 * (len(rows) // 50) :]
    assert not last.all("a[rel=next]")
    assert shown_rows(last.follow("a[rel=prev]")) == rows[-50 - len(rows) % 50 :][:50]
    assert last.follow("a[aria-label=First page]").address == result.address
    second = result.form("nav.pages form").fill(page="2").send()
    assert shown_rows(second) == rows[50:100]
    for number, shown in (("99999", rows[50 * (len(rows) // 50) :]), ("no number", rows[:50]), ("0", rows[:50])):
        assert shown_rows(second.form("nav.pages form").fill(page=number).send()) == shown


@pytest.mark.parametrize("kind", ["added", "removed", "changed"])
def test_a_kind_is_chosen_and_left_again(result: Page, changes: dict[str, dict[str, list[str]]], kind: str) -> None:
    chosen = result.follow(f".kinds a.{kind}")
    assert chosen.one(".kinds a[aria-current=true]").get("data-kind") == kind
    assert f"{len(changes[kind])} rows" in chosen.one(".tools [role=status]").text
    rows = all_rows(chosen)
    assert len(rows) == len(changes[kind])
    assert set(rows) == {(kind, key) for key in changes[kind]}
    assert chosen.follow(f".kinds a.{kind}").address == result.address
    assert chosen.follow("a.chip").address == result.address


def test_columns_kinds_and_words_are_chosen_together(result: Page, changes: dict[str, dict[str, list[str]]]) -> None:
    chosen = result.follow(".rates a", "balance")
    expected = {key for key, names in changes["changed"].items() if "balance" in names}
    assert {key for _, key in all_rows(chosen)} == expected
    assert chosen.texts("th.picked") == ["balance"]
    changed = chosen.follow(".kinds a.changed")
    assert {key for _, key in all_rows(changed)} == expected
    assert changed.texts("a.chip") == ["changed ✕", "balance ✕"]
    assert "No change matches" in chosen.follow(".kinds a.added").text
    found = changed.form("form.tools").fill(q="C00004").send()
    assert shown_rows(found) == [("changed", "C00004")]
    assert found.one("td.cell").text.split() == ["2182.89", "2270.20", "+87.31", "(+4.0%)"]
    assert "1 row" in found.one(".tools [role=status]").text
    assert found.follow("a.chip", "“C00004”").address == changed.address
    assert found.follow("a.chip", "balance").form("form.tools").value("q") == "C00004"
    nothing = found.form("form.tools").fill(q="no such words").send()
    assert nothing.follow("main a", "Show all changes").address == result.address


def test_only_columns_that_changed_are_shown(result: Page, changes: dict[str, dict[str, list[str]]]) -> None:
    chosen = result.follow(".kinds a.changed")
    fewer = chosen.form("form.tools").check("cols").send()
    while True:
        touched = {name for _, key in shown_rows(fewer) for name in changes["changed"][key]}
        head = [each.text for each in fewer.all(".changes thead th") if not each.classes]
        assert set(head) == touched
        assert fewer.form("form.tools").control("cols").has("checked")
        if not fewer.all("a[rel=next]"):
            break
        fewer = fewer.follow("a[rel=next]")
    assert fewer.form("nav.pages form").fill(page="1").send().form("form.tools").control("cols").has("checked")


def test_a_diff_is_downloaded_in_every_format(
    result: Page, folder: Path, changes: dict[str, dict[str, list[str]]]
) -> None:
    taken = {link.text: result.walker.open(result.link_to(link)) for link in result.all(".menu a[download]")}
    endings = {"jsonl": "jsonl", "json": "json", "csv": "csv", "html": "html", "markdown": "md"}
    assert {name: page.headers["content-disposition"] for name, page in taken.items()} == {
        name: f'attachment; filename="changes.{ending}"' for name, ending in endings.items()
    }
    with dl.diff(folder / "monday.csv", folder / "tuesday.csv", key="id") as made:
        assert taken["jsonl"].content == b"".join(made.lines())
    assert [event["type"] for event in json.loads(taken["json"].content)].count("changed") == len(changes["changed"])
    kinds = Counter(row["_change"] for row in csv.DictReader(taken["csv"].body.splitlines(keepends=True)))
    assert {kind: kinds[kind] for kind in changes if kind != "changed"} == {
        kind: len(rows) for kind, rows in changes.items() if kind != "changed"
    }
    assert taken["html"].document.one("h1").text
    assert "| balance" in taken["markdown"].body
    result.walker.open(f"{result.path}/download?format=exe", 404)


def test_rules_are_counted_before_they_are_used(walker: Walker) -> None:
    form = walker.open("/").form("#compare").fill(a="monday.csv", b="tuesday.csv", key="id")
    assert fragment(walker, form, "/preview").texts("td.changed") == ["106"]
    form.fill(tolerance="balance=1000000")
    shown = fragment(walker, form, "/preview")
    assert shown.texts("td.changed") == ["106", "59"]
    assert "balance 88 → 0" in shown.one(".hint").text
    form.fill(tolerance="balance")
    assert "balance" in fragment(walker, form, "/preview").one(".problem").text
    form.fill(tolerance="balance=1000000")
    result = form.run()
    assert "tolerance balance=1000000" in result.one(".meta").text
    assert count(result, "changed") == 59
    again = result.follow(".actions a", "Change rules")
    kept = again.form("#compare")
    assert again.one("details.rules").has("open")
    assert {name: kept.value(name) for name in ("a", "b", "key", "tolerance")} == {
        "a": "monday.csv",
        "b": "tuesday.csv",
        "key": "id",
        "tolerance": "balance=1000000",
    }
    assert json.loads(again.one("#columns").get("data-chosen")) == ["id"]
    refused = kept.check("ignore_row_order").fill(tolerance="").send(422)
    assert "works in positional mode only" in refused.one(".problem").text
    assert count(kept.check("ignore_row_order", on=False).run(), "changed") == 106


def test_a_comparison_is_run_again_and_listed(walker: Walker, result: Page) -> None:
    again = result.form(".actions form").run()
    assert again.address != result.address
    assert again.texts(".kinds b") == result.texts(".kinds b")
    start = walker.open("/")
    listed = [start.link_to(link) for link in start.all("table.results a")]
    assert {again.address, result.address} <= set(listed)
    row = start.all("table.results tbody tr")[listed.index(again.address)]
    assert [cell.text for cell in row.elements[:5]] == ["monday.csv → tuesday.csv", "id", "79", "35", "106"]


def test_files_are_dropped_and_compared(walker: Walker, folder: Path) -> None:
    page = walker.open("/")
    form = page.form("#compare")
    form.drop("a", "old ü.csv", b"id,v\n1,x\n2,y\n").drop("b", "new & more.csv", b"id,v\n1,x\n2,z\n3,w\n")
    assert form.value("a") == ".driftline/uploads/old ü.csv"
    result = form.fill(key="id").run()
    assert [count(result, kind) for kind in ("added", "removed", "changed")] == [1, 0, 1]
    assert (folder / ".driftline/uploads/new & more.csv").is_file()
    with pytest.raises(AssertionError, match="plain name"):
        form.drop("a", ".hidden.csv", b"id\n1\n")


def test_a_failed_comparison_says_why_and_keeps_the_form(walker: Walker, folder: Path) -> None:
    (folder / "ragged.csv").write_text("id,v\n1\n")
    page = walker.open("/").form("#compare").fill(a="monday.csv", b="ragged.csv").run()
    assert page.path.startswith("/jobs/")
    assert "error[" in page.one("[role=alert] .problem").text
    assert "internal" not in page.text
    assert (page.form("#compare").value("a"), page.form("#compare").value("b")) == ("monday.csv", "ragged.csv")
    missing = walker.open("/").form("#compare").fill(a="monday.csv", b="nowhere.csv", tolerance="balance=1").send(404)
    assert "there is no 'nowhere.csv'" in missing.one(".problem").text
    assert (missing.form("#compare").value("a"), missing.form("#compare").value("tolerance")) == (
        "monday.csv",
        "balance=1",
    )


def test_a_slip_in_a_rule_keeps_the_form(walker: Walker) -> None:
    form = walker.open("/").form("#compare").fill(a="monday.csv", b="tuesday.csv", key="id", normalize="trim")
    page = form.send(422)
    assert "COL=VALUE" in page.one(".problem").text
    kept = page.form("#compare")
    assert [kept.value(name) for name in ("a", "b", "key", "normalize")] == ["monday.csv", "tuesday.csv", "id", "trim"]
    assert kept.fill(normalize="name=trim").run().path.startswith("/results/")


def test_the_server_chooses_the_key_when_the_form_came_too_early(walker: Walker) -> None:
    """Compare was clicked before the columns were offered."""
    page = walker.open("/").form("#compare").fill(a="monday.csv", b="tuesday.csv").run()
    assert "key id (chosen: its values are unique)" in page.one(".meta").text
    assert [count(page, kind) for kind in ("added", "removed", "changed")] == [79, 35, 106]


def test_a_key_that_was_offered_for_other_tables_is_not_used(walker: Walker, folder: Path) -> None:
    """The names were changed, and Compare was clicked before the columns of the new ones came."""
    token = walker.open("/").one("meta[name=form-token]").get("content")
    for offered, key in (("monday.csv\tother.csv", "plan"), ("monday.csv\tother.csv", None)):
        form = {"form_token": token, "a": "monday.csv", "b": "tuesday.csv", "offered": offered}
        body = urlencode({**form, **({"key": key} if key else {})})
        page = walker.open("/compare", method="POST", body=body).finished()
        assert "key id (chosen: its values are unique)" in page.one(".meta").text
    body = urlencode({**form, "offered": "monday.csv\ttuesday.csv"})  # none of those that were offered is a choice
    page = walker.open("/compare", method="POST", body=body).finished()
    assert page.one(".meta").text.startswith("by position · ")


def test_files_that_went_or_were_replaced_keep_the_form(walker: Walker, folder: Path) -> None:
    (folder / "going.csv").write_text("id,v\n1,x\n")
    start = walker.open("/")
    (folder / "going.csv").unlink()
    page = start.form("#compare").fill(a="monday.csv", b="going.csv").send(404)
    assert "there is no 'going.csv' in this folder" in page.one(".problem").text
    assert page.form("#compare").value("a") == "monday.csv"
    (folder / "going.csv").write_text("id,v\n1,x\n2,y\n")
    first = page.form("#compare").fill(a="going.csv", b="going.csv").run()
    (folder / "going.csv").write_bytes(b"id,v\n1,\xff\xfe\x00\n")
    again = first.form(".actions form").run()
    assert again.all(".problem")
    assert again.form("#compare").value("b") == "going.csv"


def test_pairs_are_proposed_from_all_tables_those_of_the_folder_itself_first(tmp_path: Path) -> None:
    for number in range(3_000):
        (tmp_path / f"old <b>'&\" {number:04} ü.csv").touch()
    inner = tmp_path / "inner"
    inner.mkdir()
    for number in (1, 2):
        (inner / f"z-{number}.csv").write_text("id,v\n1,x\n")
    server = Server(tmp_path)
    walker = Walker(server.address)
    page = walker.open("/")
    walker.close()
    server.close()
    assert "3,003 tables" in page.one(".lead").text  # the folder of part files is one too
    words = page.texts(".proposed button")
    assert words[0].startswith("old <b>'&\" 2998 ü.csv → old <b>'&\" 2999 ü.csv")
    assert words[1].startswith("z-1.csv → z-2.csv in inner")


def test_a_row_without_a_unique_column_is_compared_by_position(walker: Walker, folder: Path) -> None:
    (folder / "x.csv").write_text("v\n1\n1\n")
    (folder / "y.csv").write_text("v\n1\n2\n")
    page = walker.open("/").form("#compare").fill(a="x.csv", b="y.csv").run()
    assert page.one(".meta").text.startswith("by position (no column has unique values on both sides)")


def test_files_are_read_as_they_want_and_the_result_names_the_options(walker: Walker, folder: Path) -> None:
    """With the options that the page names the command gives the same bytes."""
    (folder / "odd-1.csv").write_bytes("Report\n\nid;city\n1;Köln\n2;Bern\n".encode("cp1252"))
    (folder / "odd-2.csv").write_text("1,Köln\n2,Basel\n")
    page = walker.open("/").form("#compare").fill(a="odd-1.csv", b="odd-2.csv").run().counted()
    assert count(page, "changed") == 1
    shown = [each.text for each in page.all(".meta code")]
    assert shown[0] == "id"
    flags = ["--key", "id"]
    for text in shown[1:]:
        name, _, value = text.partition(" ")
        flags += [f"--{name}", *([value] if value else [])]
    assert {"--encoding-a", "--delimiter-a", "--skip-lines-a", "--no-header-b"} <= set(flags)
    done = folder / "command.jsonl"
    assert run(driftline, ["diff", str(folder / "odd-1.csv"), str(folder / "odd-2.csv"), *flags, "-o", str(done)]) == 1
    [stored] = [each for each in (folder / ".driftline").rglob("*.jsonl") if b"Basel" in each.read_bytes()]
    assert stored.read_bytes() == done.read_bytes()


def test_two_clicks_lead_to_the_newest_pair(walker: Walker, folder: Path) -> None:
    for day, name in ((9, "Ann"), (10, "Bo"), (11, "Bea")):
        (folder / f"users-{day}.csv").write_text(f"id,name\n1,{name}\n")
    start = walker.open("/")
    proposed = [button.text for button in start.all(".proposed button b")]
    assert {"users-10.csv → users-11.csv", "monday.csv → tuesday.csv"} <= set(proposed)
    button = start.one(".proposed button", "users-10.csv → users-11.csv")
    result = start.form("form.proposed").press(button).run()
    assert "key id" in result.one(".meta").text
    assert count(result, "changed") == 1


def test_another_header_has_a_button_that_compares_the_common_columns(walker: Walker, folder: Path) -> None:
    (folder / "wide.csv").write_text("id,name,city,email\n1,Ann,Rome,a@x\n")
    (folder / "narrow.csv").write_text("id,name,town\n1,Anna,Rome\n")
    page = walker.open("/").form("#compare").fill(a="wide.csv", b="narrow.csv", tolerance="name=1").run()
    words = page.one(".problem").text
    assert "only before has city, email; only after has town." in words
    assert "--" not in words
    button = page.one(".problem button")
    assert button.text == "Compare the 2 common columns"
    preview = fragment(walker, page.form("#compare"), "/preview")
    assert preview.one(".problem").text == words, "the preview says the same, without flags of the command line"
    assert preview.one(".problem button").text == button.text
    result = page.form("#compare").press(button).run()
    assert count(result, "changed") == 1
    assert "header-mode common" in result.one(".meta").text


@pytest.mark.parametrize("code", sorted(code for code, known in remedies().items() if "ways" in known))
def test_every_button_of_a_way_out_is_an_option_of_the_form(code: str) -> None:
    for _, apply in remedies()[code]["ways"]:
        options = options_of({"apply": [apply], "key": ["id"]})
        assert list(options) == ["key", apply.partition("=")[0]]
        check_options(**options)


def test_hostile_cells_are_text(walker: Walker, folder: Path) -> None:
    nasty = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
    wide = ["id", *(f"c{n}" for n in range(5000))]
    write_events(folder / "nasty.jsonl", wide, [{"id": nasty, "c0": "\u202eabc", "c1": "x" * 1_000_000}])
    page = walker.open("/").follow(".files a", "nasty.jsonl").counted()
    assert page.address == "/open?path=nasty.jsonl"
    assert page.one("th[scope=row]").raw_text == nasty
    assert page.title == "nasty.jsonl · driftline"
    assert [each.get("src") for each in page.all("script")] == ["/static/console.js"]
    assert [each.get("src") for each in page.all("img")] == ["/static/icon.svg"]
    assert "more columns are not shown" in page.text
    assert len(page.content) < 300_000
    assert page.form("form.tools").fill(q=nasty).send().one("a.chip").text == f"“{nasty}” ✕"


# --- jobs ------------------------------------------------------------------------------------------------------------

# Both jobs that may run at once are held in their webhooks until the test responds to them.
HELD_PIPELINE = """
[pipeline]
name = "{name}"

[tables.t]
before = "monday.csv"
after = "tuesday.csv"
key = "id"
events = "{name}.jsonl"

[[hooks]]
webhook = "http://127.0.0.1:{port}/"
timeout = 600
"""


def respond(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    while connection.recv(1 << 16):
        pass  # until the other end closes
    connection.close()


def test_a_job_is_followed_and_cancelled_from_its_page(walker: Walker, folder: Path) -> None:
    running = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for name in ("first", "second"):
            (folder / f"{name}.toml").write_text(HELD_PIPELINE.format(name=name, port=listener.getsockname()[1]))
            page = walker.open(f"/pipelines/run?path={name}.toml").form(".actions form", "Run").send()
            assert page.title == f"{name}: run · driftline"
            running.append((page, listener.accept()[0]))
        waiting = walker.open("/").form("#compare").fill(a="monday.csv", b="tuesday.csv").send()
        assert waiting.one("#phase").text == "waiting"
        assert not waiting.one("progress").has("value")
        assert waiting.follow("main a", "Look again").address == waiting.address
        progress = walker.send("GET", waiting.address, headers={"X-Progress": "1"}).json()
        assert progress == {"done": False, "phase": "waiting", "percent": None, "error": None}
        for page in (*(page for page, _ in running), waiting):
            assert nesting_faults(page.document) + reading_faults(page.document) == []
            assert policy_faults(page.document, page.headers["content-security-policy"]) == []
        cancelled = waiting.form("main form", "Cancel").run()
        assert cancelled.address == waiting.address
        assert "error[cancelled]" in cancelled.one(".problem").text
        for page, connection in running:
            respond(connection)
            done = page.finished()
            assert done.one("h1 .badge").text == "done"
            assert not done.all(".problem")


# --- payloads --------------------------------------------------------------------------------------------------------


def compared(walker: Walker, **fields: str) -> Page:
    return walker.open("/payloads").form("form.compare").fill(**fields).run()


def test_from_pairs_to_an_accepted_rule(walker: Walker, folder: Path) -> None:
    write_pairs(folder / "pairs.jsonl")
    unused = "x-migration-case-insensitive: true"
    rules_text = f"# kept by people\ntype: object\nproperties:\n  gone: {{type: string, {unused}}}\n"
    (folder / "rules.yaml").write_text(rules_text)
    start = walker.open("/payloads")
    assert "rules.yaml" in start.one("#rules-hint").text
    batch = start.form("form.compare").fill(pairs="pairs.jsonl", rules="rules.yaml").run()
    assert batch.texts(".kinds b") == ["0", "40", "1", "0"]
    first = batch.all(".places tbody tr")[0]
    assert "$.status" in first.one("th").text
    assert first.one(".share").text == "100.0 %"
    assert first.all("td")[-1].text.split()[:3] == ["0", "OPEN", "open"]
    chosen = batch.follow(".rates a", "/orders")
    assert chosen.one("a.chip").text == "/orders ✕"
    assert "not valid JSON" in batch.follow(".tabs a", "Failed pairs").text
    assert batch.follow(".tabs a", "Rules never used").texts(".changes th[scope=row]") == [unused]
    assert "$.status" not in batch.form("form.tools").fill(q="$.total").send().one(".places tbody").text
    rules = chosen.follow(".tabs a", "Suggested rules")
    form = rules.form("form.cards")
    status = rules.one("input[name=rule][value*=status]").get("value")
    assert any("Hides" in each for each in rules.texts(".card"))
    shown = form.check("rule", status).send()
    assert shown.title == "Accept rules · driftline"
    assert shown.one("h1").text == "Accept 1 rule"
    assert any("x-migration-" in line for line in shown.texts(".patch .plus"))
    assert (folder / "rules.yaml").read_text() == rules_text
    again = shown.form("main form").run()
    written = (folder / "rules.yaml").read_text()
    assert written.startswith("# kept by people\n")
    assert written.count("x-migration-") == 2
    assert again.texts(".kinds b")[:3] == ["30", "10", "1"]
    assert again.form(".actions form").run().texts(".kinds b") == again.texts(".kinds b")
    listed = [link.text for link in walker.open("/payloads").all("table.list a")]
    assert listed.count("pairs.jsonl under rules.yaml") == 3


def test_rules_that_are_not_there_yet_are_written_where_the_form_says(walker: Walker, folder: Path) -> None:
    write_pairs(folder / "fresh.jsonl")
    form = compared(walker, pairs="fresh.jsonl").follow(".tabs a", "Suggested rules").form("form.cards")
    nothing = form.send()
    assert "No rule was chosen" in nothing.text
    form = nothing.follow("main a", "Back to the suggestions").form("form.cards")
    form.check("rule", form.element.one("input[name=rule][value*=status]").get("value"))
    form.fill(file="../out.yaml").send(404)
    form.fill(file="fresh.txt").send(422)
    shown = form.fill(file="fresh.yaml").send()
    assert shown.one("h2 small").text == "new file"
    assert not (folder / "fresh.yaml").exists()
    shown.form("main form").run()
    assert "x-migration-" in (folder / "fresh.yaml").read_text()


def test_rules_that_changed_under_the_viewer_are_not_overwritten(walker: Walker, folder: Path) -> None:
    write_pairs(folder / "other.jsonl")
    batch = compared(walker, pairs="other.jsonl", rules="other.yaml")
    rules = batch.follow(".tabs a", "Suggested rules")
    status = rules.one("input[name=rule][value*=status]").get("value")
    shown = rules.form("form.cards").check("rule", status).send()
    (folder / "other.yaml").write_text("type: object\n")
    assert "look again" in shown.form("main form").send(409).one(".problem").text
    assert (folder / "other.yaml").read_text() == "type: object\n"
    (folder / "leaky.yaml").write_text("$ref: ../secret.csv\n")
    start = walker.open("/payloads")
    for pairs, rules, status in (
        ("other.jsonl", "../out.yaml", 404),
        ("../secret.csv", "", 404),
        ("other.jsonl", "leaky.yaml", 422),
    ):
        start.form("form.compare").fill(pairs=pairs, rules=rules).send(status)


# --- pipelines -------------------------------------------------------------------------------------------------------


def test_a_pipeline_is_run_looked_at_and_run_again(walker: Walker, folder: Path) -> None:
    write_pipeline(folder)
    listed = walker.open("/pipelines").one("table.list tbody tr", "nightly")
    assert "has not run yet" in listed.text
    page = walker.open("/pipelines").follow("main a", "nightly")
    assert "has not run yet" in page.text
    page = page.form(".actions form", "Run").run()
    assert page.one("h1 .badge").text == "exceeded"
    assert "changed > 1% (measured 2.65%)" in page.text
    assert page.one("td .badge.failed").text == "exceeded"
    assert "106 changed" in page.one(".flowchart").raw_text
    assert [page.link_to(link) for link in page.all(".flowchart a")] == [page.address] * len(page.all(".flowchart a"))
    for link in page.all(".flowchart a"):
        assert link.get("href")[1:] in [row.get("id") for row in page.all(".stages tr")]
    (folder / "nightly.toml").write_text(PIPELINE.replace("1%", "50%"))
    again = page.form(".actions form", "Run").run()
    assert again.one("h1 .badge").text == "done"
    assert len(again.all("aside .dot")) == 2
    before = again.follow("aside .dot.exceeded")
    assert before.address == page.address
    assert before.one("h1 .badge.exceeded").text == "exceeded"
    events = before.follow("main a", "changes/customers-2026-03-02.jsonl").counted()
    assert count(events, "changed") == 106
    assert len(all_rows(events)) == 220
    one = before.form(".stages form", "Run customers").run()
    assert [row.one("th").text for row in one.all(".stages tbody tr")] == ["customers/2026-03-02/diff"]
    assert len(walker.open("/pipelines").one("table.list tbody tr", "nightly").all(".dot")) == 3


def test_a_pipeline_that_fails_says_why_and_is_retried(walker: Walker, folder: Path) -> None:
    broken = folder / "broken"
    broken.mkdir()
    shutil.copy(folder / "monday.csv", broken / "old.csv")
    (broken / "new.csv").write_text("id,v\n1\n")
    text = '[pipeline]\nname = "broken"\n\n[tables.t]\nbefore = "old.csv"\nafter = "new.csv"\nkey = "id"\n'
    (broken / "broken.toml").write_text(text + 'events = "out.jsonl"\n')
    failed = walker.open("/pipelines").follow("main a", "broken").form(".actions form", "Run").run()
    assert failed.one("h1 .badge").text == "failed"
    assert failed.one("main p.problem").text
    shutil.copy(folder / "tuesday.csv", broken / "new.csv")
    retried = failed.form(".actions form", "Retry what failed").run()
    assert retried.one("h1 .badge").text == "done"
    assert not retried.all(".actions form", "Retry what failed")
    (broken / "unreadable.toml").write_text("[pipeline]\nname = 3\n")
    assert "name" in walker.open("/pipelines").one("table.list tbody tr", "unreadable.toml").text


def test_only_pipelines_of_the_folder_are_run(walker: Walker, folder: Path) -> None:
    (folder / "mine.toml").write_text('[pipeline]\nname = "mine"\n')
    (folder.parent / "evil.toml").write_text(PIPELINE)
    walker.open("/").form("#compare").drop("a", "evil.toml", PIPELINE.encode())
    form = walker.open("/").form("#compare")
    token = form.control("form_token").get("value")
    names = (".driftline/uploads/evil.toml", "../evil.toml", "monday.csv", "x/../.driftline/uploads/evil.toml")
    for name in names:
        body = urlencode({"form_token": token, "path": name})
        walker.open("/pipelines/start", 404, method="POST", body=body)
        walker.open(f"/pipelines/run?{urlencode({'path': name})}", 404)


# --- changesets ------------------------------------------------------------------------------------------------------


def test_a_changeset_is_dropped_read_inverted_and_tried(walker: Walker, folder: Path) -> None:
    made = write_databases(folder)
    form = walker.open("/changesets").form("#changeset").drop("path", "changes.bin", made)
    assert form.value("path") == ".driftline/uploads/changes.bin"
    page = form.fill(database="before.db").send()
    assert page.texts(".kinds b") == ["+ 1", "~ 1", "− 1"]
    assert page.one("td.cell").text.split() == ["Ann", "Anna"]
    assert page.texts(".changes thead th")[1:] == ["id key", "name", "age"]
    assert page.one("caption").text == "users"
    assert page.follow(".rates a", "users").follow(".rates a", "users").address == page.address + "&show=rows"
    statements = page.follow(".tabs a", "SQL").one(".sql").raw_text
    assert 'UPDATE "users" SET "name" = \'Anna\' WHERE "id" = 1;' in statements
    assert "'Ann'" in page.follow(".tabs a", "Inverse").one(".sql").raw_text
    assert page.follow(".actions a", "Download inverse").content == inverted(made)
    applied = page.follow(".tabs a", "Try to apply")
    assert "No conflict: everything would be applied" in applied.text
    conflicts = applied.form("form.plain").fill(database="after.db", policy="abort").send()
    assert "with abort nothing would be applied" in conflicts.text
    kinds = " ".join(conflicts.texts(".cards .card"))
    assert "NOTFOUND" in kinds
    assert "DATA" in kinds
    assert names_of(folder / "after.db") == ["Anna", "Cy"]
    without = walker.open("/changesets").follow(".files a", "changes.bin")
    assert without.texts(".changes thead th")[1:3] != ["id key", "name"]  # no database gave the columns names
    walker.open("/changesets/view?path=monday.csv", 422)
    walker.open("/changesets/view?path=../secret.csv", 404)


def inverted(changeset: bytes) -> bytes:
    import apsw

    return bytes(apsw.Changeset.invert(changeset))


def names_of(database: Path) -> list[Any]:
    import apsw

    connection = apsw.Connection(str(database))
    found = [name for (name,) in connection.execute("SELECT name FROM users ORDER BY id")]
    connection.close()
    return found


# --- lakes -----------------------------------------------------------------------------------------------------------


def test_a_lake_is_travelled_and_a_row_tells_its_history(walker: Walker, folder: Path) -> None:
    write_lake(folder / "lake")
    now = walker.open("/lake")  # there is one lake: its page is shown at once
    assert now.path == "/lake/view"
    assert [row.one("th").text for row in now.all(".changes tbody tr")] == ["r1"]
    then = now.form("form.slider").fill(at="0").send()
    assert [row.one("th").text for row in then.all(".changes tbody tr")] == ["r1", "r2"]
    assert "milk" in then.one(".changes tbody tr", "r1").text
    assert "not set" in then.one(".changes tbody tr", "r2").text
    assert now.form("form.slider").send().one("output").text == now.one("output").text == "now"
    row = then.follow(".changes tbody a", "r1")
    assert "soy ✓ the last to set it" in row.one(".cards").text
    assert "same clock, and bo comes after ann" in row.one(".cards").text
    assert "The row was deleted." in then.follow(".changes tbody a", "r2").text
    log = row.follow(".tabs a", "Log")
    assert sum(int(text) for text in log.texts(".changes td.count") if text.isdigit()) >= 5
    assert log.all(".changes tbody td", "gw")
    proof = log.follow(".tabs a", "Verify").form("main form").run()
    assert "Proved: the state is the replay of its deltas" in proof.text
    facts = dict(zip(proof.texts("dt"), proof.texts("dd"), strict=True))
    assert facts["deltas"] == "5"
    assert facts["hash of the state"] == facts["hash of the replay"]
    load_lake(folder / "long", [[delta("INSERT", f"r{number:02}", HOUR, title="x") for number in range(60)]])
    first = walker.open("/lake").follow("main a", "long")  # now there are two lakes to choose from
    second = first.follow("a[rel=next]")
    rows = [page.texts(".changes tbody th") for page in (first, second)]
    assert rows == [[f"r{number:02}" for number in range(50)], [f"r{number}" for number in range(50, 60)]]
    assert second.follow("a[rel=prev]").texts(".changes tbody th") == rows[0]
    walker.open("/lake/view?path=..", 404)
    walker.open("/lake/view?path=lake&table=../../x", 422)


# --- code ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_two_revisions_are_compared_definition_by_definition(walker: Walker, folder: Path) -> None:
    write_repository(folder / "project")
    form = walker.open("/code").form("form.compare")
    assert form.value("repository") == "project"
    assert [form.value(name) for name in ("before", "after")] == ["HEAD~1", "HEAD"]
    review = form.run()
    assert review.one("h1").text == "HEAD~1 → HEAD"
    assert review.one(".verdict").text.startswith("verdict: behaviour (1 behaviour in 1 file) · for callers: none")
    file = review.follow(".rates a", "shop.py")
    assert "total" in file.one(".card.changed h3").text
    assert file.one("td.new").raw_text == "    return round(sum(prices), 2)"
    assert file.texts("td.new mark") == ["round(", ", 2)"]
    assert walker.open("/code").follow(".files a", "project HEAD~1 → HEAD").address == review.address
    same = walker.open("/code").form("form.compare").fill(before="v2", after="main").run()
    assert "The two versions are the same." in same.text
    wrong = walker.open("/code").form("form.compare").fill(before="nowhere").run()
    assert "nowhere" in wrong.one(".problem").text
    token = form.control("form_token").get("value")
    (folder / "plain").mkdir()
    for repository in ("..", "plain"):
        body = urlencode({"form_token": token, "repository": repository, "before": "HEAD", "after": "HEAD"})
        walker.open("/code", 404, method="POST", body=body)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_page_of_code_is_the_record_of_the_commands(walker: Walker, folder: Path) -> None:
    write_reviewed_repository(folder / "reviewed")
    review = walker.open("/code").form("form.compare").fill(repository="reviewed", before="v1", after="v2").run()
    sides = ("git:v1", "git:v2")
    diff = codeindex.diff(*sides, repo=folder / "reviewed")
    report = codeindex.api(*sides, repo=folder / "reviewed")
    judged = codeindex.review(diff.events)
    callers = report.verdict_line.removeprefix("verdict: ")
    assert review.one(".verdict").text == f"{judged.line} · for callers: {callers}"
    assert report.bump == "2.0.0"
    assert "1.2.0 → 2.0.0" in review.one(".verdict").text
    cards = {each.one("span span").text: each.one("b").text for each in review.all(".kinds li")}
    chunks = diff.summary["modesSummary"]["code"]["chunks"]
    told = {name: str(number) for name, number in chunks.items() if number}
    assert cards == {"breaking": str(len(report.breaking)), **told}
    assert [each.get("title") for each in review.all(".path")] == [file.path for file in judged.files]
    assert [each.get("title") for each in review.all(".path")][-2:] == [
        "tests/test_shop.py", ".github/workflows/checks.yml",
    ]  # fmt: skip
    head, tail = review.one(f".path[title={REVIEWED}]").all("span")
    assert (head.text, tail.text) == (REVIEWED.removesuffix("prices.py"), "prices.py")
    for change in report.breaking:
        assert review.all(".surface td", change.name)
    before, after, also = (
        next(each for each in review.all(".sideways") if each.get("aria-label") == "Renamed and moved")
        .one("tbody tr")
        .all("td")
    )
    assert (before.text, also.text) == (f"rounded {REVIEWED}:45", "nothing")
    assert after.text == "rounded src/shop/money.py:6"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_lines_of_code_have_their_numbers_and_gaps_are_marked(walker: Walker, folder: Path) -> None:
    if not (folder / "reviewed").exists():
        write_reviewed_repository(folder / "reviewed")
    review = walker.open("/code").form("form.compare").fill(repository="reviewed", before="v1", after="v2").run()
    rows = review.follow(".rates a", "prices.py").one("#d1 .bodies").all("tr")
    shown = [[cell.raw_text for cell in row.all("td")] for row in rows]
    assert shown[1] == ["2", "    step_0 = 0", "2", "    step_0 = 7"]
    assert ["⋯ 33 lines"] in shown
    assert shown[-1] == ["42", "    return sum(prices)", "42", "    return max(prices)"]
    money = review.follow(".rates a", "money.py")
    moved, added = money.one(".card.changed", "rounded"), money.one(".card.added", "tax")
    assert [each.text for each in moved.all(".moves p")] == [f"rounded {REVIEWED}:45", "rounded src/shop/money.py:6"]
    assert [cell.raw_text for cell in added.all("td.new")] == [
        "def tax(price):", "    # a fifth", "    return price / 5",
    ]  # fmt: skip
    notes = review.follow(".rates a", "notes.py")
    assert [each.raw_text for each in notes.all("td") if each.get("class") in ("old", "new")] == [
        "# One remark.",
        "# Another remark.",
    ]
    assert review.walker.open(f"{review.address}?file=nowhere.py", 404).one(".problem")
