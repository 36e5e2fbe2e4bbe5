"""Schema documents as they come: files that change, several files, roots by operation, nullable, lint."""

import json

import pytest

from driftline import payloads
from driftline.errors import PayloadError
from driftline.payloads import compare, lint


def test_a_rewritten_schema_file_counts(tmp_path):
    path = tmp_path / "schema.yaml"
    path.write_text("properties: {a: {x-migration-precision: 1}}")
    assert compare({"a": 1}, {"a": 2}, path).is_match
    path.write_text("properties: {a: {x-migration-precision: 0}}")
    assert not compare({"a": 1}, {"a": 2}, path).is_match


def test_a_rewritten_file_beside_the_schema_counts_too(tmp_path):
    (tmp_path / "schema.yaml").write_text("properties: {a: {$ref: 'parts/a.yaml'}}")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a.yaml").write_text("x-migration-precision: 1")
    assert compare({"a": 1}, {"a": 2}, tmp_path / "schema.yaml").is_match
    (tmp_path / "parts" / "a.yaml").write_text("x-migration-precision: 0")
    assert not compare({"a": 1}, {"a": 2}, tmp_path / "schema.yaml").is_match


NULLABLE = {
    "anyOf": {"nullable": True, "anyOf": [{"type": "string"}, {"type": "object", "required": ["id"]}]},
    "oneOf": {"nullable": True, "oneOf": [{"type": "string"}, {"type": "integer"}]},
    "allOf": {"nullable": True, "allOf": [{"type": "object"}, {"$ref": "#/$defs/T"}]},
    "$ref": {"nullable": True, "$ref": "#/$defs/T"},
    "behind a $ref": {"$ref": "#/$defs/N"},
    "oneOf in allOf": {"nullable": True, "allOf": [{"oneOf": [{"type": "string"}, {"type": "integer"}]}]},
    "enum": {"nullable": True, "type": "string", "enum": ["a"]},
    "discriminator": {
        "nullable": True,
        "oneOf": [{"$ref": "#/$defs/T"}, {"type": "string"}],
        "discriminator": {"propertyName": "object"},
    },
}
DEFS = {"T": {"type": "object"}, "N": {"nullable": True, "anyOf": [{"$ref": "#/$defs/T"}, {"type": "string"}]}}


@pytest.mark.parametrize("field", NULLABLE.values(), ids=NULLABLE)
def test_nullable_beside_combinators_allows_null(field):
    schema = {"properties": {"f": field}, "required": ["f"], "$defs": DEFS}
    report = compare({"f": None}, {"f": None}, schema)
    assert report.is_match, report.diffs
    listed = {"properties": {"l": {"items": field}}, "$defs": DEFS}
    assert compare({"l": [None, None]}, {"l": [None, None]}, listed).is_match


def test_without_nullable_null_is_of_the_wrong_type():
    schema = {"properties": {"f": {"allOf": [{"type": "object"}, {"$ref": "#/$defs/T"}]}}, "$defs": DEFS}
    assert [entry.type for entry in compare({"f": None}, {"f": None}, schema).warnings] == ["SCHEMA_MISMATCH"]
    branches = {"properties": {"f": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}
    assert [entry.type for entry in compare({"f": None}, {"f": None}, branches).warnings] == ["SCHEMA_MISMATCH"]


def test_leaves_of_a_schema_that_many_places_share_count_once():
    address = {"properties": {name: {"type": "string"} for name in "abc"}}
    levels = {f"L{n}": {"properties": {"x": ref(f"L{n + 1}"), "y": ref(f"L{n + 1}")}} for n in range(40)}
    schema = {**ref("L0"), "$defs": {**levels, "L40": address}}
    assert compare({}, {}, schema).coverage["fields_in_schema"] == 3


def ref(name):
    return {"$ref": f"#/$defs/{name}"}


OPENAPI = {
    "openapi": "3.0.0",
    "paths": {
        "/v1/charges": {
            "get": {
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/list"}}}},
                    "4XX": {"$ref": "#/components/responses/problem"},
                }
            },
            "post": {
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/charge"}}}},
                "responses": {"201": {"content": {"application/hal+json": {"schema": {"type": "object"}}}}},
            },
        }
    },
    "components": {
        "schemas": {
            "charge": {"type": "object", "properties": {"amount": {"x-migration-precision": 1}}},
            "list": {"type": "array", "items": {"$ref": "#/components/schemas/charge"}},
            "problem": {"type": "object"},
        },
        "responses": {
            "problem": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/problem"}}}}
        },
    },
}


