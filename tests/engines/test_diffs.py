"""One noun: the results of all comparisons answer the same questions, and exit as their commands do."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import driftline as dl
from driftline import changesets, codeindex
from driftline.cli._outcome import run
from driftline.cli.main import driftline as command_group

BEFORE = [{"id": n, "v": f"v{n}"} for n in range(4)]
AFTER = [{"id": n, "v": "w" if n == 1 else f"v{n}"} for n in range(1, 6)]


class Compared:
    """Two inputs of one kind, in a folder: how they are compared in Python and by the command."""

    suffix = ".json"

    def __init__(self, folder: Path, request: pytest.FixtureRequest) -> None:
        self.folder = folder
        self.request = request
        self.sides = self.write()

    def write(self) -> tuple[Any, Any]:
        raise AssertionError

    def diff(self, a: Any, b: Any) -> Any:
        raise AssertionError

    def command(self, a: Any, b: Any) -> list[str]:
        raise AssertionError


class Tables(Compared):
    def write(self) -> tuple[Path, Path]:
        paths = self.folder / "a.csv", self.folder / "b.csv"
        for path, rows in zip(paths, (BEFORE, AFTER), strict=True):
            path.write_text("".join(["id,v\n", *(f"{row['id']},{row['v']}\n" for row in rows)]))
        return paths

    def diff(self, a: Path, b: Path) -> dl.TableDiff:
        return dl.diff(a, b, key="id")

    def command(self, a: Path, b: Path) -> list[str]:
        return ["diff", str(a), str(b), "--key", "id"]


class Payloads(Compared):
    def write(self) -> tuple[Path, Path]:
        paths = self.folder / "a.json", self.folder / "b.json"
        for path, rows in zip(paths, (BEFORE, AFTER), strict=True):
            path.write_text(json.dumps({row["id"]: row for row in rows}))
        return paths

    def diff(self, a: Path, b: Path) -> Any:
        return dl.compare(a.read_bytes(), b.read_bytes())

    def command(self, a: Path, b: Path) -> list[str]:
        return ["compare", str(a), str(b)]


class Databases(Compared):
    suffix = ".jsonl"

    def write(self) -> tuple[Path, Path]:
        paths = self.folder / "a.db", self.folder / "b.db"
        for path, rows in zip(paths, (BEFORE, AFTER), strict=True):
            with sqlite3.connect(path) as connection:
                connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
                connection.executemany("INSERT INTO t VALUES (:id, :v)", rows)
            connection.close()
        return paths

    def diff(self, a: Path, b: Path) -> changesets.DatabaseDiff:
        return changesets.diff(a, b)

    def command(self, a: Path, b: Path) -> list[str]:
        return ["changeset", "diff", str(a), str(b), "-o", str(self.folder / "changes.bin")]


class Indexes(Compared):
    suffix = ".html"

    def write(self) -> tuple[str, str]:
        self.repo = self.folder / "repo"
        self.git("init", "-q", str(self.repo), at=self.folder)
        for number, rows in enumerate((BEFORE, AFTER)):
            text = "".join(f"def f{row['id']}():\n    return {row['v']!r}\n\n\n" for row in rows)
            (self.repo / "a.py").write_text(text)
            self.git("add", ".")
            self.git("-c", "user.name=n", "-c", "user.email=e@x", "commit", "-q", "-m", str(number))
        return "git:HEAD~1", "git:HEAD"

    def git(self, *words: str, at: Path | None = None) -> None:
        subprocess.run(["git", *words], cwd=at or self.repo, check=True)

    def diff(self, a: str, b: str) -> codeindex.IndexDiff:
        return codeindex.diff(a, b, repo=self.repo)

    def command(self, a: str, b: str) -> list[str]:
        return ["index", "diff", a, b, "--repo", str(self.repo), "--exit-code"]


class Frames(Tables):
    suffix = ".parquet"

    def diff(self, a: Path, b: Path) -> Any:
        import driftline.spark

        session = self.request.getfixturevalue("spark")
        frames = (session.createDataFrame(pl.read_csv(path).rows(), "id int, v string") for path in (a, b))
        return driftline.spark.diff(*frames, key="id")


KINDS = {"tables": Tables, "payloads": Payloads, "changesets": Databases, "codeindex": Indexes, "spark": Frames}


@pytest.fixture
def compared(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Compared:
    return KINDS[kind](tmp_path, request)


@pytest.mark.parametrize("kind", KINDS)
def test_every_result_answers_the_same_questions(compared: Compared) -> None:
    a, b = compared.sides
    same, other = compared.diff(a, a), compared.diff(a, b)
    for found, differs in ((same, False), (other, True)):
        assert bool(found) is differs
        assert (len(found) > 0) is differs
        changes = found.changes()
        assert isinstance(changes, Iterator)
        assert len(list(changes)) == len(found)
        assert all(isinstance(name, str) and isinstance(count, int) for name, count in found.counts.items())
        assert found.exit_code == int(differs) == run(command_group, compared.command(a, b if differs else a))
    assert json.loads(other.to_json()) == json.loads(json.dumps(other.to_dict()))
    assert other._repr_html_().startswith("<")
    assert len(other.to_arrow()) == len(other.to_pandas()) == len(other.to_polars()) > 0
    assert f"… and {len(other) - 1} more" in other.describe(limit=1)
    target = compared.folder / f"out{compared.suffix}"
    other.write(target)
    assert target.exists()
    with pytest.raises(dl.OptionError, match="Unsupported format"):
        other.write(target, "nonsense")
    for suffix in (".xlsx", ".pdf", ".yaml", ".zip"):  # a file that its name says to be something else
        with pytest.raises(dl.OptionError, match=rf"written as \{suffix}"):
            other.write(wrong := compared.folder / f"wrong{suffix}")
        assert not wrong.exists()


@pytest.mark.parametrize("kind", KINDS)
def test_every_result_is_a_diff(kind: str) -> None:
    """The members of the protocol are those that the classes have."""
    classes = {
        "tables": dl.TableDiff, "payloads": dl.payloads.Report, "changesets": changesets.DatabaseDiff,
        "codeindex": codeindex.IndexDiff,
    }  # fmt: skip
    found: Any = dl.spark.DataFrameDiff if kind == "spark" else classes[kind]
    asked = {name for name in vars(dl.Diff) if not name.startswith("_") or name in ("__bool__", "__len__")}
    known = {*dir(found), *getattr(found, "__annotations__", ())}
    assert not asked - known
    assert "_repr_html_" in known


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "spark"])
def test_changes_come_in_the_order_of_the_output(compared: Compared) -> None:
    found = compared.diff(*compared.sides)
    target = compared.folder / ("out.json" if isinstance(compared, Payloads) else "out.jsonl")
    found.write(target)
    changes = [changesets.plain_operation(one) if isinstance(compared, Databases) else one for one in found.changes()]
    if isinstance(compared, Payloads):
        listed = json.loads(target.read_bytes())["diffs"]
    else:
        listed = [json.loads(line) for line in target.read_text().splitlines()]
    if isinstance(compared, Tables):
        listed = [event for event in listed if event["type"] not in ("schema", "stats")]
    assert listed == changes
    assert len(listed) > 1


def as_command(compared: Compared, words: list[str]) -> bytes:
    target = compared.folder / "by-command"
    assert run(command_group, [*words, "-o", str(target)]) == 1
    return target.read_bytes()


def masked(data: bytes) -> bytes:
    """Without the line of a report that tells the time."""
    return b"\n".join(line for line in data.split(b"\n") if b"duration_ms" not in line)


@pytest.mark.parametrize(
    ("kind", "suffix", "more"),
    [
        ("tables", ".jsonl", ()),
        ("tables", ".csv", ("--format", "csv")),
        ("payloads", ".json", ()),
        ("payloads", ".txt", ("--format", "text")),
        ("changesets", ".bin", ()),
        ("codeindex", ".jsonl", ("--format", "jsonl")),
        ("codeindex", ".md", ("--format", "markdown")),
        ("codeindex", ".html", ("--format", "html")),
    ],
)
def test_what_is_written_is_what_the_command_writes(compared: Compared, suffix: str, more: tuple[str, ...]) -> None:
    a, b = compared.sides
    target = compared.folder / f"written{suffix}"
    compared.diff(a, b).write(target)
    assert masked(target.read_bytes()) == masked(as_command(compared, [*compared.command(a, b), *more]))


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [("payloads", ".html"), ("payloads", ".json.gz"), ("changesets", ".json"), ("changesets", ".db"),
     ("codeindex", ".csv"), ("tables", ".changeset"), ("tables", ".sql")],
)  # fmt: skip
def test_a_command_writes_no_file_that_its_name_says_to_be_another(compared: Compared, suffix: str) -> None:
    target = compared.folder / f"wrong{suffix}"
    words = [word for word in compared.command(*compared.sides) if not word.endswith("changes.bin") and word != "-o"]
    assert run(command_group, [*words, "-o", str(target)]) == 2
    assert not target.exists()


@pytest.mark.parametrize("kind", ["changesets"])
def test_a_patchset_by_its_name(compared: Compared) -> None:
    target = compared.folder / "changes.patchset"
    assert run(command_group, ["diff", *map(str, compared.sides), "-o", str(target)]) == 1
    changesets.diff(*compared.sides, patchset=True).write(again := compared.folder / "again.patchset")
    assert target.read_bytes() == again.read_bytes() != bytes(compared.diff(*compared.sides))


def test_a_diff_of_columns_alone_is_a_difference() -> None:
    with dl.diff([{"id": 1}], [{"id": 1, "v": 2}], key="id", header_mode="common") as found:
        assert (bool(found), len(found), found.exit_code) == (True, 0, 1)


def test_problems_of_a_database_diff_are_a_difference(tmp_path: Path) -> None:
    for name, columns in (("a.db", "id INTEGER PRIMARY KEY"), ("b.db", "id")):
        with sqlite3.connect(tmp_path / name) as connection:
            connection.execute(f"CREATE TABLE t ({columns})")
        connection.close()
    found = changesets.diff(tmp_path / "a.db", tmp_path / "b.db", allow_incomplete=True)
    assert (bool(found), len(found), found.exit_code, found.counts["problems"]) == (True, 0, 1, len(found.problems))


def test_a_report_that_was_cut_short_is_not_decided() -> None:
    report = dl.payloads.Report(None, {}, [], [])
    assert (bool(report), report.exit_code) == (True, 2)


def test_thresholds_decide_the_exit_code() -> None:
    with dl.diff(BEFORE, AFTER, key="id", fail_if="removed > 10") as found:
        assert (bool(found), found.exit_code) == (True, 0)


def test_json_keeps_every_digit(tmp_path: Path) -> None:
    paths = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for path, digit in zip(paths, "12", strict=True):
        path.write_text(f'{{"id":1,"v":0.1234567890123456789{digit},"t":"é"}}\n')
    with dl.diff(*paths, key="id") as found:
        assert b"0.12345678901234567891" in found.to_json()


def test_members_of_version_0_2_stay() -> None:
    assert changesets.Diff is changesets.DatabaseDiff
    assert codeindex.IndexDiff.to_frame is codeindex.IndexDiff.to_polars
    members: dict[Any, str] = {dl.TableDiff: "failed describe has_differences", codeindex.IndexDiff: "has_changes"}
    assert all(hasattr(found, name) for found, names in members.items() for name in names.split())


# One verb: `driftline diff` and `dl.diff` find out what the inputs are.


@pytest.mark.parametrize(
    ("kind", "more"), [("payloads", ("--schema", "{schema}")), ("changesets", ()), ("codeindex", ("--format", "html"))]
)
def test_the_one_command_writes_what_the_own_command_writes(
    compared: Compared, more: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    (compared.folder / "schema.yaml").write_text("{}")
    words = [word.format(schema=compared.folder / "schema.yaml") for word in more]
    own = [*compared.command(*compared.sides), *words]
    expected = masked(as_command(compared, own))
    capfd.readouterr()
    verb = ["diff", *own[own.index(str(compared.sides[0])) :]]
    assert masked(as_command(compared, [word for word in verb if word != "--exit-code"])) == expected
    name = " ".join(own[: own.index(str(compared.sides[0]))])
    assert capfd.readouterr().err.startswith("comparing ")
    with pytest.raises(SystemExit):
        command_group(["diff", *map(str, compared.sides), *words, "--help"], "driftline")
    assert f"Usage: driftline {name}" in capfd.readouterr().out


@pytest.mark.parametrize("kind", ["payloads", "changesets", "codeindex"])
def test_the_one_function_finds_out_what_the_inputs_are(compared: Compared) -> None:
    options: dict[str, dict[str, Any]] = {
        "codeindex": {"repo": getattr(compared, "repo", None)},
        "payloads": {"schema": None},
    }
    kind = next(name for name, each in KINDS.items() if isinstance(compared, each))
    a, b = map(str, compared.sides)
    found, expected = dl.diff(a, b, **options.get(kind, {})), compared.diff(*compared.sides)
    assert type(found) is type(expected)
    assert list(found.changes()) == list(expected.changes())
    with pytest.raises(dl.OptionError, match="key_columns is no option for two"):
        dl.diff(a, b, **options.get(kind, {}), key_columns=["id"])


def test_values_of_options_do_not_decide_what_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Databases(tmp_path, None)  # type: ignore[arg-type]
    Tables(tmp_path, None)  # type: ignore[arg-type]
    assert run(command_group, ["diff", "a.db", "b.csv", "-k", "id", "--format", "jsonl", "-o", "b.db"]) == 1
    assert (tmp_path / "b.db").read_bytes().startswith(b'{"type":"schema"')
    assert run(command_group, ["diff", "a.csv", "b.csv", "-k", "id", "--null", "git:v", "--rename", "git:x=v"]) == 2
    assert "comparing" not in (said := capfd.readouterr().err)
    assert "git:x" in said
    assert run(command_group, ["diff", "--", "git:HEAD", "git:HEAD~1"]) == 2  # outside of a repository
    assert "cannot read the repository" in capfd.readouterr().err


def test_paths_of_a_comparison_are_a_mapping() -> None:
    for options in ({"key": "id"}, {"tolerance": 0.1}):
        with pytest.raises(dl.OptionError, match="is a mapping from paths"):
            dl.diff({"a": 1}, {"a": 2}, schema=None, **options)


def test_tables_stay_tables(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Tables of databases, a database beside a table, and files with names like revisions."""
    a, b = (str(path) for path in Databases(tmp_path, None).sides)  # type: ignore[arg-type]
    assert run(command_group, ["diff", f"{a}::t", f"{b}::t", "--key", "id"]) == 1
    assert run(command_group, ["diff", a, f"{b}::t", "--key", "id"]) == 1  # its only table
    assert run(command_group, ["diff", a, b, "--key", "id"]) == 2
    assert "No such option '--key'" in (line := capfd.readouterr().err)
    assert "name one of each, as FILE.db::TABLE" in line
    (tmp_path / "git:x").write_text("id\n1\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert run(command_group, ["diff", "git:x", "git:x"]) == 0
        assert not dl.diff("git:x", "git:x")
