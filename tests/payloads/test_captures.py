"""Captured traffic becomes pairs: HAR files, GoReplay files, whole answers in batches."""

import base64
import gzip
import json
import zipfile
import zlib
from pathlib import Path

import pytest

from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.errors import InputError
from driftline.payloads import PairingOptions
from driftline.payloads._captures import capture_pairs, request_key

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "payload-beyond.json").read_text())
CASES = [case for case in VECTORS if case["area"] == "capture"]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_vectors(case):
    assert (request_key(*case["a"]) == request_key(*case["b"])) == case["expect"]["same"]


def entry(method, url, body, *, status=200, kind="application/json", posted=None, encoding=None, headers=()):
    content = {"text": body, "mimeType": kind} | ({"encoding": encoding} if encoding else {})
    request = {"method": method, "url": url} | ({"postData": {"text": posted}} if posted else {})
    listed = [{"name": name, "value": value} for name, value in headers]
    return {"request": request, "response": {"status": status, "headers": listed, "content": content}}


def har(path, *entries):
    path.write_text(json.dumps({"log": {"entries": list(entries)}}))
    return path


def test_har_files_pair_in_order_of_arrival(tmp_path):
    old = har(
        tmp_path / "old.har",
        entry("GET", "https://old/a?x=1&y=2", '{"n": 1}'),
        entry("GET", "https://old/a?x=1&y=2", '{"n": 2}'),
        entry("POST", "https://old/users/17", '{"ok": true}', posted='{"a": 1, "b": 2}'),
        entry("GET", "https://old/gone", "{}"),
    )
    new = har(
        tmp_path / "new.har",
        entry("POST", "http://new/users/17", '{"ok": true}', posted='{"b":2,"a":1}', status=201),
        entry("GET", "http://new/a?y=2&x=1", '{"n": 1}'),
        entry("GET", "http://new/a?y=2&x=1", '{"n": 3}'),
        entry("GET", "http://new/fresh", "{}"),
    )
    found = list(capture_pairs([old, new]))
    assert [record["id"].split(" ")[:2] for record in found] == [
        ["GET", "/a?x=1&y=2"], ["GET", "/a?x=1&y=2"], ["POST", "/users/17"], ["GET", "/gone"], ["GET", "/fresh"],
    ]  # fmt: skip
    assert [record["endpoint"] for record in found[2:]] == ["POST /users/{id}", "GET /gone", "GET /fresh"]
    assert (found[1]["old"]["body"], found[1]["new"]["body"]) == ({"n": 2}, {"n": 3})
    assert [record.get("missing") for record in found] == [None, None, None, "new", "old"]
    assert len({record["id"] for record in found}) == 5


def test_bodies_are_decoded(tmp_path):
    packed = base64.b64encode(gzip.compress(b'{"n": 1}')).decode()
    plain = base64.b64encode(b'{"n": 2}').decode()
    path = har(
        tmp_path / "x.har",
        entry("GET", "/1", packed, encoding="base64", headers=[("Content-Encoding", "gzip")]),
        entry("GET", "/2", plain, encoding="base64", headers=[("Content-Encoding", "gzip")]),
        entry("GET", "/3", '{"a": 1}\n{"a": 2}\n', kind="application/x-ndjson"),
        entry("GET", "/4", "hello", kind="text/plain"),
        entry("GET", "/5", '{"a": 1', kind="application/problem+json"),
        entry("GET", "/6", packed, encoding="base64", headers=[("Content-Encoding", "br")]),
    )
    found = [record.get("old", {}).get("body") or record.get("error") for record in capture_pairs([path, path])]
    assert found[:3] == [{"n": 1}, {"n": 2}, [{"a": 1}, {"a": 2}]]
    assert found[3]["bytes"] == 5
    assert "is not valid JSON" in found[4]
    assert "encoding 'br' is not known" in found[5]


def test_a_body_that_grows_beyond_the_limit_is_an_error_row(tmp_path):
    packed = base64.b64encode(gzip.compress(b" " * 5_000_000)).decode()
    path = har(
        tmp_path / "x.har", entry("GET", "/1", packed, encoding="base64", headers=[("content-encoding", "gzip")])
    )
    (record,) = capture_pairs([path, path], limit=1_000_000)
    assert "more than 1,000,000 bytes" in record["error"]


def gor(kind, name, message):
    return f"{kind} {name} 1700000000000000000 0\n".encode() + message + "\n🐵🙈🙉\n".encode()


