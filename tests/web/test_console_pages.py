"""The console's pages in a real browser: looks, scripts, keyboard and focus."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import driftline as dl
from support.compare_server import serving
from support.console_folder import (
    CUSTOMERS,
    PIPELINE,
    write_databases,
    write_events,
    write_lake,
    write_pairs,
    write_pipeline,
    write_repository,
)
from support.console_server import Server, look_at
from support.repositories import make_repository

pytestmark = pytest.mark.browser


def compare(page: Any, server: Server) -> None:
    page.goto(server.address)
    page.fill("input[name=a]", "monday.csv")
    page.fill("input[name=b]", "tuesday.csv")
    page.press("input[name=b]", "Tab")
    page.wait_for_selector("input[name=key][value=id]:checked")
    page.click("button.primary")
    page.wait_for_url("**/results/*")
    page.wait_for_selector(".rates")


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


@pytest.fixture(scope="module")
def result(server: Server) -> str:
    """The address of a comparison that is done."""
    location = server.post("/compare", a="monday.csv", b="tuesday.csv", key="id")[2]["location"]
    while (answer := server.ask("GET", location))[0] == 200:
        assert "problem" not in answer[1]
    return server.address + answer[2]["location"]


def test_pages_rows_and_theme_by_keyboard(page: Any, result: str) -> None:
    page.goto(result)
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


def test_hostile_cells_are_text(page: Any, server: Server) -> None:
    nasty = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
    wide = ["id", *(f"c{n}" for n in range(5000))]
    write_events(server.folder / "nasty.jsonl", wide, [{"id": nasty, "c0": "\u202eabc", "c1": "x" * 1_000_000}])
    page.goto(f"{server.address}/open?path=nasty.jsonl")
    page.wait_for_selector(".rates")
    assert nasty in page.inner_text("th[scope=row]")
    assert page.title() == "nasty.jsonl · driftline"
    assert "more columns are not shown" in page.inner_text("main")


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


def test_rules_show_what_they_do_before_they_are_used(page: Any, server: Server) -> None:
    page.goto(server.address)
    page.fill("input[name=a]", "monday.csv")
    page.fill("input[name=b]", "tuesday.csv")
    page.press("input[name=b]", "Tab")
    page.wait_for_selector("#preview td.changed")
    assert page.inner_text("#preview td.changed") == "106"
    page.click("summary")
    page.fill("textarea[name=tolerance]", "balance=1000000")
    page.wait_for_selector("#preview tbody tr:nth-child(2)")
    assert page.locator("#preview td.changed").all_inner_texts() == ["106", "59"]
    assert "balance 88 → 0" in page.inner_text("#preview .hint")
    look_at(page, "start")
    page.fill("textarea[name=tolerance]", "balance")
    page.wait_for_selector("#preview .problem")
    page.fill("textarea[name=tolerance]", "balance=1000000")
    page.click("button.primary")
    page.wait_for_url("**/results/*")
    assert "tolerance balance=1000000" in page.inner_text(".meta")
    page.click("text=Change rules")
    assert page.input_value("textarea[name=tolerance]") == "balance=1000000"
    page.wait_for_selector("input[name=key][value=id]:checked")


def test_the_diff_page_looks_right(page: Any, result: str) -> None:
    page.goto(result)
    page.wait_for_selector(".rates")
    look_at(page, "diff", dark_colours=True)


def test_a_narrow_screen_opens_on_the_columns_that_changed(page: Any, result: str, tmp_path: Path) -> None:
    page.set_viewport_size({"width": 420, "height": 900})
    page.goto(result)
    page.wait_for_url("**cols=changed**")
    page.wait_for_function("document.querySelectorAll('.changes thead th').length === 4")
    assert page.locator(".changes thead th").all_inner_texts()[2:] == ["plan", "balance"]
    page.uncheck("input[name=cols]")  # what a person chooses stays
    page.wait_for_selector(".changes th >> text=email")
    with dl.diff(CUSTOMERS / "monday.csv", CUSTOMERS / "tuesday.csv", key="id") as found:
        found.write(tmp_path / "report.html")
    page.goto((tmp_path / "report.html").as_uri())
    assert page.is_checked("#narrow")
    assert page.locator(".changes thead th:visible").all_inner_texts()[2:] == ["plan", "balance"]
    page.uncheck("#narrow")
    assert page.is_visible(".changes th >> text=email")


def test_only_files_that_may_have_rules_are_offered(page: Any, server: Server) -> None:
    (server.folder / "package.json").write_text('{"name": "no rules in it"}')
    (server.folder / "orders.yaml").write_text("type: object\nproperties: {}\n")
    page.goto(f"{server.address}/payloads")
    assert "package.json" not in page.locator("[data-fill=rules]").all_inner_texts()
    page.click("[data-fill=rules][value='orders.yaml']")
    assert page.input_value("textarea[name=rules]") == "orders.yaml"


def test_from_pairs_to_an_accepted_rule(page: Any, server: Server) -> None:
    write_pairs(server.folder / "pairs.jsonl")
    (server.folder / "rules.yaml").write_text("# kept by people\ntype: object\nproperties:\n  id: {type: integer}\n")
    page.goto(f"{server.address}/payloads")
    page.fill("input[name=pairs]", "pairs.jsonl")
    page.click("[data-fill=rules][value='rules.yaml']")
    page.click("button.primary")
    page.wait_for_url("**/payloads/batch**")
    assert page.locator(".kinds b").all_inner_texts() == ["0", "40", "1", "0"]
    assert "$.status" in page.inner_text(".places tbody tr:first-child")
    assert page.inner_text(".places tbody tr:first-child .share").strip() == "100.0 %"
    page.click(".rates a")
    page.wait_for_url("**endpoint=**")
    look_at(page, "payloads")
    page.click(".example a >> nth=0")  # the second click
    page.wait_for_url("**/payloads/pair**")
    assert "$.status" in page.inner_text("tbody tr:first-child")
    look_at(page, "payload-pair")
    page.go_back()
    page.wait_for_selector("text=Accept as a rule…")
    page.click("text=Failed pairs")
    page.wait_for_selector("text=not valid JSON")
    page.click("text=Suggested rules")
    page.wait_for_selector(".card")
    look_at(page, "payload-rules")
    [box] = page.query_selector_all("input[name=rule][value*=status]")
    box.set_checked(True)
    assert "Hides" in page.inner_text(".card >> nth=0")
    page.click("text=Accept as rules…")
    page.wait_for_selector(".patch .plus")
    assert "x-migration-" in page.inner_text(".patch")
    look_at(page, "payload-accept", once=True)
    assert "x-migration" not in (server.folder / "rules.yaml").read_text()
    page.click("text=Write and run again")
    page.wait_for_url("**/payloads/batch**")
    written = (server.folder / "rules.yaml").read_text()
    assert written.startswith("# kept by people\n")
    assert "x-migration-" in written
    assert page.locator(".kinds b").all_inner_texts()[:3] == ["30", "10", "1"]


def test_a_pipeline_is_run_looked_at_and_run_again(page: Any, server: Server) -> None:
    write_pipeline(server.folder)
    page.goto(f"{server.address}/pipelines")
    page.click("text=nightly")
    assert "has not run yet" in page.inner_text("main")
    page.click("button.primary")
    page.wait_for_url("**run=**")
    assert page.inner_text("h1 .badge") == "exceeded"
    assert page.inner_text("td .badge.failed") == "exceeded"
    assert "106 changed" in page.text_content(".flowchart")
    look_at(page, "pipeline", dark_colours=True)
    (server.folder / "nightly.toml").write_text(PIPELINE.replace("1%", "50%"))
    page.click("button.primary")
    page.wait_for_selector("h1 .badge.done")
    assert page.locator("aside .dot").count() == 2
    page.click("aside .dot.exceeded")
    page.wait_for_selector("h1 .badge.exceeded")
    page.click("text=changes/customers-2026-03-02.jsonl")
    page.wait_for_selector(".rates")
    assert "106" in page.inner_text(".kinds .changed")


def test_a_changeset_is_dropped_read_inverted_and_tried(page: Any, server: Server) -> None:
    made = write_databases(server.folder)
    page.goto(f"{server.address}/changesets")
    page.evaluate(DROP, ["changes.bin", list(made)])
    while not page.input_value("input[name=path]"):  # a test that waits for ever is stopped by its run
        page.wait_for_timeout(20)
    assert page.input_value("input[name=path]") == ".driftline/uploads/changes.bin"
    page.fill("input[name=database]", "before.db")
    look_at(page, "changesets", once=True)
    page.click("button.primary")
    page.wait_for_selector("td.cell ins")
    assert page.locator(".kinds b").all_inner_texts() == ["+ 1", "~ 1", "− 1"]
    assert page.inner_text("td.cell").split() == ["Ann", "Anna"]
    look_at(page, "changeset")
    page.click("text=SQL")
    page.wait_for_selector(".sql")
    assert 'UPDATE "users" SET "name" = \'Anna\' WHERE "id" = 1;' in page.inner_text(".sql")
    page.click(".tabs >> text=Inverse")
    page.wait_for_selector(".sql >> text=/'Ann'/")
    page.click("text=Try to apply")
    page.wait_for_selector("text=No conflict: everything would be applied")
    page.fill("input[name=database]", "after.db")
    page.click("text=Try on a copy")
    page.wait_for_selector(".card")
    assert "NOTFOUND" in page.inner_text(".cards")
    assert "DATA" in page.inner_text(".cards")
    look_at(page, "changeset-apply", once=True)


# A drop as a browser makes it; a file cannot be dragged in from outside by a script.
DROP = """([name, bytes]) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([new Uint8Array(bytes)], name));
  document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""


