"""A format that only has rows is one file in `sources/_formats/`: nothing else names it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import driftline as dl
import driftline.sources._formats as formats
from driftline.errors import InputError

FWF = '''
"""Fixed-width text: the columns end where those of the first line do."""

from dataclasses import dataclass
from itertools import pairwise

from driftline.sources._source import RowSource


def open_input(address, opening):
    return FixedWidthSource(opening.files, "fwf")


@dataclass(frozen=True, slots=True)
class FixedWidthSource(RowSource):
    def rows(self, file):
        with file.open() as stream:
            head, *lines = stream.read().decode().splitlines()
        names = head.split()
        starts = [*map(head.index, names), None]
        for line in lines:
            yield {name: line[a:b].strip() for name, (a, b) in zip(names, pairwise(starts))}
'''


@pytest.fixture
def fixed_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "fwf.py").write_text(FWF)
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path / "more")])
    yield
    import sys

    sys.modules.pop("driftline.sources._formats.fwf", None)


@pytest.mark.usefixtures("fixed_width")
def test_the_file_alone_adds_the_format(tmp_path: Path) -> None:
    (tmp_path / "a.fwf").write_text("id name \n1  Ann  \n2  Bob  \n")
    (tmp_path / "b.csv").write_text("id,name\n1,Anna\n2,Bob\n")
    found = dl.diff(tmp_path / "a.fwf", tmp_path / "b.csv", key="id")
    assert [event["key"] for event in found.changes()] == [{"id": "1"}]
    folder = tmp_path / "parts"
    folder.mkdir()
    for name in ("1.fwf", "2.fwf", "notes.dat"):
        (folder / name).write_text("id name\n1  Ann\n".replace("1", name[0]))
    assert len(dl.diff(folder, tmp_path / "b.csv", key="id", engine="vectorized")) == 2


@pytest.mark.usefixtures("fixed_width")
def test_its_errors_name_the_input(tmp_path: Path) -> None:
    (tmp_path / "a.fwf").write_bytes(b"id name\n1  \xff\n")
    with pytest.raises(InputError, match=r"a\.fwf cannot be read") as caught:
        dl.diff(tmp_path / "a.fwf", tmp_path / "a.fwf", key="id")
    assert caught.value.code == "unreadable_input"


def test_modules_that_read_nothing_are_no_formats(tmp_path: Path) -> None:
    (tmp_path / "a.columnar").write_text("id\n1\n")
    assert not dl.diff(tmp_path / "a.columnar", tmp_path / "a.columnar", key="id")
    assert formats.format_of_suffix(".columnar") is None
