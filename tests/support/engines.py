"""Which engines there are, and which of them do not answer a question: declared here, not discovered."""

from __future__ import annotations

from typing import Any

import pytest

from driftline.tables._engines import ENGINES as TABLE_ENGINES

# The plain Python of a package, and every engine that the product's own table names.
ENGINES = ("reference", *TABLE_ENGINES)
LOCAL_ENGINES = [name for name in TABLE_ENGINES if name != "spark"]

QUESTIONS = ("tables", "frames", "payloads", "changesets", "lake", "codeindex", "pipeline")

GAPS = {
    ("tables", "reference"): "the local engine compares files of this size by the reference itself",
    ("frames", "reference"): "DataFrames exist on Spark only; the judge is the local engine on the same rows",
    ("frames", "vectorized"): "frames are compared by columns, by the local engine as well",
    ("payloads", "vectorized"): "payloads are trees, which have no columns",
    ("changesets", "vectorized"): "a changeset is made row by row, in the order of its events",
    ("lake", "vectorized"): "the local fold works on columns, and has no other form",
    ("codeindex", "reference"): "the golden cases say what is expected",
    ("codeindex", "vectorized"): "definitions are trees, which have no columns",
    ("pipeline", "reference"): "a pipeline is made of the answers of the other packages",
    ("pipeline", "vectorized"): "the engine of a pipeline is local or spark",
}


def engines_for(question: str) -> list[Any]:
    """The engines that answer a question, as parameters of a test."""
    return [pytest.param(name, id=name) for name in ENGINES if (question, name) not in GAPS]
