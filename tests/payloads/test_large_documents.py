"""Documents in the manner of large payment APIs: `nullable` beside combinators, references to expand, deleted twins."""

import importlib.util
import json
from pathlib import Path

import pytest

from driftline import payloads
from driftline.errors import PayloadError

RESOURCES = 113


@pytest.fixture(scope="module")
def generator():
    """The generator of the benchmarks, which is no package of the tests."""
    path = Path(__file__).parents[2] / "benchmarks" / "data_openapi.py"
    spec = importlib.util.spec_from_file_location("data_openapi", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def document(generator):
    return generator.document(RESOURCES)


@pytest.fixture(scope="module")
def plan(generator, document):
    """One plan for all resources: a member for each, so that the document is compiled once."""
    references = {name: {"$ref": f"#/components/schemas/{name}"} for name in generator.resource_names(RESOURCES)}
    schemas = {**document["components"]["schemas"], "everything": {"type": "object", "properties": references}}
    whole = {**document, "components": {"schemas": schemas}}
    return payloads.compile(json.dumps(whole), root="everything")


def test_every_fixture_is_equal_to_itself(generator, document, plan):
    schemas = document["components"]["schemas"]
    names = generator.resource_names(RESOURCES)
    fixtures = {name: generator.fixture(schemas, name, 1, levels=2) for name in names}
    text = json.dumps(fixtures)
    assert text.count(": null") > 300  # what made real fixtures differ from themselves
    differing = {
        name: report.diffs
        for name in names
        if not (report := plan.compare({name: fixtures[name]}, json.dumps({name: fixtures[name]}))).is_match
    }
    assert len(fixtures) == RESOURCES
    assert differing == {}


def test_null_where_it_is_not_allowed_is_told(generator, document, plan):
    name = generator.resource_names(RESOURCES)[0]
    fixture = generator.fixture(document["components"]["schemas"], name, 1)
    report = plan.compare({name: {**fixture, "livemode": None}}, {name: {**fixture, "livemode": None}})
    assert [(entry.path, entry.type) for entry in report.warnings] == [(f"$.{name}.livemode", "SCHEMA_MISMATCH")]


def test_a_circle_that_the_root_does_not_reach_is_told():
    schemas = {
        "A": {"type": "object"},
        "B": {"$ref": "#/components/schemas/C"},
        "C": {"$ref": "#/components/schemas/B"},
    }
    with pytest.raises(PayloadError, match="never reaches a schema"):
        payloads.compile({"components": {"schemas": schemas}}, root="A")
