"""Inputs that cannot be read: one clear line and exit code 2, whatever a format's own library raises."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.core._workspace import Workspace
from driftline.errors import InputError
from driftline.sources import _open
from driftline.sources._formats import FORMATS
from driftline.sources._formats.csv import CsvSource, open_input
from driftline.sources._open import open_source
from support import table_inputs

# By format: how an input is made, and where its first file is.
INPUTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "csv": (table_inputs.quoted_csv, "t.csv"),
    "jsonl": (table_inputs.json_lines, "t.jsonl"),
    "parquet": (table_inputs.parquet, "t.parquet"),
    "arrow": (table_inputs.arrow, "t.arrow"),
    "sqlite": (table_inputs.sqlite_table, "t.db"),
    "duckdb": (table_inputs.duckdb_table, "t.duckdb"),
    "workbook": (table_inputs.workbook, "t.xlsx"),
    "hive": (table_inputs.hive, "hive/**/*.parquet"),
    "delta": (table_inputs.delta_version, "delta/*.parquet"),
    "delta log": (table_inputs.delta, "delta/_delta_log/*.json"),
    "iceberg": (table_inputs.iceberg, "**/data/*.parquet"),
    "iceberg metadata": (table_inputs.iceberg, "**/metadata/*.metadata.json"),
}
# No files: what a server or Spark says is asked in test_postgresql.py and spark/test_catalog_tables.py.
GAPS = {"postgresql", "spark"}


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2 + 1]


def garbage(data: bytes) -> bytes:
    """With the first bytes that the format is known by."""
    return data[:16] + random.Random(7).randbytes(len(data))


def garbage_inside(data: bytes) -> bytes:
    third = len(data) // 3
    return data[:third] + random.Random(8).randbytes(third) + data[2 * third :]


@pytest.fixture(autouse=True)
def catalog(monkeypatch: pytest.MonkeyPatch, open_folder: Path) -> None:
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    for name, value in {
        "TYPE": "sql",
        "URI": f"sqlite:///{open_folder}/catalog.db",
        "WAREHOUSE": f"{open_folder}",
    }.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__CHOICE__{name}", value)
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that anybody may look into, which pytest's are not."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Without the rights of the superuser, whom no permission stops."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def files_of(folder: Path, pattern: str) -> list[Path]:
    found = sorted(folder.glob(pattern))
    assert found
    return found


def judge(capfd: Any, *arguments: str) -> None:
    """Exit code 2 and one line that is not about a fault of driftline."""
    capfd.readouterr()
    code = run(driftline, ["diff", *arguments, "--key", "id"])
    errors = capfd.readouterr().err
    assert code == 2, errors
    assert errors.startswith("error[")
    assert errors.count("\n") == 1
    assert "internal" not in errors
    assert "standard output" not in errors


def test_every_format_is_asked() -> None:
    assert {name.partition(" ")[0] for name in INPUTS} | GAPS == set(FORMATS)


@pytest.mark.parametrize("damage", [truncated, garbage, garbage_inside], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("name", INPUTS)
def test_damage_is_told_in_one_line(open_folder: Path, capfd: Any, name: str, damage: Callable[[bytes], bytes]) -> None:
    make, pattern = INPUTS[name]
    given = str(make(open_folder))
    for path in files_of(open_folder, pattern):
        path.write_bytes(damage(path.read_bytes()))
    whole = str(table_inputs.csv_file(Path(tempfile.mkdtemp(dir=open_folder))))
    for sides in ((given, given), (given, whole), (whole, given)):
        judge(capfd, *sides, "--header-mode", "common")


@pytest.mark.parametrize("name", INPUTS)
def test_a_file_that_may_not_be_read_is_told_in_one_line(open_folder: Path, capfd: Any, name: str) -> None:
    make, pattern = INPUTS[name]
    given = str(make(open_folder))
    assert run(driftline, ["diff", given, given, "--key", "id"]) == 0  # imports everything while it may be read
    for path in open_folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for path in files_of(open_folder, pattern):
        path.chmod(0)
    with unprivileged():
        judge(capfd, given, given)


class TornPage(Exception):  # noqa: N818 - a library's name
    """What a library raises that nobody has heard of."""


TornPage.__module__ = "some_library.errors"
FOREIGN = {
    "a bad byte": lambda: b"\xff".decode(),
    "a library's own error": lambda: (_ for _ in ()).throw(TornPage("page 3 is torn\nmore words")),
    "an end that comes too soon": lambda: (_ for _ in ()).throw(EOFError("no end mark")),
    "a disk": lambda: os.stat("/nowhere/at/all"),
    "a number": lambda: __import__("json").loads("{"),
}
METHODS = ("open", "header", "records", "text_table", "lay_out", "sample", "normalized")


class OwnFormat:
    """A format as somebody adds one, which raises what its library raises."""

    name = "own"

    def __init__(self, method: str, fails: Callable[[], object]) -> None:
        self.method, self.fails = method, fails

    def open(self, address: Any, opening: Any) -> Any:
        if self.method == "open":
            self.fails()
        plain = open_input(address, opening)

        def failing(*_: object, **__: object) -> Any:
            return self.fails()

        own = type("OwnSource", (CsvSource,), {self.method: failing})
        return own(*(getattr(plain, name) for name in CsvSource.__dataclass_fields__))


def asked(path: Path, method: str, workspace: Workspace) -> None:
    given = {"sample": (1,), "lay_out": (100, workspace), "normalized": (workspace,)}.get(method, ())
    found = getattr(open_source(path, workspace), method)("A", *given)
    for _ in found:
        pass


@pytest.mark.parametrize("error", FOREIGN)
@pytest.mark.parametrize("method", METHODS)
def test_whatever_a_format_raises_names_the_input(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str, error: str
) -> None:
    path = table_inputs.csv_file(tmp_path)
    monkeypatch.setattr(_open, "format_of_file", lambda *_: OwnFormat(method, FOREIGN[error]))
    with pytest.raises(InputError) as caught, Workspace() as workspace:
        asked(path, method, workspace)
    words = str(caught.value)
    assert "\n" not in words
    if error != "a disk":
        assert words.startswith(f"{path} cannot be read: ")
        assert caught.value.code == "unreadable_input"


@pytest.mark.parametrize("fault", [AssertionError("so it is"), TypeError("no such argument"), ValueError("our own")])
def test_a_fault_of_driftline_stays_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: Exception) -> None:
    fails = eval("lambda: (_ for _ in ()).throw(fault)", {"__name__": "driftline.sources", "fault": fault})
    monkeypatch.setattr(_open, "format_of_file", lambda *_: OwnFormat("open", fails))
    with pytest.raises(type(fault)), Workspace() as workspace:
        open_source(table_inputs.csv_file(tmp_path), workspace)


@pytest.mark.spark
def test_damage_is_told_in_one_line_by_tasks_too(spark, open_folder: Path, capfd: Any) -> None:
    path = table_inputs.parquet(open_folder)
    data = path.read_bytes()
    path.write_bytes(data[:16] + random.Random(9).randbytes(len(data) // 2) + data[16 + len(data) // 2 :])
    judge(capfd, str(path), str(path), "--engine", "spark")
