"""What terminal, page and console show of a lake, a changeset and a run is one record of its package."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from driftline.changesets import apply
from driftline.lake import Lake, lake_log, row_history, status_of
from driftline.pipeline import load, report_page, run_report
from support.console_folder import copy_tables, write_databases, write_lake, write_pipeline
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
