"""The console's pages as people use them, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from web.console_server import Server, look_at
from web.test_console import write_events


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


def test_the_diff_page_looks_right(page: Any, server: Server) -> None:
    compare(page, server)
    look_at(page, "diff")
