"""The wheel and the sdist, installed into clean environments: the core alone, each extra, and everything."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from support.processes import run_process

ROOT = Path(__file__).parents[2]
CLOSED = {
    "sqlite": (["changeset", "show", "x.changeset"], "changesets need apsw: pip install 'driftline[sqlite]'"),
    "lake": (["lake", "log", "--lake", "x", "-t", "t"], "the lake needs deltalake: pip install 'driftline[lake]'"),
    "serve": (["serve"], "the HTTP services need uvicorn: pip install 'driftline[serve]'"),
    "spark": (
        ["diff", "a.csv", "b.csv", "--engine", "spark"],
        "the Spark engine needs pyspark: pip install 'driftline[spark]'",
    ),
}
OPENED = {
    "sqlite": "from driftline.changesets import Changeset; assert bytes(Changeset()) == b''",
    "lake": "import driftline.lake",
    "serve": "import driftline.web._app, driftline.web._compare; driftline.web._app.application",
    "index": "import tree_sitter, driftline.codeindex",
    "cloud,postgresql": "import obstore, psycopg, adbc_driver_postgresql, driftline.sources._addresses",
}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run_process([sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def install(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes a clean environment with the wheel and one extra; the path of its scripts."""
    pytest.importorskip("uv", reason="uv did not install here, and pip alone would take minutes")
    wheel = next(dist.glob("*.whl"))
    uv = [sys.executable, "-m", "uv"]

    def with_extra(extra: str) -> Path:
        home = tmp_path_factory.mktemp(extra or "core")
        run_process([*uv, "venv", "-q", "--python", sys.executable, str(home)], check=True)
        target = f"driftline[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
        command = [*uv, "pip", "install", "-q", "--python", str(home / "bin/python"), target]
        run_process([*command, "--constraint", str(ROOT / "requirements/dev.lock")], check=True)
        return home / "bin"

    return with_extra


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run_process([str(word) for word in command], cwd=cwd, capture_output=True, text=True)


def test_core_compares_tables_and_payloads_and_names_what_is_missing(
    install: Callable[[str], Path], tmp_path: Path
) -> None:
    scripts = install("")
    (tmp_path / "a.csv").write_text("id,v\n1,a\n")
    (tmp_path / "b.csv").write_text("id,v\n1,b\n")
    (tmp_path / "a.json").write_text('{"v": 1}')
    (tmp_path / "s.json").write_text('{"type": "object", "properties": {"v": {"type": "integer"}}}')
    assert run(scripts / "driftline", "diff", "a.csv", "b.csv", "--key", "id", cwd=tmp_path).returncode == 1
    same = run(scripts / "driftline", "compare", "a.json", "a.json", "--schema", "s.json", cwd=tmp_path)
    assert (same.returncode, same.stderr) == (0, "")
    doctor = run(scripts / "driftline", "doctor", cwd=tmp_path)
    assert doctor.returncode == 0, doctor.stdout
    assert "apsw       not installed" in doctor.stdout
    for command, line in CLOSED.values():
        closed = run(scripts / "driftline", *command, cwd=tmp_path)
        assert (closed.returncode, closed.stderr) == (2, f"error[missing_extra]: {line}\n")
    inside = run(scripts / "python", "-c", "import driftline as dl; dl.changesets.apply", cwd=tmp_path)
    assert "driftline[sqlite]" in inside.stderr.splitlines()[-1]


def test_the_wheel_runs_without_being_installed(dist: Path, tmp_path: Path) -> None:
    """What `uvx --from driftline.whl driftline diff` does; `uvx` is short for `uv tool run`."""
    pytest.importorskip("uv", reason="uv did not install here")
    (tmp_path / "a.csv").write_text("id,v\n1,a\n")
    command = [sys.executable, "-m", "uv", "tool", "run", "--quiet", "--python", sys.executable]
    command += ["--constraints", ROOT / "requirements/dev.lock", "--from", next(dist.glob("*.whl"))]
    done = run(*command, "driftline", "diff", "a.csv", "a.csv", "--key", "id", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"rows_unchanged":1' in done.stdout


@pytest.mark.parametrize("extra", OPENED)
def test_an_extra_brings_what_its_room_imports(install: Callable[[str], Path], tmp_path: Path, extra: str) -> None:
    done = run(install(extra) / "python", "-c", OPENED[extra], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("extra", ["spark", "all"])
def test_the_large_extras_ask_for_nothing_but_what_is_locked(dist: Path, extra: str) -> None:
    """Installing Spark once more would take a minute: ask what would be installed beside what these tests run on."""
    pytest.importorskip("uv", reason="uv did not install here")
    target = f"driftline[{extra}] @ {next(dist.glob('*.whl')).as_uri()}"
    command = [sys.executable, "-m", "uv", "pip", "install", "--dry-run", "--python", sys.executable, target]
    done = run(*command, "--constraint", ROOT / "requirements/dev.lock", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    added = [line for line in done.stderr.splitlines() if line.startswith(" + ")]
    assert [line.split("==")[0] for line in added] == [" + driftline"]


def test_archives_hold_the_package_and_no_test_data(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    assert "driftline/py.typed" in names
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"driftline"}
    with tarfile.open(next(dist.glob("*.tar.gz"))) as sdist:
        tops = {name.split("/")[1] for name in sdist.getnames() if "/" in name}
    assert {"src", "pyproject.toml", "README.md", "LICENSE"} <= tops
    assert not tops & {"tests", "benchmarks", "faults", "examples", ".ci"}
