"""`driftline diff` on a real terminal (a pseudo-terminal of a given width), and in a pipe."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from driftline.cli._outcome import run
from driftline.cli.main import driftline
from support.processes import run_process
from support.terminals import ROOT, left_on_screen, on_terminal, plain

CUSTOMERS = ROOT / "examples/customers"
DIFF = ["diff", str(CUSTOMERS / "monday.csv"), str(CUSTOMERS / "tuesday.csv"), "--key", "id", "--no-progress"]


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_a_person_sees_counts_columns_and_the_first_changes(columns: int) -> None:
    code, screen = on_terminal(DIFF, columns)
    lines = plain(screen)
    assert code == 1
    assert "\x1b[" in screen
    assert max(map(len, lines)) <= columns
    text = "\n".join(lines)
    assert "monday.csv → tuesday.csv" in text
    assert "+ 79 added" in text
    assert re.search(r"~  C00004  balance  2182\.89  2270\.20  \+87\.31 \(\+4\.0%\)", text)
    assert "208 more: -o changes.jsonl" in text


@pytest.mark.parametrize(("options", "variables"), [(["--color", "never"], {}), ([], {"NO_COLOR": "1"})])
def test_colours_can_be_switched_off(options: list[str], variables: dict[str, str]) -> None:
    colours = re.findall(r"\x1b\[[0-9;]*3[0-9][0-9;]*m", on_terminal([*options, *DIFF], 80, **variables)[1])
    assert colours == []


def test_a_pipe_carries_the_events_as_ever(tmp_path: Path) -> None:
    done = run_process([sys.executable, "-m", "driftline", *DIFF], capture_output=True, check=False)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, events[0]["type"], events[-1]["type"]) == (1, "schema", "stats")


def test_an_output_ends_with_one_line_on_a_terminal(tmp_path: Path) -> None:
    code, screen = on_terminal([*DIFF, "-o", str(tmp_path / "changes.jsonl")], 200)
    assert code == 1
    assert re.search(r"changes\.jsonl: 220 changes \(\+79 −35 ~106\), \d+ KB, \d+\.\d s", "\n".join(plain(screen)))


def test_control_characters_and_markup_are_shown_harmlessly(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,v\n1,x\n")
    (tmp_path / "b.csv").write_text('id,v\n1,"\x1b[31m[bold]evil[/bold]\n"\n')
    code, screen = on_terminal(["diff", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--key", "id"], 100)
    assert code == 1
    assert "·[31m[bold]evil[/bold]␊" in "\n".join(plain(screen))


@pytest.mark.parametrize("columns", [80, 140])
def test_the_progress_of_a_slow_diff_leaves_the_answer_whole(columns: int) -> None:
    """B arrives on a pipe over two seconds, after which bars are drawn."""
    out, into = os.pipe()
    sender = threading.Thread(target=_send_slowly, args=(into, (CUSTOMERS / "tuesday.csv").read_bytes()))
    sender.start()
    command = ["diff", str(CUSTOMERS / "monday.csv"), "-", "--key", "id", "--engine", "vectorized"]
    code, output = on_terminal(command, columns, stdin=out)
    sender.join()
    os.close(out)
    assert code == 1
    assert "100%" in output, "a bar was drawn"
    screen = left_on_screen(output, columns)
    without_bars = left_on_screen(on_terminal([*DIFF, "--engine", "vectorized"], columns)[1], columns)
    assert screen[0].startswith("monday.csv → - ")
    assert screen[1:] == without_bars[1:]


def _send_slowly(pipe: int, content: bytes) -> None:
    half = len(content) // 2
    with open(pipe, "wb", buffering=0) as out:
        out.write(content[:half])
        time.sleep(2.3)  # longer than what draws nothing
        out.write(content[half:])


def _pair(folder: Path, header: str, before: list[str], after: list[str]) -> list[str]:
    for name, lines in (("a.csv", before), ("b.csv", after)):
        (folder / name).write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return ["diff", str(folder / "a.csv"), str(folder / "b.csv"), "--key", "id", "--no-progress"]


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_a_key_is_never_cut(tmp_path: Path, columns: int) -> None:
    """Long values and differences give way; the key is what a reader looks up."""
    key = "2327d0c4-5b1e-4f60"
    command = _pair(
        tmp_path,
        "id,latitude,description",
        [f"{key},51.470020,{'x' * 90} old"],
        [f"{key},51.470020298095703,{'x' * 90} new"],
    )
    lines = left_on_screen(on_terminal(command, columns)[1], columns)
    assert sum(key in line for line in lines) == 2
    assert "+0.000000298" in "\n".join(lines) or columns < 140
    assert ("old" in "\n".join(lines)) or columns == 60


def test_the_kind_of_change_and_a_rule_are_named(tmp_path: Path) -> None:
    ids = range(40)
    before = [f"{n},{n}.123456,Name {n},0{n % 10}" for n in ids]
    after = [f"{n},{n}.123{n:03},NAME {n},1" for n in ids]
    text = "\n".join(left_on_screen(on_terminal(_pair(tmp_path, "id,lat,name,code", before, after), 140)[1], 140))
    assert "case only" in text
    assert re.search(
        r"40 of 40 changes of name are case only: --normalize name=case would leave 0, and hide such", text
    )
    assert re.search(r"40 of 40 changes of lat are below 0.001: --tolerance lat=0.001 would leave 0", text)
    assert not re.search(r"code +0\d +1 +[+−]", text), "a code is no amount"


def test_a_summary_counts_what_the_events_hold(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """More changed rows than a summary keeps: the counts are the engine's, also of a column that changed late."""
    for name, shift in (("a.csv", 0), ("b.csv", 1)):
        lines = (
            f"{row},{row + shift},{shift if row == 2500 else 'x'},{row % 7 + shift * (row % 3)}" for row in range(3000)
        )
        (tmp_path / name).write_text("id,always,once,some\n" + "\n".join(lines) + "\n")
    words = ["diff", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--key", "id", "--format"]
    assert run(driftline, [*words, "jsonl"]) == 1
    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    counts = Counter(name for event in events if event["type"] == "changed" for name in event["changed"])
    assert run(driftline, [*words, "summary"]) == 1
    shown = capfd.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:3]] for line in shown.splitlines() if line.startswith("│")]
    told = {name: int(count.replace(",", "")) for name, count in rows if name in ("always", "once", "some")}
    assert told == counts == {"always": 3000, "once": 1, "some": 2000}
    assert "0: '0' → '1'" in shown