def test_a_lake_is_travelled_and_a_row_tells_its_history(page: Any, server: Server) -> None:
    write_lake(server.folder / "lake")
    page.goto(f"{server.address}/lake")
    page.wait_for_selector(".changes tbody tr")
    assert page.locator(".changes tbody tr").count() == 1
    look_at(page, "lake")
    page.fill("#at", "0")
    page.wait_for_url("**at=0**")
    page.wait_for_selector(".changes tbody tr:nth-child(2)")
    assert "milk" in page.inner_text(".changes tbody")
    page.click(".changes tbody a >> nth=0")
    page.wait_for_selector(".card")
    shown = page.inner_text(".cards")
    assert "soy ✓ the last to set it" in " ".join(shown.split())
    assert "same clock, and bo comes after ann" in shown
    look_at(page, "lake-row", once=True)
    page.click("text=Verify")
    page.click("button.primary")
    page.wait_for_selector("text=Proved: the state is the replay of its deltas")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_two_revisions_are_compared_definition_by_definition(page: Any, server: Server) -> None:
    write_repository(server.folder / "project")
    page.goto(f"{server.address}/code")
    page.click("button.primary")
    page.wait_for_url("**/code/*")
    page.click(".rates a >> text=shop.py")
    page.wait_for_url("**file=shop.py")
    assert "total" in page.inner_text(".card.changed h3")
    assert page.inner_text("td.new") == "    return round(sum(prices), 2)"
    assert page.locator("td.new mark").count() > 0
    look_at(page, "code")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_review_of_code_keeps_its_place(page: Any, server: Server) -> None:
    """The list of files stays where it is when a file is opened; going back returns to the line that was read."""
    names = [f"pkg/module_{number:02}.py" for number in range(40)]
    body = "".join(f"def f{n}():\n    return {{}}\n\n\n" for n in range(30))
    versions = [dict.fromkeys(names, body.replace("{}", value)) for value in ("1", "2")]
    make_repository(server.folder / "many", *versions)
    page.goto(f"{server.address}/code")
    page.select_option("select[name=repository]", "many")
    page.wait_for_selector("#revisions option[value=v1]", state="attached")
    page.fill("input[name=before]", "v1")
    page.fill("input[name=after]", "v2")
    page.click("button.primary")
    page.wait_for_selector(".verdict")
    look_at(page, "code-overview")
    page.click(".rates a >> text=module_35.py")
    page.wait_for_url("**module_35.py")
    list_at = page.evaluate("document.querySelector('aside').scrollTop")
    assert list_at > 0
    page.evaluate("document.querySelector('.scroll').scrollTo(0, 700)")
    page.click(".rates a >> text=module_36.py")
    page.wait_for_url("**module_36.py")
    assert page.evaluate("document.querySelector('aside').scrollTop") == list_at
    assert page.evaluate("document.querySelector('.scroll').scrollTop") == 0
    page.go_back()
    page.wait_for_selector("h2 >> text=module_35.py")
    place = "[document.querySelector('aside').scrollTop, document.querySelector('.scroll').scrollTop]"
    assert page.evaluate(place) == [list_at, 700]
    page.goto(f"{server.address}/lake")
    page.go_back()
    page.wait_for_selector("h2 >> text=module_35.py")
    assert page.evaluate(place) == [list_at, 700]
    page.reload()
    assert page.evaluate(place) == [list_at, 700]