@pytest.mark.parametrize(
    ("root", "value"),
    [
        ("GET /v1/charges 200", [{"amount": 1}]),
        ("get /v1/charges", [{"amount": 1}]),
        ("GET /v1/charges 404", {}),
        ("POST /v1/charges request", {"amount": 1}),
        ("POST /v1/charges", {}),
    ],
)
def test_roots_by_operation(root, value):
    wrong = {} if isinstance(value, list) else []
    assert compare(value, value, OPENAPI, root=root).warnings == []
    assert [entry.type for entry in compare(wrong, wrong, OPENAPI, root=root).warnings] == ["SCHEMA_MISMATCH"]


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ("chrage", "there is no schema 'chrage'; did you mean 'charge'?"),
        ("GET /v1/charge 200", "did you mean 'GET /v1/charges'?"),
        (None, "the root schema is not clear: name one as root (known schemas: charge, list, problem)"),
    ],
)
def test_a_root_that_is_not_there_gets_a_hint(root, words):
    with pytest.raises(PayloadError) as caught:
        payloads.compile(json.dumps(OPENAPI), root=root)
    assert words in caught.value.message
    assert caught.value.details["line"] == 1


def test_many_names_are_not_all_listed():
    document = {"openapi": "3.0.0", "components": {"schemas": {f"S{n}": {} for n in range(500)}}}
    with pytest.raises(PayloadError, match="S9 and 490 more") as caught:
        payloads.compile(document)
    assert len(caught.value.message) < 300


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "api" / "resources").mkdir(parents=True)
    (tmp_path / "api" / "openapi.yaml").write_text(
        "openapi: 3.0.0\npaths:\n  /pets: {$ref: 'resources/pets.yaml#/paths/pets'}\n"
    )
    (tmp_path / "api" / "resources" / "pets.yaml").write_text(
        "paths:\n  pets:\n    get:\n      responses:\n        200:\n          content:\n            application/json:\n"
        "              schema: {type: array, items: {$ref: 'pet.json'}}\n"
    )
    pet = {"properties": {"tag": {"$ref": "#/$defs/tag"}, "owner": {"$ref": "../owner.yaml#/Owner"}}}
    pet["$defs"] = {"tag": {"x-migration-case-insensitive": True}}
    (tmp_path / "api" / "resources" / "pet.json").write_text(json.dumps(pet))
    (tmp_path / "api" / "owner.yaml").write_text("Owner:\n  x-migration-strategy: ignore\n")
    (tmp_path / "outside.yaml").write_text("type: object\n")
    return tmp_path / "api"


def test_a_document_of_several_files(folder):
    plan = payloads.compile(folder / "openapi.yaml", root="GET /pets 200")
    assert plan.compare([{"tag": "A", "owner": 1}], [{"tag": "a", "owner": 2}]).is_match
    assert not plan.compare([{"tag": "A"}], [{"tag": "b"}]).is_match


def test_a_bundle_of_files_can_travel(folder, tmp_path):
    from driftline.payloads._compare.compare import bundle_of

    bundle = bundle_of(folder / "openapi.yaml", "GET /pets 200")
    for path in sorted(folder.rglob("*.*")):
        path.unlink()
    plan = payloads.compile(bundle, root="GET /pets 200")
    assert plan.compare([{"tag": "A", "owner": 1}], [{"tag": "a", "owner": 2}]).is_match


@pytest.mark.parametrize(
    "name", ["../outside.yaml", "/etc/passwd", "https://example.com/a.yaml", "link.yaml", "absent.yaml"]
)
def test_references_stay_in_the_folder_of_the_schema(folder, name):
    (folder / "link.yaml").symlink_to(folder.parent / "outside.yaml")
    (folder / "bad.yaml").write_text(f"properties: {{a: {{$ref: '{name}'}}}}")
    with pytest.raises(PayloadError) as caught:
        payloads.compile(folder / "bad.yaml")
    assert caught.value.code == "SCHEMA_PARSE_ERROR"
    assert caught.value.details["pointer"] == "/properties/a/$ref"
    with pytest.raises(PayloadError, match="must be self-contained"):
        payloads.compile((folder / "bad.yaml").read_text())