def test_a_difference_without_room_leaves_no_dots(tmp_path: Path) -> None:
    rows = [("1", "a long text of the first version" * 2), ("2", "5")]
    (tmp_path / "a.csv").write_text("id,v\n" + "".join(f"{key},{cell}\n" for key, cell in rows))
    (tmp_path / "b.csv").write_text("id,v\n" + "".join(f"{key},{cell.upper()}1\n" for key, cell in rows))
    _, screen = on_terminal(["diff", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--key", "id"], 60)
    assert [line.split() for line in plain(screen) if line.startswith("~  2")] == [["~", "2", "v", "5", "51"]]


@pytest.mark.parametrize("columns", [80, 140])
def test_long_names_of_columns_are_told_apart(tmp_path: Path, columns: int) -> None:
    names = [f"a_column_with_a_rather_long_name_of_number_{number:02}" for number in range(6)]
    rows = [",".join(["k", *(f"{side}{number}" for number in range(6))]) for side in "ab"]
    code, screen = on_terminal(_pair(tmp_path, ",".join(["id", *names]), rows[:1], rows[1:]), columns)
    assert code == 1
    lines = plain(screen)
    for number in range(6):
        assert sum(f"ber_{number:02} " in line for line in lines) == 2, "a line of the columns, and one of the cells"
