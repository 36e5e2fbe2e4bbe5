"""The compare service over real HTTP."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import schemathesis
from schemathesis.specs.openapi import checks as openapi_checks

from driftline.payloads import compare
from support.compare_server import serving

CASES = json.loads((Path(__file__).parents[1] / "vectors" / "payload-cases.json").read_text())["cases"]
SCHEMA = {"properties": {"total": {"type": "number", "x-migration-precision": 0.01}}}
REQUEST = {"old_json": {"total": 1.00}, "new_json": {"total": 1.02}, "schema_fragment": SCHEMA}


@pytest.fixture(scope="module")
def server():
    with serving("--payload-limit", "1") as address, httpx.Client(base_url=address, timeout=30) as client:
        yield client


def without_execution(report):
    return {name: value for name, value in report.items() if name != "execution"}


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_answers_what_the_library_answers(server, case):
    body = {
        "old_json": case["old"],
        "new_json": case["new"],
        "schema_fragment": case["schema"],
        "config": case["config"],
    }
    answer = server.post("/v1/compare", json=body)
    if case["expect"].get("error"):
        assert answer.status_code == 422
        assert answer.json()["success"] is False
        assert answer.json()["partial_result"]["is_match"] is None
    else:
        assert answer.status_code == 200
        report = compare(case["old"], case["new"], case["schema"], case["config"])
        assert without_execution(answer.json()) == json.loads(report.to_json(execution=False))


def test_schema_as_yaml_text_and_root(server):
    ignoring = "{properties: {total: {x-migration-strategy: ignore}}}"
    text = f"openapi: 3.0.0\ncomponents: {{schemas: {{A: {{type: object}}, B: {ignoring}}}}}"
    assert server.post("/v1/compare", json={**REQUEST, "schema_fragment": text, "root": "B"}).json()["is_match"] is True


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"old_json": 1,\n "new_json": }', 422, "VALIDATION_ERROR"),
        (b"[]", 422, "VALIDATION_ERROR"),
        (b"", 422, "VALIDATION_ERROR"),
        (b'{"old_json": NaN, "new_json": 1, "schema_fragment": {}}', 422, "VALIDATION_ERROR"),
        (b'{"old_json": 1, "new_json": 1, "schema_fragment": {}, "more": 1}', 422, "VALIDATION_ERROR"),
        (b'{"old_json": 1, "new_json": 1, "schema_fragment": {"$ref": "x.yaml"}}', 422, "SCHEMA_PARSE_ERROR"),
        (b'{"old_json": 1, "new_json": 1, "schema_fragment": 5}', 422, "SCHEMA_PARSE_ERROR"),
        (b'{"old_json": 1, "new_json": 1, "schema_fragment": {}, "config": {"max_dept": 1}}', 422, "VALIDATION_ERROR"),
        (b'{"old_json": 1, "new_json": 1, "schema_fragment": {}, "config": {"timeout_seconds": 0}}', 422, "TIMEOUT"),
        (b'{"old_json": "' + b"x" * 1_100_000 + b'", "new_json": 1, "schema_fragment": {}}', 413, "PAYLOAD_TOO_LARGE"),
        (b'{"old_json": "' + b"x" * 4_000_000 + b'", "new_json": 1, "schema_fragment": {}}', 413, "PAYLOAD_TOO_LARGE"),
    ],
)
def test_refusals_are_error_responses(server, body, status, code):
    answer = server.post("/v1/compare", content=body)
    assert (answer.status_code, answer.json()["success"], answer.json()["error"]["code"]) == (status, False, code)
    assert "Traceback" not in answer.text


def test_lone_surrogates_are_compared(server):
    body = b'{"old_json": {"a": "\\ud800"}, "new_json": {"a": "\\ud801"}, "schema_fragment": {}, "config": null}'
    answer = server.post("/v1/compare", content=body)
    assert (answer.status_code, [entry["path"] for entry in answer.json()["diffs"]]) == (200, ["$.a"])
    lines = b'{"schema_fragment": {}}\n{"id": "x", "old": "\\ud800", "new": "\\ud800"}'
    assert server.post("/v1/compare/batch", content=lines).json()["report"]["is_match"] is True


def test_invalid_json_is_told_with_line_and_column(server):
    details = server.post("/v1/compare", content=b'{"old_json": 1,\n "new_json": }').json()["error"]["details"]
    assert (details["line"], details["column"]) == (2, 14)


def test_other_methods_and_paths(server):
    answer = server.get("/v1/compare")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert server.get("/v1/nothing").status_code == 404
    assert server.get("/health").json() == {"status": "ok"}


def test_batch_streams_an_answer_for_each_line(server):
    pairs = [{"id": number, "old": {"total": 1}, "new": {"total": 1 + number}} for number in range(3)]
    lines = [{"schema_fragment": SCHEMA}, *pairs]
    body = "\n".join(map(json.dumps, lines)) + '\nnot json\n\n{"id": "last", "old": 1}\n{"old": 1, "new": 1}'
    answer = server.post("/v1/compare/batch", content=body)
    assert answer.headers["content-type"] == "application/x-ndjson"
    found = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["id"] for line in found] == [0, 1, 2, None, "last", None]
    assert [line.get("report", {}).get("is_match") for line in found] == [True, False, False, None, None, True]
    assert found[3]["success"] is False
    assert found[3]["error"]["code"] == "VALIDATION_ERROR"


def test_batch_lines_keep_long_numbers_and_sizes(server):
    header = json.dumps({"schema_fragment": {}, "config": {"max_payload_size_mb": 0.001}})
    lines = [
        '{"id": 1, "old": {"n": 0.12345678901234567890}, "new": {"n": 0.12345678901234567891}}',
        '{"id": 2, "old": {"n": 9007199254740993}, "new": {"n": 9007199254740992}}',
        f'{{"id": 3, "old": "{"x" * 600}", "new": "{"x" * 600}"}}',  # together above the limit of each
        f'{{"id": 4, "old": "{"x" * 2000}", "new": ""}}',
    ]
    answer = server.post("/v1/compare/batch", content="\n".join([header, *lines]))
    found = [json.loads(line) for line in answer.text.splitlines()]
    assert [line.get("report", {}).get("is_match") for line in found] == [False, False, True, None]
    assert found[3]["error"]["code"] == "PAYLOAD_TOO_LARGE"


def test_batch_chooses_schemas_by_endpoint(server):
    header = {"schemas": {"a": SCHEMA, "b": {"properties": {"total": {"x-migration-strategy": "ignore"}}}}}
    pairs = [{"id": name, "endpoint": name, "old": {"total": 1}, "new": {"total": 2}} for name in ("a", "b", "c")]
    answer = server.post("/v1/compare/batch", content="\n".join(map(json.dumps, [header, *pairs])))
    found = [json.loads(line) for line in answer.text.splitlines()]
    assert [line.get("report", {}).get("is_match") for line in found] == [False, True, None]
    assert found[2]["error"]["details"]["reason"] == "unknown endpoint"


@pytest.mark.parametrize("first", ["", "{}", "nonsense", '{"schema_fragment": {"type": "strng"}}'])
def test_batch_with_a_bad_first_line_is_refused(server, first):
    assert server.post("/v1/compare/batch", content=first + "\n").status_code == 422


def test_batch_lines_arrive_in_pieces_and_too_long_ones_are_skipped(server):
    def pieces():
        yield b'{"schema_fragment": {}}\n{"id": 1, "ol'
        yield b'd": 1, "new": 1}\n{"id": 2, "old": "'
        for _ in range(50):
            yield b"x" * 100_000
        yield b'", "new": 1}\n{"id": 3, "old": 1, "new": 2}'

    found = [json.loads(line) for line in server.post("/v1/compare/batch", content=pieces()).text.splitlines()]
    assert [line["id"] for line in found] == [1, None, 3]
    assert found[1]["error"]["code"] == "PAYLOAD_TOO_LARGE"


PARTS = [{"oneOf": [{"required": [f"x{number}"]}, {"required": [f"y{number}"]}]} for number in range(40)]
SLOW = {
    "old_json": {},
    "new_json": {},
    "schema_fragment": {"anyOf": [{"allOf": [*PARTS, {"required": ["nowhere"]}]}, {}]},
    "config": {"timeout_seconds": 3},
}


def test_overload_is_503_and_passes():
    with serving("--max-in-flight", "1") as address, httpx.Client(base_url=address, timeout=30) as client:
        with ThreadPoolExecutor(1) as pool:
            statuses = []
            while not any(answer.status_code == 503 for answer in statuses):
                held = pool.submit(lambda: httpx.post(f"{address}/v1/compare", json=SLOW, timeout=30))
                while not held.done():  # at once where a quick one had the place: then the slow one is sent again
                    statuses.append(client.post("/v1/compare", json=REQUEST))
        refused = [answer for answer in statuses if answer.status_code != 200]
        assert {answer.status_code for answer in refused} == {503}
        assert refused[0].json()["error"]["code"] == "OVERLOADED"
        assert refused[0].headers["retry-after"] == "1"
        assert client.post("/v1/compare", json=REQUEST).status_code == 200


def test_several_workers_answer_alike():
    with serving("--workers", "2") as address, ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: httpx.post(f"{address}/v1/compare", json=REQUEST, timeout=30), range(12)))
    assert {json.dumps(without_execution(answer.json())) for answer in answers} == {
        json.dumps(without_execution(answers[0].json()))
    }


def test_document_and_page(server):
    document = server.get("/openapi.json").json()
    assert set(document["paths"]) >= {"/v1/compare", "/v1/compare/batch"}
    page = server.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "POST /v1/compare/batch" in page.text
    assert "http://" not in page.text.replace("http://www.w3.org", "")


@schemathesis.serializer("application/x-ndjson")
def as_lines(context, value):
    """Random text, and sometimes a well-formed first line before it."""
    text = value if isinstance(value, str) else json.dumps(value)
    return (text if len(text) % 3 else f'{{"schema_fragment": {{}}}}\n{text}').encode("utf-8", "replace")


CHECKS = [
    schemathesis.checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.response_headers_conformance,
    openapi_checks.unsupported_method,
]


def test_schemathesis_finds_nothing_against_the_own_document(server):
    api = schemathesis.openapi.from_url(str(server.base_url.join("/openapi.json")))
    for operation in api.get_all_operations():
        _hammer(operation.ok().as_strategy())


def _hammer(strategy):
    from hypothesis import HealthCheck, Phase, given, settings

    @settings(max_examples=40, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def hammer(case):
        case.call_and_validate(checks=CHECKS, timeout=30)

    hammer()


@pytest.mark.parametrize(("name", "value"), [("timeout_seconds", 31), ("timeout_seconds", 1e9), ("max_depth", 501)])
def test_callers_cannot_ask_for_more_than_the_caps(server, name, value):
    answer = server.post("/v1/compare", json={**REQUEST, "config": {name: value}})
    assert answer.status_code == 422
    assert answer.json()["error"]["details"]["property"] == name


def test_a_slow_comparison_keeps_nobody_from_an_answer(server):
    """Bodies of a few hundred bytes that take as long as they may: health is answered meanwhile."""
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(server.post, "/v1/compare", json=SLOW) for _ in range(4)]
        answered = 0
        while not all(one.done() for one in waiting):
            assert server.get("/v1/compare/health").json() == {"status": "ok"}
            answered += 1
        assert {one.result().json()["error"]["code"] for one in waiting} <= {"TIMEOUT", "SCHEMA_PARSE_ERROR"}
    assert answered > 10


def test_half_sent_bodies_take_no_place():
    with serving("--max-in-flight", "2") as address:
        host, port = address.removeprefix("http://").split(":")
        half = b"POST /v1/compare HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
        idle = [socket.create_connection((host, int(port))) for _ in range(8)]
        for connection in idle:
            connection.sendall(half)
        assert [httpx.post(f"{address}/v1/compare", json=REQUEST).status_code for _ in range(3)] == [200] * 3
        for connection in idle:
            connection.close()


def test_a_body_beyond_the_limit_is_answered_not_reset(server):
    body = json.dumps({**REQUEST, "old_json": "x" * (4 << 20)}).encode()
    answer = server.post("/v1/compare", content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize(
    "body",
    [
        b'{"old_json": 1, "old_json": 2, "new_json": 1, "schema_fragment": {}}',
        b'{"old_json": {"a": 1, "a": 1}, "new_json": 1, "schema_fragment": {}}',
        b'{"old_json": 1, "new_json": 1, "schema_fragment": {"type": "object", "type": "object"}}',
    ],
)
def test_names_that_stand_twice_are_refused(server, body):
    answer = server.post("/v1/compare", content=body)
    assert answer.status_code == 422
    assert "stands twice" in answer.json()["error"]["message"]


def test_lines_of_a_batch_keep_their_id_whatever_is_wrong(server):
    lines = [
        json.dumps({"schema_fragment": {}}),
        '{"id": "nan", "old": NaN, "new": 1}',
        '{"id": "twice", "old": {"a": 1, "a": 2}, "new": 1}',
        '{"id": "again", "id": "again", "old": 1, "new": 1}',
        '{"id": "cut", "old": ',
    ]
    answer = server.post("/v1/compare/batch", content="\n".join(lines))
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert [(row["id"], row["success"]) for row in rows] == [
        ("nan", False), ("twice", False), ("again", False), ("cut", False),
    ]  # fmt: skip
