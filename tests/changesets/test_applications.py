"""Schemas of real applications in two versions, with rows: migrations as scripts, run by the plain SQLite shell."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import apsw
import pytest

from driftline.changesets import DiffSettings, script_to
from support.random_schemas import RandomDatabase
from support.sqlite_judge import described, run_shell

pytestmark = pytest.mark.skipif(
    shutil.which("sqlite3") is None, reason="needs the SQLite shell: apt-get install -y sqlite3"
)

FOLDER = Path(__file__).parent / "applications"


def database(path, name, seed):
    connection = apsw.Connection(str(path))
    connection.execute((FOLDER / f"{name}.sql").read_text())
    connection.close()
    made = RandomDatabase(path, seed)
    # Triggers keep the search indexes of applications, so they fire here.
    made.edit_rows(12, fits=True)
    made.connection.close()
    return path


@pytest.mark.parametrize("name", ["django", "jupyterhub", "llm"])
@pytest.mark.parametrize("sides", [("old", "new"), ("new", "old"), ("new", "new")])
def test_migrations_of_applications(tmp_path, name, sides):
    old = database(tmp_path / "old.db", f"{name}-{sides[0]}", 1)
    new = database(tmp_path / "new.db", f"{name}-{sides[1]}", 2)
    out = io.BytesIO()
    found = script_to(out, old, new, DiffSettings())
    assert found.records
    run_shell(old, out.getvalue())
    assert described(old) == described(new)