def test_an_error_in_another_file_names_it(folder):
    (folder / "main.yaml").write_text("properties: {a: {$ref: 'part.yaml'}}")
    (folder / "part.yaml").write_text("properties:\n  b: {$ref: '#/nowhere'}\n")
    with pytest.raises(PayloadError, match=r"at part.yaml#/properties/b/\$ref \(line 2, column 13\)"):
        payloads.compile(folder / "main.yaml")


def messages(schema, root=None):
    return [finding.message for finding in lint(schema, root)]


@pytest.mark.parametrize("keyword", ["if", "then", "not", "contains", "unevaluatedProperties", "propertyNames"])
def test_lint_sees_rules_that_are_never_looked_at(keyword):
    schema = {"type": "object", keyword: {"properties": {"a": {"x-migration-precision": 1}}}}
    wanted = f"x-migration-precision under {keyword} never applies: a comparison does not follow {keyword}"
    assert messages(schema) == [wanted]
    assert messages({"allOf": [{"$ref": "#/$defs/T"}], "$defs": {"T": schema}}) == [wanted]


@pytest.mark.parametrize("word", ["$dynamicRef", "$recursiveRef"])
def test_lint_sees_references_that_are_not_followed(word):
    schema = {"properties": {"rows": {"type": "array", "items": {word: "#row"}}}, "allOf": [{word: "#"}]}
    wanted = f"{word} is not followed: what it refers to is compared without rules"
    assert [(one.message, one.pointer) for one in lint(schema)] == [
        (wanted, f"/allOf/0/{word}"),
        (wanted, f"/properties/rows/items/{word}"),
    ]


def test_lint_sees_rules_in_dependent_schemas():
    schema = {"dependentSchemas": {"a": {"properties": {"b": {"x-migration-cast": "int"}}}}}
    assert len(messages(schema)) == 1


def test_lint_sees_the_same_alias_twice():
    schema = {"properties": {"a": {"x-migration-alias": "old"}, "b": {"x-migration-alias": "old"}}}
    assert messages(schema) == ["a and b have the same x-migration-alias old"]


def test_lint_sees_keys_and_sort_fields_that_items_do_not_have():
    items = {"properties": {"id": {}, "at": {"properties": {"x": {}}}}}
    rules = {
        "x-migration-array-mode": "keyed",
        "x-migration-array-key": ["id", "sku"],
        "x-migration-order-by": ["-at.y"],
    }
    assert messages({"type": "array", "items": items, **rules}) == [
        "x-migration-array-key names sku, but the items have no member sku",
        "x-migration-order-by names at.y, but the items have no member y",
    ]
    assert messages({"type": "array", "items": {"additionalProperties": {}, **items}, **rules}) == []


def test_a_bad_key_gets_one_line():
    schema = {"type": "array", "x-migration-array-mode": "keyed", "x-migration-array-key": 5}
    assert messages(schema) == [
        "x-migration-array-key must be a member name or a list of them, not 5; the array is compared strictly"
    ]
    assert len(compare([1], [1], schema).warnings) == 1


def test_a_large_document_is_folded_where_a_payload_gets_to():
    many = {f"S{n}": {"type": "object", "properties": {"next": {"$ref": f"#/$defs/S{n + 1}"}}} for n in range(4000)}
    many["S4000"] = {"properties": {"v": {"x-migration-alias": "w", "x-migration-precision": 1}}}
    schema = {"$ref": "#/$defs/S0", "$defs": many, "x-migration-global-ignores": ["$..t"]}
    plan = payloads.compile(schema)
    assert plan.compare({"next": {"t": 1}}, {"next": {"t": 2}}).is_match
    assert plan.renames == {"w": ("v",)}
    assert plan.compare({}, {}).coverage["fields_in_schema"] == 1
    broken = {**many, "S3999": {"properties": {"next": {"$ref": "#/$defs/Nowhere"}}}}
    with pytest.raises(PayloadError, match="dangling"):
        payloads.compile({**schema, "$defs": broken})
