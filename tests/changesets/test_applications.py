"""Schemas of real applications in two versions, with rows: migrations as scripts, run by the plain SQLite shell."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import apsw
import pytest

from driftline.changesets import DiffSettings, apply, diff, script_to
from driftline.errors import ChangesetError
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


def made(path, *statements):
    connection = apsw.Connection(str(path))
    connection.create_collation("unicase", lambda a, b: (a.casefold() > b.casefold()) - (a.casefold() < b.casefold()))
    connection.create_scalar_function("title_sort", lambda text: text.removeprefix("The ") if text else text)
    connection.create_scalar_function("uuid4", lambda: "0" * 36)
    for statement in statements:
        connection.execute(statement)
    return connection


@pytest.mark.parametrize("sides", [("old", "new"), ("new", "old")])
def test_a_geopackage_of_gdal(tmp_path, sides):
    """Its triggers call functions that only GDAL has, and keep a spatial index."""
    old, new = (tmp_path / f"{side}.gpkg" for side in ("old", "new"))
    for path, side in zip((old, new), sides, strict=True):
        made(path, (FOLDER / f"geopackage-{side}.sql").read_text()).close()
    found = diff(old, new, virtual=True)
    assert {"places", "rtree_places_geom", "gpkg_ogr_contents"} <= {table.name for table in found.changes.tables}
    with pytest.raises(ChangesetError, match=r"no such function: ST_.*--as-recorded"):
        apply(found.changes, old)
    apply(found.changes, old, as_recorded=True)
    assert not diff(old, new, virtual=True)
    assert described(old)["tables"] == described(new)["tables"]
    assert apsw.Connection(str(old)).execute("SELECT rtreecheck('rtree_places_geom')").fetchall() == [("ok",)]


# Definitions of the same kinds as Anki's (keys and indexes in an order that only Anki has) and Calibre's (triggers with
# functions that only Calibre has, that update the row itself and delete rows of other tables).
COLLATED = [
    "CREATE TABLE tags (tag text NOT NULL PRIMARY KEY COLLATE unicase, usn integer NOT NULL) WITHOUT ROWID",
    "CREATE TABLE decks (id integer PRIMARY KEY NOT NULL, name text NOT NULL COLLATE unicase, common blob NOT NULL)",
    "CREATE UNIQUE INDEX idx_decks_name ON decks (name)",
    "INSERT INTO tags VALUES ('Verb', 1), ('noun', 2)",
    "INSERT INTO decks VALUES (1, 'Default', x'00'), (2, 'other', x'01')",
]
SORTED = [
    "CREATE TABLE books (id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL DEFAULT 'Unknown' COLLATE NOCASE, "
    "sort TEXT COLLATE NOCASE, uuid TEXT)",
    "CREATE TABLE books_authors_link (id INTEGER PRIMARY KEY, book INTEGER NOT NULL, author INTEGER NOT NULL, "
    "UNIQUE(book, author))",
    "CREATE TRIGGER books_insert AFTER INSERT ON books BEGIN "
    "UPDATE books SET sort = title_sort(NEW.title), uuid = uuid4() WHERE id = NEW.id; END",
    "CREATE TRIGGER books_update AFTER UPDATE ON books BEGIN "
    "UPDATE books SET sort = title_sort(NEW.title) WHERE id = NEW.id AND OLD.title <> NEW.title; END",
    "CREATE TRIGGER books_delete AFTER DELETE ON books BEGIN DELETE FROM books_authors_link WHERE book = OLD.id; END",
    "CREATE TRIGGER fkc_insert BEFORE INSERT ON books_authors_link BEGIN SELECT CASE WHEN "
    "(SELECT id FROM books WHERE id = NEW.book) IS NULL THEN RAISE(ABORT, 'Foreign key violation') END; END",
    "INSERT INTO books (title) VALUES ('The one'), ('Two')",
    "INSERT INTO books_authors_link (book, author) VALUES (1, 7), (2, 7)",
]


def test_definitions_as_ankis(tmp_path):
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    made(old, *COLLATED).close()
    edits = [
        "DELETE FROM tags WHERE tag = 'NOUN'",
        "INSERT INTO tags VALUES ('Noun', 3)",
        "UPDATE decks SET name = 'Third'",
    ]
    made(new, *COLLATED, "DELETE FROM decks WHERE id = 1", *edits).close()
    for first, second in ((old, new), (new, old)):
        found = diff(first, second)
        copy = Path(shutil.copy(first, tmp_path / "copy.db"))
        with pytest.raises(
            ChangesetError, match=r"no such collation sequence: unicase.*register it on an apsw\.Connection"
        ):
            apply(found.changes, copy, as_recorded=True)
        connection = made(copy)
        apply(found.changes, connection, as_recorded=True)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
        assert not diff(copy, second)


def test_definitions_as_calibres(tmp_path):
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    made(old, *SORTED).close()
    edits = ["DELETE FROM books WHERE id = 1", "INSERT INTO books (title) VALUES ('The third')"]
    edits += ["UPDATE books SET title = 'The second' WHERE id = 2", "INSERT INTO books_authors_link VALUES (9, 3, 8)"]
    made(new, *SORTED, *edits).close()
    for first, second in ((old, new), (new, old)):
        found = diff(first, second)
        with pytest.raises(ChangesetError, match=r"no such function: (uuid4|title_sort).*--as-recorded"):
            apply(found.changes, first)
        copy = Path(shutil.copy(first, tmp_path / "copy.db"))
        apply(found.changes, copy, as_recorded=True)
        assert described(copy)["tables"] == described(second)["tables"]
