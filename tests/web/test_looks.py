"""Every page and report as Chromium shows it, wide and narrow, light and dark: nothing runs out, all can be read.

The data is what pages are bad at: sixty columns, long names and cells, no row, one row, and every kind of error. The
pictures are in `out/screenshots/looks`, for people to look at.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import console_folder
from support.console_server import SCREENSHOTS, Server, problems
from support.page_walker import Walker
from support.processes import run_process

pytestmark = pytest.mark.browser

LONG = "a_rather_long_name_without_a_blank_of_number"
NESTED = "a/folder/in_a_folder_with_a_rather_long_name/in_another_folder"
SCHEMES = ("light", "dark")
WIDTHS = (1400, 420)
RULES = ("color-contrast", "scrollable-region-focusable", "link-in-text-block", "label", "button-name")
CUT = """() => [...document.querySelectorAll("body *")].filter(element =>
    !element.children.length && element.clientWidth && element.scrollWidth > element.clientWidth + 1
    && getComputedStyle(element).overflowX !== "visible" && !element.closest("[title]")
    && !element.matches("input, textarea, select, pre, code, .unseen"))
    .map(element => element.outerHTML.slice(0, 120))"""


def write_world(folder: Path) -> None:
    names = ["id", *(f"{LONG}_{n}" if n % 3 == 0 else f"c{n}" for n in range(60))]
    for side in (1, 2):
        cells = ((f"v{row}-{n}" + "!" * (side == 2 and (row + n) % 9 == 0) for n in range(60)) for row in range(120))
        lines = (",".join([str(row), *found]) for row, found in enumerate(cells))
        (folder / f"wide-{side}.csv").write_text("\n".join([",".join(names), *lines]) + "\n")
        text = "lorem ipsum " * 5_000 + "!" * side
        (folder / f"long-{side}.csv").write_text(f'id,text\n1,"{text}"\n2,{"W" * 400}{side}\n')
        (folder / f"one-{side}.csv").write_text(f"id,v\n1,{side}\n")
        (folder / f"none-{side}.csv").write_text("id,v\n")
        (folder / NESTED).mkdir(parents=True, exist_ok=True)
        (folder / NESTED / f"{LONG}-{side}.csv").write_text(f"id,v\n1,{side}\n")
    (folder / "other.csv").write_text("id,w,x\n1,2,3\n")
    (folder / "empty.csv").write_text("")
    console_folder.write_pairs(
        folder / "pairs.jsonl", endpoint="/customers/{id}/addresses/{address}/a/rather/long/path"
    )
    (folder / NESTED / f"{LONG}.yaml").write_text("type: object\nproperties: {}\n")
    console_folder.copy_tables(folder)
    console_folder.write_pipeline(folder)
    console_folder.write_lake(folder / "lake")
    console_folder.write_reviewed_repository(folder / "project")
    write_changeset(folder)


def write_changeset(folder: Path) -> None:
    import apsw

    from driftline.changesets import diff

    columns = ", ".join(f"column_{n} TEXT" for n in range(25))
    for name, mark in (("old.db", ""), ("new.db", "!")):
        connection = apsw.Connection(str(folder / name))
        connection.execute(f"CREATE TABLE {LONG} (id INTEGER PRIMARY KEY, {columns})")
        rows = [(row, *(f"value {row} {n}" + mark * ((row + n) % 9 == 0) for n in range(25))) for row in range(80)]
        connection.executemany(f"INSERT INTO {LONG} VALUES ({','.join('?' * 26)})", rows)
        connection.close()
    (folder / "wide.changeset").write_bytes(bytes(diff(str(folder / "old.db"), str(folder / "new.db"))))


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The address of every kind of page, by name."""
    folder = tmp_path_factory.mktemp("world")
    write_world(folder)
    server = Server(folder)
    walker = Walker(server.address)
    found = {"start": "/", "payloads": "/payloads", "pipelines": "/pipelines", "changesets": "/changesets"}
    found |= {"code": "/code", "not-found": "/nowhere", "no-form": "/compare"}
    for name in ("wide", "long", "one", "none"):
        form = walker.open("/").form("#compare").fill(a=f"{name}-1.csv", b=f"{name}-2.csv")
        found[f"diff-{name}"] = form.run().address
    for name, other in (("header", "other.csv"), ("empty", "empty.csv")):
        found[f"error-{name}"] = walker.open("/").form("#compare").fill(a="one-1.csv", b=other).run().address
    start = {
        "payloads": walker.open("/payloads").form("form.compare").fill(pairs="pairs.jsonl", rules="rules.yaml").run(),
        "changeset": walker.open("/changesets")
        .form("form.compare")
        .fill(path="wide.changeset", database="old.db")
        .run(),
        "lake": walker.open("/lake"),
    }
    for name, page in start.items():
        found |= {f"{name}-{link.text.split()[0]}": page.link_to(link) for link in page.all(".tabs a")}
    found["pair"] = start["payloads"].link_to(start["payloads"].all(".example a")[0])
    found["lake-row"] = start["lake"].link_to(start["lake"].all(".changes tbody a")[0])
    found["run"] = walker.open("/pipelines").follow("main a", "nightly").form(".actions form").run().address
    review = walker.open("/code").form("form.compare").run()
    found["review"] = review.address
    found["review-file"] = review.link_to(review.one(".rates a[href*=prices]"))
    found = {name: server.address + address for name, address in found.items()}
    found |= {name: path.as_uri() for name, path in write_reports(folder).items()}
    yield found
    walker.close()
    server.close()


def write_reports(folder: Path) -> dict[str, Path]:
    """The pages that commands write, by name."""
    commands = {
        "diff": ["diff", "wide-1.csv", "wide-2.csv", "--key", "id", "-o", "diff.html"],
        "same": ["diff", "one-1.csv", "one-1.csv", "--key", "id", "-o", "same.html"],
        "batch": ["payloads", "batch", "pairs.jsonl", "-o", "batch"],
        "run": ["pipeline", "report", "nightly.toml", "-o", "run.html"],
        "review": ["index", "diff", "git:HEAD~1", "git:HEAD", "--repo", "project", "-o", "review.html"],
        "suggest": ["payloads", "suggest", "good.jsonl", "-o", "found.yaml", "--page", "suggest.html"],
    }
    lines = (folder / "pairs.jsonl").read_text().splitlines()[:-1]  # the last one is cut off
    (folder / "good.jsonl").write_text("\n".join(lines) + "\n")
    for command in commands.values():
        run_process([sys.executable, "-m", "driftline", *command], cwd=folder, capture_output=True)
    found = {name: folder / ("batch/report.html" if name == "batch" else f"{name}.html") for name in commands}
    missing = [name for name, path in found.items() if not path.is_file()]
    assert not missing, missing
    return {f"report-{name}": path for name, path in found.items()}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_page_fits_and_can_be_read(browser: Any, addresses: dict[str, str], scheme: str, width: int) -> None:
    folder = SCREENSHOTS / "looks"
    folder.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(120_000)
    faults: dict[str, list[str]] = {}
    page.on("pageerror", lambda error: faults.setdefault(page.url, []).append(str(error)))
    for name, address in addresses.items():
        page.goto(address)
        page.wait_for_selector("#counting, .busy", state="detached")
        page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
        found = faults.setdefault(name, [])
        found += problems(page, *RULES)
        found += [f"cut: {words}" for words in page.evaluate(CUT)[:3]]
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found.append("the page scrolls sideways")
    context.close()
    assert {name: found for name, found in faults.items() if found} == {}