def test_a_server_shows_what_it_serves_and_its_api_can_be_tried(page: Any) -> None:
    with serving() as address:
        page.goto(address)
        page.click("button.primary")
        page.wait_for_selector("#report >> text=They match.")
        page.fill("textarea[name=new]", '{"id": 8, "total": 10.0, "status": "open"}')
        page.click("button.primary")
        page.wait_for_selector("#report td >> text=value mismatch")
        look_at(page, "server")
        page.click("nav >> text=API")
        page.click("details >> nth=0")
        page.click("form.try button >> nth=0")
        page.wait_for_selector(".outcome >> text=/200 in/")
        assert '"is_match"' in page.inner_text(".answer >> nth=0")
        look_at(page, "server-api", once=True)


def test_an_offer_of_columns_that_comes_late_does_not_replace_a_newer_one(page: Any, server: Server) -> None:
    (server.folder / "repeated.csv").write_text("id,v\n1,x\n1,y\n")
    held: list[Any] = []
    page.route("**/columns?*b=repeated.csv", lambda route: held.append(route))
    page.goto(server.address)
    page.fill("input[name=a]", "monday.csv")
    page.fill("input[name=b]", "repeated.csv")
    page.keyboard.press("Tab")
    page.fill("input[name=b]", "tuesday.csv")
    page.keyboard.press("Tab")
    page.wait_for_selector("input[name=key][value=email]")
    with page.expect_response("**/columns?*repeated*"):
        held[0].continue_()
    page.wait_for_load_state("networkidle")
    assert page.input_value("input[name=offered]") == "monday.csv\ttuesday.csv"
    page.click("button.primary")
    page.wait_for_url("**/results/*")
    assert "key id" in page.inner_text(".meta")