def http(start, body, **headers):
    lines = [start, *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def test_goreplay_files(tmp_path):
    packed = zlib.compress(b'{"n": 2}')
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed)
    data = b"".join(
        [
            gor(1, "aa", http("GET /a HTTP/1.1", b"", Host="x")),
            gor(1, "bb", http("GET /a HTTP/1.1", b"", Host="x")),
            gor(2, "aa", http("HTTP/1.1 200 OK", b'{"n": 1}', Content_Type="application/json")),
            gor(2, "bb", http("HTTP/1.1 200 OK", chunked, Content_Type="application/json",
                              Content_Encoding="deflate", Transfer_Encoding="chunked")),
            gor(3, "bb", http("HTTP/1.1 500 Oops", b'{"n": 2}', Content_Type="application/json")),
        ]
    )  # fmt: skip
    path = tmp_path / "x.gor"
    path.write_bytes(data)
    first, second = capture_pairs([path])
    assert (first["missing"], first["old"]["body"]) == ("new", {"n": 1})
    assert (second["old"]["body"], second["new"]["status"]) == ({"n": 2}, 500)


@pytest.mark.parametrize("content", [b"{}", b"[1]", b'{"log": {"entries": [{}]}}'])
def test_what_is_no_capture_is_refused(tmp_path, content):
    (tmp_path / "x.har").write_bytes(content)
    with pytest.raises(InputError):
        list(capture_pairs([tmp_path / "x.har"] * 2))
    (tmp_path / "x.gor").write_bytes(content)
    with pytest.raises(InputError):
        list(capture_pairs([tmp_path / "x.gor"]))


