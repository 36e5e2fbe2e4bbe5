"""Random schemas and random edits: a diff leads to the new database and back, or is refused; never wrong in silence."""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from driftline.changesets import DiffSettings, apply, diff, script_to, write_sql
from driftline.errors import ChangesetError
from support.random_schemas import database_pair
from support.sqlite_judge import described, run_shell

pytestmark = pytest.mark.skipif(
    shutil.which("sqlite3") is None, reason="needs the SQLite shell: apt-get install -y sqlite3"
)


def rows(path):
    found = described(path)["tables"].items()
    return {name: table["rows"] for name, table in found if table["kind"][0] != "view"}


def copied(folder, path):
    return Path(shutil.copy(path, folder / "copy.db"))


def diff_or_problems(old, new):
    try:
        return diff(old, new)
    except ChangesetError as error:
        return error.problems


@settings(max_examples=25)
@given(st.integers(0, 1 << 20))
def test_scripts_lead_to_the_new_database_and_back(seed):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pair = database_pair(folder, seed)
        for old, new in (pair, pair[::-1]):
            out = io.BytesIO()
            script_to(out, old, new, DiffSettings())
            copy = copied(folder, old)
            run_shell(copy, out.getvalue())
            assert described(copy) == described(new), out.getvalue().decode(errors="replace")


@settings(max_examples=40)
@given(st.integers(0, 1 << 20))
def test_changesets_lead_to_the_new_rows_and_back_or_are_refused(seed):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        old, new = database_pair(folder, seed)
        found = diff_or_problems(old, new)
        if isinstance(found, list):
            assert found
            return
        copy = copied(folder, old)
        apply(found.changes, copy, as_recorded=True, foreign_keys=False)
        assert rows(copy) == rows(new)
        apply(found.changes, copy, as_recorded=True, foreign_keys=False, invert=True)
        assert rows(copy) == rows(old)
        patched = Path(shutil.copy(old, folder / "patched.db"))
        apply(diff(old, new, patchset=True).changes, patched, as_recorded=True, foreign_keys=False)
        assert rows(patched) == rows(new)
        # With triggers and cascades: the new rows, the rows that were altered, or a refusal.
        effects = Path(shutil.copy(old, folder / "effects.db"))
        try:
            altered = apply(found.changes, effects).altered
        except ChangesetError:
            assert rows(effects) == rows(old)
        else:
            assert altered or rows(effects) == rows(new)
        out = io.BytesIO()
        write_sql(out, found.changes, old)
        # Where rows of NEW refer to nothing and those of OLD did, the check at the end of the script stops it.
        broken = [described(path)["broken keys"] for path in (old, new)]
        if isinstance(broken[0], int) and broken[1] > broken[0]:
            with pytest.raises(AssertionError, match="CHECK constraint failed"):
                run_shell(copy, out.getvalue())
            assert rows(copy) == rows(old)
        else:
            run_shell(copy, out.getvalue())
            assert rows(copy) == rows(new)
