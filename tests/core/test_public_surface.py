"""The names that users are promised exist."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import driftline

PROMISED = {
    "driftline": "__version__ compare diff",
    "driftline.core._json": "canonical_json fnv1a64 sha1_hex sha256_hex",
    "driftline.changesets": "Changeset Patchset Table apply concat invert parse rebase",
    "driftline.codeindex": "diff parse_ref",
    "driftline.deltas": "Clock ColumnDelta RowDelta RowState TableSchema delta_id extract merge",
    "driftline.errors": "DriftlineError",
    "driftline.payloads": "compile",
    "driftline.spark": "diff",
}
NAMES = [(module, name) for module, names in PROMISED.items() for name in names.split()]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_promised_names_are_there(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)


def test_rooms_are_reachable_from_the_top() -> None:
    assert driftline.deltas.Clock is importlib.import_module("driftline.deltas").Clock
    assert "diff" in dir(driftline)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = driftline.nonsense


@pytest.mark.parametrize("room", ["changesets", "codeindex", "lake", "payloads", "spark", "tables"])
def test_no_file_takes_the_place_of_a_name_once_it_is_imported(room: str) -> None:
    package = importlib.import_module(f"driftline.{room}")
    lazy = set(getattr(package, "_LAZY", ()))
    assert not lazy & {module.name for module in pkgutil.iter_modules(package.__path__)}