def test_from_captures_to_a_gate(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = [("Content-Type", "application/json"), ("Date", "now")]
    har(tmp_path / "old.har", *(entry("GET", f"/a/{n}", json.dumps({"n": n, "t": 1}), headers=kept) for n in range(9)))
    later = [("Content-Type", "application/json"), ("Date", "later")]
    har(
        tmp_path / "new.har",
        *(entry("GET", f"/a/{n}", json.dumps({"n": n, "t": 2}), headers=later) for n in range(8)),
        entry("GET", "/a/8", json.dumps({"n": 8, "t": 3}), headers=later, status=404),
    )
    assert run(driftline, ["payloads", "pairs", "old.har", "new.har", "-o", "pairs.jsonl"]) == 0
    batch = ["payloads", "batch", "pairs.jsonl", "--records", "full", "-o", "out", "--ignore", "$.body.t"]
    assert run(driftline, [*batch, "--header", "Content-Type"]) == 1
    (row,) = json.loads((tmp_path / "out" / "aggregate.json").read_text())
    assert (row["path"], row["endpoint"], row["pairs"]) == ("$.status", "GET /a/{id}", 1)
    assert run(driftline, [*batch, "--fail-if", "different > 20%"]) == 0
    assert run(driftline, [*batch, "--fail-if", "different > 1"]) == 0
    assert run(driftline, [*batch, "--fail-if", "different >= 1", "--fail-if", "failed > 0"]) == 1
    assert run(driftline, [*batch, "--header", "date"]) == 1


@pytest.mark.parametrize("place", ["extension", "operation"])
def test_headers_have_rules_of_their_own(tmp_path, place):
    rules = {"ETag": {"x-migration-strategy": "exists"}, "Age": {"x-migration-cast": "int", "x-migration-precision": 5}}
    body = {"type": "object", "properties": {"n": {"type": "integer"}}}
    if place == "extension":
        document, root = {**body, "x-migration-headers": rules}, []
    else:
        headers = {name: {"schema": {"type": "integer", **rule}} for name, rule in rules.items()}
        answer = {"headers": headers, "content": {"application/json": {"schema": body}}}
        document = {"openapi": "3.0.0", "paths": {"/a": {"get": {"responses": {"200": answer}}}}}
        root = ["--root", "GET /a 200"]
    (tmp_path / "api.json").write_text(json.dumps(document))

    def answered(etag, age, kind="text/plain"):
        return {"status": 200, "headers": {"etag": etag, "AGE": age, "content-type": kind}, "body": {"n": 1}}

    records = [
        {"id": 1, "old": answered("a", "10"), "new": answered("b", "14")},
        {"id": 2, "old": answered("a", "10"), "new": answered("b", "20")},
        {"id": 3, "old": answered("a", "10"), "new": answered("b", "10", "text/html")},
    ]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    named = [option for name in ("etag", "age", "content-type") for option in ("--header", name)]
    arguments = ["payloads", "batch", str(tmp_path / "pairs.jsonl"), "--records", "full", *named, *root]
    assert run(driftline, [*arguments, "--schema", str(tmp_path / "api.json"), "-o", str(tmp_path / "out")]) == 1
    rows = [json.loads(line) for line in (tmp_path / "out/reports.jsonl").read_text().splitlines()]
    found = {row["id"]: [(entry["path"], entry["type"]) for entry in row["report"]["diffs"]] for row in rows}
    assert found == {
        1: [],
        2: [("$.headers.age", "PRECISION_EXCEEDED")],
        3: [("$.headers['content-type']", "VALUE_MISMATCH")],
    }
    assert all(row["report"]["warnings"] == [] for row in rows)


def answered(size, *, method="GET", url="/users/1", status=200, **content):
    response = {"status": status, "headers": [], "bodySize": size}
    response["content"] = {"mimeType": "application/json", "size": size, **content}
    return {"request": {"method": method, "url": url}, "response": response}


def test_an_answer_without_its_body_is_an_error_row(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    har(tmp_path / "old.har", answered(5120), answered(0, url="/empty", status=204), answered(9, method="HEAD"))
    har(tmp_path / "new.har", answered(77), answered(0, url="/empty", status=204), answered(8, method="HEAD"))
    first, second, third = capture_pairs([Path("old.har"), Path("new.har")])
    assert first["error"] == (
        "the capture has no body, 5,120 bytes were received; the capture has no body, 77 bytes were received"
    )
    assert (second["old"]["body"], third["new"]["body"]) == (None, None)
    assert run(driftline, ["payloads", "pairs", "old.har", "new.har", "-o", "pairs.jsonl"]) == 0
    assert "1 that cannot be read; 2 of 6 answers have no body" in capfd.readouterr().err
    batch = ["payloads", "batch", "pairs.jsonl", "--records", "full", "-o", "out", "--summary", "out.md"]
    assert run(driftline, batch) == 1
    assert "2 of 6 answers have no body" in capfd.readouterr().err
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["no_body"] == 2
    assert "2 answers of the captures have no body" in (tmp_path / "out.md").read_text()
    assert run(driftline, [*batch, "--fail-if", "bodiless > 40%"]) == 0
    assert run(driftline, [*batch, "--fail-if", "bodiless > 10%"]) == 1
    assert run(driftline, [*batch, "--fail-if", "different > 0"]) == 1


def test_an_aborted_request_has_no_answer(tmp_path):
    path = har(tmp_path / "x.har", answered(-1, status=0))
    (record,) = capture_pairs([path, path])
    assert "status 0" in record["error"]


@pytest.mark.parametrize(
    "entry",
    [
        answered(50, text="!!!!", encoding="base64"),
        answered(50, text="eyJhIjoxfQ", encoding="base64"),  # cut short
        answered(50, text="\n", encoding="base64"),
        answered(50, _file="empty.json"),
        answered(50, status=-1),
        answered(50, text=5),
    ],
    ids=["no base64", "cut base64", "blank", "empty file", "status -1", "a number"],
)
def test_what_is_left_of_a_body_is_never_an_empty_one(tmp_path, entry):
    (tmp_path / "empty.json").write_bytes(b"")
    path = har(tmp_path / "x.har", entry)
    (record,) = capture_pairs([path, path])
    assert "body" in record["error"] or "no answer" in record["error"]


def test_base64_may_have_line_breaks(tmp_path):
    text = base64.encodebytes(json.dumps({"n": "x" * 100}).encode()).decode()
    path = har(tmp_path / "x.har", answered(110, text=text, encoding="base64"))
    (record,) = capture_pairs([path, path])
    assert record["old"]["body"] == {"n": "x" * 100}


@pytest.mark.parametrize("is_damaged", [False, True], ids=["two files", "damaged"])
def test_a_capture_that_cannot_be_read_whole_is_refused(tmp_path, is_damaged):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.har", json.dumps({"log": {"entries": [answered(1, text="1")] * 50}}))
        if not is_damaged:
            archive.writestr("b.har", json.dumps({"log": {"entries": []}}))
    if is_damaged:
        path.write_bytes(path.read_bytes().replace(path.read_bytes()[60:80], bytes(20)))
    with pytest.raises(InputError):
        list(capture_pairs([path, path]))


def test_goreplay_bodies_that_are_cut_short_are_error_rows(tmp_path):
    packed = zlib.compress(bytes(range(256)) * 40)
    bodies = {
        "length": http("HTTP/1.1 200 OK", b"abc", Content_Type="text/plain", Content_Length="100"),
        "deflate": http("HTTP/1.1 200 OK", packed[:-40], Content_Type="text/plain", Content_Encoding="deflate"),
        "chunks": http("HTTP/1.1 200 OK", b"3\r\nabc\r\n", Content_Type="text/plain", Transfer_Encoding="chunked"),
        "chunk": http("HTTP/1.1 200 OK", b"3\r\nabc", Content_Type="text/plain", Transfer_Encoding="chunked"),
    }
    path = tmp_path / "x.gor"
    path.write_bytes(
        b"".join(
            gor(1, name, http("GET /a HTTP/1.1", b"", Host="x")) + gor(2, name, body) + gor(3, name, body)
            for name, body in bodies.items()
        )
    )
    found = list(capture_pairs([path]))
    assert len(found) == 4
    assert all("cut short" in record["error"] for record in found), found


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_attached_bodies_are_read(tmp_path, packed):
    """Playwright writes bodies beside the HAR file, or both into a zip file."""
    entries = [
        answered(9, _file="a.json"),
        answered(9, url="/lost", _file="lost.json"),
        answered(9, url="/out", _file="../a.json"),
    ]
    captured = json.dumps({"log": {"entries": entries}})
    path = tmp_path / ("x.zip" if packed else "x.har")
    if packed:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("har.har", captured)
            archive.writestr("a.json", '{"n": 1}')
    else:
        path.write_text(captured)
        (tmp_path / "a.json").write_text('{"n": 1}')
    first, second, third = capture_pairs([path, path])
    assert first["old"]["body"] == {"n": 1}
    assert "'lost.json' is not there" in second["error"]
    assert "outside" in third["error"]


def test_pairing_can_be_steered(tmp_path):
    old = har(
        tmp_path / "old.har",
        entry("GET", "/v1/u/1?_=1", '{"n": 1}'),
        with_header(entry("GET", "/t", '{"n": "de"}'), "Accept-Language", "de"),
        with_header(entry("GET", "/t", '{"n": "en"}'), "Accept-Language", "en"),
    )
    new = har(
        tmp_path / "new.har",
        with_header(entry("GET", "/t", '{"n": "en"}'), "accept-language", "en"),
        with_header(entry("GET", "/t", '{"n": "de"}'), "accept-language", "de"),
        entry("GET", "/v2/u/1?_=2", '{"n": 1}'),
    )
    options = PairingOptions.of(["^/v1/=/v2/"], ["_"], ["Accept-Language"])
    found = list(capture_pairs([old, new], options=options))
    assert [record["id"] for record in found] == [
        "GET /v2/u/1", "GET /t accept-language=de", "GET /t accept-language=en",
    ]  # fmt: skip
    assert all(record["old"]["body"] == record["new"]["body"] for record in found)


def with_header(made, name, value):
    made["request"]["headers"] = [{"name": name, "value": value}]
    return made


def form(parameters=None, text=None, kind="application/x-www-form-urlencoded"):
    made = entry("POST", "/f", "{}")
    made["request"]["postData"] = {"mimeType": kind, **({"params": parameters} if parameters else {"text": text})}
    return made


def test_forms_pair_by_their_parts(tmp_path):
    def multipart(boundary, name):
        parts = f'--{boundary}\r\nContent-Disposition: form-data; name="n"\r\n\r\n{name}\r\n--{boundary}--\r\n'
        return form(text=parts, kind=f"multipart/form-data; boundary={boundary}")

    listed = [{"name": "a", "value": "1"}, {"name": "b", "value": "x y"}]
    old = har(tmp_path / "old.har", form(listed), form(text="a=2"), multipart("aa", "one"), multipart("bb", "two"))
    new = har(
        tmp_path / "new.har", multipart("cc", "two"), form(text="b=x+y&a=1"), multipart("dd", "one"), form(text="a=2")
    )
    found = list(capture_pairs([old, new]))
    assert len(found) == 4
    assert not [record for record in found if "missing" in record]
    assert len({record["id"] for record in found}) == 4


@pytest.mark.parametrize("given", ["/v1/", "=x", "(=/v2/", "a=\\9"])
def test_a_bad_map_of_paths_is_refused(tmp_path, capfd, given):
    path = str(har(tmp_path / "x.har"))
    assert run(driftline, ["payloads", "pairs", path, path, "--map-path", given]) == 2
    assert "--map-path" in capfd.readouterr().err


def test_an_endpoint_that_no_pair_has_is_refused(tmp_path, capfd):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"id": 1, "endpoint": "GET /v1/invoices/{id}", "old": {}, "new": {}}\n')
    arguments = ["payloads", "suggest", str(path), "-o", str(tmp_path / "rules.yaml"), "--endpoint"]
    assert run(driftline, [*arguments, "GET /v1/invoice/{id}"]) == 2
    assert "there is 'GET /v1/invoices/{id}'" in capfd.readouterr().err
    assert not (tmp_path / "rules.yaml").exists()
    assert run(driftline, [*arguments, "GET /v1/invoices/{id}"]) == 0