def test_a_button_that_is_clicked_twice_starts_one_job(page: Any, server: Server) -> None:
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    page.goto(server.address)
    page.fill("input[name=a]", "monday.csv")
    page.fill("input[name=b]", "tuesday.csv")
    page.evaluate("for (let n = 0; n < 3; n++) document.querySelector('button.primary').click()")
    page.wait_for_url("**/results/*")
    assert [url for url in sent if url.endswith("/compare")] == [f"{server.address}/compare"]
    page.go_back()
    page.wait_for_selector("#compare")
    assert page.input_value("input[name=b]") == "tuesday.csv"
    page.click("button.primary")  # the form can be sent again
    page.wait_for_url("**/results/*")


def test_what_is_typed_while_a_view_is_loaded_stays(page: Any, result: str) -> None:
    page.goto(result)
    page.wait_for_selector(".rates")
    held: list[Any] = []
    page.route("**/results/*q=C0000*", lambda route: held.append(route) if not held else route.continue_())
    page.click("#search")
    page.keyboard.type("C0000")
    while not held:
        page.wait_for_timeout(20)
    page.keyboard.type("4")
    held[0].continue_()
    page.wait_for_url("**q=C00004**")
    assert page.input_value("#search") == "C00004"
    page.wait_for_selector(".changes tbody:not(:has(tr:nth-child(2)))")


def test_large_tables_are_counted_when_asked_to(page: Any, server: Server) -> None:
    line = "x" * 99 + "\n"
    for name in ("large-1.csv", "large-2.csv"):
        (server.folder / name).write_text("id,v\n" + "".join(f"{n},{line}" for n in range(330_000)))
    page.goto(server.address)
    page.fill("input[name=a]", "large-1.csv")
    page.fill("input[name=b]", "large-2.csv")
    page.keyboard.press("Tab")
    page.wait_for_selector("#preview:not(.busy) #count-now")
    page.click("#count-now")
    page.wait_for_selector("#preview:not(.busy) td.changed", timeout=240_000)
    assert page.inner_text("#preview td.changed") == "0"


def test_a_console_that_ended_says_so(browser: Any, tmp_path: Path) -> None:
    shutil.copy(CUSTOMERS / "monday.csv", tmp_path)
    ended = Server(tmp_path)
    page = browser.new_page()
    page.goto(ended.address)
    ended.close()
    page.fill("input[name=a]", "monday.csv")
    page.fill("input[name=b]", "monday.csv")
    page.keyboard.press("Tab")
    page.wait_for_selector("#preview .problem >> text=start driftline ui again")
    page.close()


def test_compare_before_the_columns_are_offered_finds_the_key(page: Any, server: Server) -> None:
    """The offer of key columns never arrives; the form is sent as it is."""
    page.route("**/columns?*", lambda route: None)
    page.goto(server.address)
    page.fill("input[name=a]", "monday.csv")
    page.fill("input[name=b]", "tuesday.csv")
    page.keyboard.press("Tab")
    page.click("button:has-text('Compare') >> nth=0")
    page.wait_for_url("**/results/*")
    assert "key id (chosen: its values are unique)" in page.inner_text(".meta")
