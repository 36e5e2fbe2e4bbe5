"""What terminal, page and console show of each of six results is one record of its package."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import driftline as dl
from driftline.changesets import apply
from driftline.lake import Lake, lake_log, row_history, status_of
from driftline.payloads import BatchView
from driftline.pipeline import load, report_page, run_report
from support.console_folder import (
    copy_tables,
    write_databases,
    write_lake,
    write_pipeline,
    write_reviewed_repository,
)
from support.console_server import Server
from support.html_pages import parsed
from support.page_walker import Walker
from support.terminals import on_terminal, plain

WIDE = 250


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("records")
    copy_tables(made)
    write_pipeline(made)
    write_lake(made / "lake")
    (made / "changes.bin").write_bytes(write_databases(made))
    write_reviewed_repository(made / "shop")
    pairs = [
        {"id": number, "endpoint": "/orders", "old": {"id": number, "gone": None}, "new": {"id": number, "more": 7}}
        for number in range(4)
    ]
    pairs += [{"id": 4, "endpoint": "/orders", "old": {"id": 4}, "new": {"id": 4}}]
    pairs += [{"id": 5, "endpoint": "/users", "old": {"v": 1}, "new": {"v": 2}}]
    pairs += [{"id": 6, "endpoint": "/orders", "missing": "new", "old": {"id": 6}}]
    (made / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return made


@pytest.fixture(scope="module")
def walker(folder: Path) -> Iterator[Walker]:
    server = Server(folder)
    walker = Walker(server.address)
    yield walker
    walker.close()
    server.close()


def terminal(*arguments: str) -> list[list[str]]:
    """The cells of each line that a command prints on a terminal."""
    return [
        [cell.strip() for cell in line.split("  ") if cell.strip()]
        for line in plain(on_terminal(list(arguments), WIDE)[1])
    ]


def test_a_table_diff(walker: Walker, folder: Path) -> None:
    sides = (folder / "monday.csv", folder / "tuesday.csv")
    with dl.diff(*sides, key="id", ignore=["city"]) as found:
        profile = found.profile().to_dict()
    assert profile["columns"]
    code, screen = on_terminal(["diff", *map(str, sides), "-k", "id", "--ignore", "city"], WIDE)
    shown = "\n".join(plain(screen))
    assert code == 1
    command = ["diff", *map(str, sides), "-k", "id", "--ignore", "city", "-o", str(folder / "diff.html")]
    assert on_terminal(command, WIDE)[0] == 1
    page = parsed((folder / "diff.html").read_text())
    console = walker.open("/").form("#compare").fill(a="monday.csv", b="tuesday.csv", key="id", ignore="city").run()
    console = console.counted()
    for name, about in profile["columns"].items():
        assert all(words in shown for words in about["words"]), name
    rates = [[element.text for element in one.all("span")] for one in page.all(".rates li")]
    assert [[element.text for element in one.all("span")] for one in console.all(".rates li")] == rates
    assert [cells[-1] for cells in rates if cells[0] == "city"] == ["not compared"]
    for document in (page, console):
        words = document.texts(".rates .kind-of")
        assert sorted(words) == sorted(" · ".join(about["words"]) for about in profile["columns"].values())
        assert document.texts(".findings li") == [
            *profile["blocks"],
            *(rule["sentence"] for rule in profile["suggestions"][:6]),
        ]


def test_a_batch_of_payloads(walker: Walker, folder: Path) -> None:
    code, screen = on_terminal(["payloads", "batch", str(folder / "pairs.jsonl"), "-o", str(folder / "batch")], WIDE)
    assert code == 1
    view = BatchView(*(json.loads((folder / f"batch/{name}.json").read_bytes()) for name in ("summary", "aggregate")))
    places = [place["path"] for place in view.places]
    page = parsed((folder / "batch/report.html").read_text())
    assert [cell.text.split()[1] for cell in page.all(".places td .path")] == places
    console = walker.open("/payloads/batch?path=batch")
    assert [cell.text.partition("/")[0].split()[0] for cell in console.all(".places tbody th")] == places
    lines = [line for line in plain(screen) if "$" in line]
    assert [next(word for word in line.split() if word.startswith("$")) for line in lines] == places
    # Of six pairs of orders one matches; the pair without a partner is one of those that differ.
    shares = {name: view.share(counts) for name, counts in view.summary["endpoints"].items()}
    assert shares == {"/orders": 1 / 6, "/users": 0}
    rates = {one.one(".name").text: one.one(".rate").text for one in console.all(".rates li")}
    assert rates == {name: f"{100 * share:.1f} %" for name, share in shares.items()}
    assert f"({view.share(view.summary):.1%})" in plain(screen)[0]
    # What one side alone has is shown without a value of the other: null is a value.
    by_path = {place["path"]: place["sample"][0] for place in view.places}
    assert (by_path["$.gone"]["old_value"], "new_value" in by_path["$.gone"]) == (None, False)
    assert any(line.rstrip().endswith("null is gone") for line in lines)
    assert any(line.rstrip().endswith("7 is new") for line in lines)
    pair = walker.open("/payloads/pair?path=batch&id=0")
    for document in (page, console, pair):
        rows = document.all("tbody tr")
        gone, more = (next(row for row in rows if path in row.text) for path in ("$.gone", "$.more"))
        assert (len(gone.all("ins")), len(more.all("del"))) == (0, 0)
        assert gone.all("del")[0].text == "null"
        assert more.all("ins")[0].text == "7"


def test_a_diff_of_code(walker: Walker, folder: Path) -> None:
    found = dl.diff("git:HEAD~1", "git:HEAD", repo=folder / "shop")
    review = dl.codeindex.review(found.events)
    assert review.moves
    found.write(folder / "review.html")
    page = parsed((folder / "review.html").read_text())
    console = walker.open("/code").form("form.compare").run()
    assert page.one(".verdict").text == review.line
    assert console.one(".verdict").text.startswith(review.line)
    paths = [file.path for file in review.files]
    assert page.texts("nav ol li a") == paths
    assert [link.get("title") for link in console.all(".reviewed .rates .path")] == paths
    for document in (page, console):
        (listed,) = (table for table in document.all(".sideways") if table.get("aria-label") == "Renamed and moved")
        moved = listed.all("tbody tr")
        assert [row.all("code")[0].text for row in moved] == [event["before"]["name"] for event in review.moves]
    words = ["index", "diff", "git:HEAD~1", "git:HEAD", "--repo", str(folder / "shop")]
    assert review.line in plain(on_terminal(words, WIDE)[1])


def test_a_run(walker: Walker, folder: Path) -> None:
    console = walker.open("/pipelines").follow("main a", "nightly").form(".actions form", "Run").run()
    file = folder / "nightly.toml"
    report = run_report(load(file))
    page = parsed(b"".join(report_page(load(file), report, folder / "page.html")).decode())
    stages = [[stage.name, stage.result, f"{stage.seconds:.1f}", stage.words] for stage in report.stages]
    for document in (console, page):
        rows = document.all(".stages tbody tr")
        assert [[row.one("th").text, *(cell.text for cell in row.all("td")[:3])] for row in rows] == stages
        # A card is a number and its words, without a space between the elements.
        cards = [f"{count}stages {result}" for result, count in report.cards]
        over = report.exceeded("fail", "warn")
        assert document.texts(".cards li") == [*cards, f"{len(over)} of {len(report.limits)}limits exceeded"]
        assert [row.one("td .badge").text for row in document.all("table.list")[0].all("tbody tr")] == ["exceeded"]
    shown = terminal("pipeline", "status", str(file))
    assert shown[0][0].startswith(f"{report.pipeline}: {report.result} in {report.seconds:.1f} s")
    assert shown[-len(stages) :] == stages
    code, screen = on_terminal(["pipeline", "history", str(file)], WIDE)
    assert (code, len(plain(screen))) == (0, len(report.runs))
    assert plain(screen)[0].endswith(", ".join(f"{count} {result}" for result, count in report.runs[-1].stages.items()))
    assert on_terminal(["pipeline", "status", str(file)], WIDE)[0] == report.exit_code == 1


def test_the_tables_and_the_log_of_a_lake(walker: Walker, folder: Path) -> None:
    lake = Lake(str(folder / "lake"))
    (table,) = lake.tables()
    status = status_of(lake, table)
    console = walker.open("/lake")
    assert console.texts(".rates .count") == ["–" if status.rows is None else f"{status.rows:,}"]
    (row,) = terminal("lake", "tables", "--lake", lake.root)[-1:]
    assert row[0] == table
    assert row[-1] == status.columns_text
    log = [[entry.commit, entry.operation] for entry in lake_log(lake, table)]
    rows = console.follow(".tabs a", "Log").all(".changes tbody tr")
    assert [[row.one("th").text, row.all("td")[0].text] for row in rows] == log[::-1]
    assert [row[:2] for row in terminal("lake", "log", "-t", table, "--lake", lake.root)][-len(log) :] == log


def test_the_history_of_a_row(walker: Walker, folder: Path) -> None:
    lake = Lake(str(folder / "lake"))
    (table,) = lake.tables()
    for row_id in ("r1", "r2"):
        history = row_history(lake, table, row_id)
        page = walker.open(f"/lake/view?path=lake&table={table}&show=row&row={row_id}")
        heads = [f"{each.timestamp} · {each.delta.client_id} · {each.delta.op.lower()}" for each in history]
        assert [head.text.removesuffix(" no longer counts") for head in page.all(".card h3")] == heads[::-1]
        reasons = [("✓ " if won else "") + why for each in history[::-1] for _, _, won, why in each.values]
        assert [row.all("td")[1].text for row in page.all(".card tbody tr")] == reasons
        shown = terminal("lake", "history", "-t", table, "--row", row_id, "--lake", lake.root)
        assert [row[:3] for row in shown[-len(history) :]] == [
            [each.timestamp, each.delta.client_id, each.delta.op] for each in history
        ]


def test_what_applying_a_changeset_does(walker: Walker, folder: Path, tmp_path: Path) -> None:
    copies = [shutil.copy(folder / "after.db", tmp_path / f"{number}.db") for number in range(2)]
    applied = apply(folder / "changes.bin", str(copies[0]), "omit")
    assert applied.conflicts
    page = walker.open("/changesets/view?path=changes.bin&database=after.db&show=apply&policy=omit")
    counts = [[name, *map(str, numbers)] for name, numbers in applied.rows]
    table = page.all(".cards table.list")[0]
    assert table.texts("thead th") == ["table", *applied.kinds]
    assert [[row.one("th").text, *row.texts("td")] for row in table.all("tbody tr")] == counts
    assert page.texts(".card h3") == [f"{conflict.describe()} {action}" for conflict, action in applied.conflicts]
    shown = terminal("changeset", "apply", str(folder / "changes.bin"), str(copies[1]), "--on-conflict", "omit")
    assert shown[-len(counts) :] == counts
    assert ["table", *applied.kinds] in shown
