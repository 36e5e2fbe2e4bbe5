"""Messages of wal2json, Debezium and Maxwell as changes: samples of the documented forms, and every refusal."""

from __future__ import annotations

import base64
import json

import apsw
import pytest

from driftline.changesets import apply, from_cdc
from driftline.changesets._cdc.convert import CdcOptions, deltas_from_cdc, transactions
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.deltas import merge
from driftline.errors import ChangesetError, OptionError

ITEMS = "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price TEXT, data BLOB, ok INTEGER)"
KAFKA, TIME = "org.apache.kafka.connect.data", "io.debezium.time"
PAIR = "CREATE TABLE t (id INTEGER PRIMARY KEY, v)"


def v2(action, columns=None, identity=None, table="t", **extra):
    message = {"action": action, "schema": "public", "table": table, **extra}
    for name, values in (("columns", columns), ("identity", identity)):
        if values is not None:
            message[name] = [{"name": k, "type": "x", "value": v} for k, v in values.items()]
    return json.dumps(message)


def debezium(op, before=None, after=None, fields=(), **source):
    schema = {"type": "struct", "fields": [{"field": "after", "fields": list(fields)}]}
    payload = {"before": before, "after": after, "op": op, "source": {"table": "t", "txId": 1, **source}}
    return json.dumps({"schema": schema, "payload": payload})


def maxwell(kind, data, old=None, **extra):
    message = {"database": "shop", "table": "t", "type": kind, "data": data, "xid": 1, **extra}
    return json.dumps(message if old is None else {**message, "old": old})


def told(found):
    return [(operation.kind, operation.old_values, operation.new_values) for operation in found]


@pytest.mark.parametrize(
    ("declared", "value", "field", "stored"),
    [
        ("TEXT", "AJY=", {"type": "bytes", "name": f"{KAFKA}.Decimal", "parameters": {"scale": "2"}}, "1.50"),
        ("TEXT", {"scale": 3, "value": "/w=="}, {"name": "io.debezium.data.VariableScaleDecimal"}, "-0.001"),
        ("TEXT", "AQ==", {"name": f"{KAFKA}.Decimal", "parameters": {"scale": "-3"}}, "1000"),
        ("TEXT", 19_000, {"type": "int32", "name": "io.debezium.time.Date"}, "2022-01-08"),
        ("TEXT", -1, {"type": "int32", "name": f"{KAFKA}.Date"}, "1969-12-31"),
        ("TEXT", 1_700_000_000_123, {"type": "int64", "name": f"{TIME}.Timestamp"}, "2023-11-14 22:13:20.123000"),
        ("", 1_700_000_000_123_456, {"name": f"{TIME}.MicroTimestamp"}, "2023-11-14 22:13:20.123456"),
        ("", 1_700_000_000_123_456_789, {"name": f"{TIME}.NanoTimestamp"}, "2023-11-14 22:13:20.123456"),
        ("TEXT", 0, {"type": "int64", "name": f"{TIME}.Timestamp"}, "1970-01-01 00:00:00.000000"),
        ("TEXT", 3_600_000_001, {"type": "int64", "name": "io.debezium.time.MicroTime"}, "01:00:00.000001"),
        ("", "AP8=", {"type": "bytes"}, b"\x00\xff"),
        ("", True, {"type": "boolean"}, 1),
        ("", 1.5, {"type": "double"}, 1.5),
        ("TEXT", {"b": 1.50, "a": [1]}, {}, '{"a":[1],"b":1.5}'),
        ("", "2024-01-02T03:04:05Z", {"type": "string", "name": f"{TIME}.ZonedTimestamp"}, "2024-01-02T03:04:05Z"),
    ],
)  # fmt: skip
def test_debezium_values(declared, value, field, stored):
    message = debezium("c", after={"id": 1, "v": value}, fields=[{"field": "v", **field}])
    [operation] = from_cdc([message], f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {declared})")
    assert operation.new == (1, stored)
    assert type(operation.new[1]) is type(stored)


@pytest.mark.parametrize(
    ("declared", "text", "stored"),
    [("TEXT", "1.50", "1.50"), ("REAL", "1.50", 1.5), ("", "1.50", 1.5), ("NUMERIC", "1e2", 100), ("", "7", 7),
     ("TEXT", "18446744073709551616", "18446744073709551616"), ("REAL", "18446744073709551616", 2.0**64)],
)  # fmt: skip
def test_numbers_without_a_type_keep_their_digits(declared, text, stored):
    message = '{"database":"d","table":"t","type":"insert","data":{"id":1,"v":NUMBER}}'.replace("NUMBER", text)
    [operation] = from_cdc([message], f"CREATE TABLE t (id INTEGER PRIMARY KEY, v {declared})")
    assert operation.new == (1, stored)
    assert type(operation.new[1]) is type(stored)


def test_updates_hold_what_changed_where_the_old_row_is_known():
    sent = v2("U", {"id": 1, "v": 2, "w": 3}, {"id": 1, "v": 1, "w": 3})
    schema = "CREATE TABLE t (id INTEGER PRIMARY KEY, v, w)"
    assert told(from_cdc([sent], schema)) == [("update", {"id": 1}, {"v": 2})]
    assert told(from_cdc([sent], schema, format="changeset")) == [("update", {"id": 1, "v": 1}, {"v": 2})]
    by_key = v2("U", {"id": 1, "v": 2, "w": 3}, {"id": 1})
    assert told(from_cdc([by_key], schema)) == [("update", {"id": 1}, {"v": 2, "w": 3})]
    unknown = v2("U", {"id": 1, "v": 2})
    assert told(from_cdc([unknown], schema)) == [("update", {"id": 1}, {"v": 2})]
    toast = v2("U", {"id": 1, "v": 2}, {"id": 1, "v": 1, "w": "long"})
    assert told(from_cdc([toast], schema, format="changeset")) == [("update", {"id": 1, "v": 1}, {"v": 2})]


def test_a_changed_key_is_a_delete_and_an_insert():
    whole = v2("U", {"id": 2, "v": 1}, {"id": 1, "v": 1})
    assert sorted(told(from_cdc([whole], PAIR)), key=repr) == [
        ("delete", {"id": 1}, {}),
        ("insert", {}, {"id": 2, "v": 1}),
    ]
    toast = v2("U", {"id": 2}, {"id": 1, "v": "kept"})
    found = from_cdc([toast], PAIR, format="changeset")
    assert ("insert", {}, {"id": 2, "v": "kept"}) in told(found)


def test_keys_are_compared_as_they_are_stored():
    message = v2("U", {"id": 1, "v": 2}, {"id": "1"})
    assert told(from_cdc([message], PAIR)) == [("update", {"id": 1}, {"v": 2})]


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (["{"], "invalid_message"),
        (["[5]"], "invalid_message"),
        (["[" * 100_000], "invalid_message"),
        (['{"hello": 1}'], "unknown_message"),
        (['{"action": "Z"}'], "unknown_message"),
        (['{"action": "I", "table": 7}'], "invalid_message"),
        (['{"change": [{"kind": "insert", "table": "t", "columnnames": [1], "columnvalues": []}]}'], "invalid_message"),
        (['{"action":"I","table":"t","columns":[{"name":"id","value":NaN}]}'], "invalid_message"),
        ([v2("I", {"id": 1})], "missing_column"),
        ([v2("I", {"id": 1, "v": 1, "x": 1})], "schema_mismatch"),
        ([v2("I", {"id": 1, "v": 1}, table="other")], "unknown_table"),
        ([v2("D")], "no_key"),
        ([v2("D", identity={"v": 1})], "no_key"),
        ([v2("U", {"v": 1})], "no_key"),
        ([v2("T")], "truncate"),
        ([v2("U", {"id": 2}, {"id": 1})], "unchanged_toast"),
        (['{"action": "B"}', v2("I", {"id": 1, "v": 1})], "open_transaction"),
        ([maxwell("insert", {"id": 1, "v": 1}, xoffset=0)], "open_transaction"),
        (['{"database": "d", "table": "t", "type": "table-alter"}'], "ddl"),
        ([v2("I", {"id": 1, "v": 1}), v2("I", {"id": 2, "v": 1}).replace("public", "other")], "ambiguous_table"),
        ([debezium("c", after="text")], "invalid_message"),
        ([debezium("c", after={"id": 1, "v": "?"}, fields=[{"field": "v", "type": "bytes"}])], "invalid_message"),
        ([debezium("x")], "unknown_message"),
        (['{"payload": 5}'], "invalid_message"),
    ],
)  # fmt: skip
def test_refusals(lines, code):
    with pytest.raises(ChangesetError) as caught:
        from_cdc(lines, PAIR)
    assert caught.value.code == code
    if code != "open_transaction":
        assert str(caught.value).startswith(f"line {len(lines)}: ")


def test_changesets_need_whole_old_rows():
    for line in (v2("D", identity={"id": 1}), debezium("d", before={"id": 1, "v": None}), v2("U", {"id": 1, "v": 1})):
        with pytest.raises(ChangesetError, match="whole old row") as caught:
            from_cdc([line], PAIR, format="changeset")
        assert caught.value.code == "no_old_row"
    line = debezium("u", before={"id": 1, "v": None}, after={"id": 1, "v": 2})
    assert told(from_cdc([line], PAIR, format="changeset", before="full")) == [
        ("update", {"id": 1, "v": None}, {"v": 2})
    ]
    assert told(from_cdc([line], PAIR)) == [("update", {"id": 1}, {"v": 2})]


def test_what_is_passed_over():
    lines = [
        "", "null", '{"schema": null, "payload": null}', '{"action": "M", "content": "x"}',
        '{"change": [{"kind": "message", "content": "x"}]}', debezium("m"), '{"payload": {"status": "BEGIN"}}',
        '{"database": "d", "table": "t", "type": "bootstrap-start"}', maxwell("bootstrap-insert", {"id": 3, "v": 1}),
    ]  # fmt: skip
    assert told(from_cdc(lines, PAIR)) == [("insert", {}, {"id": 3, "v": 1})]
    skipped = from_cdc([v2("T"), v2("I", {"id": 1, "v": 1})], PAIR, on_truncate="skip")
    assert [(note.code, note.name, note.line) for note in skipped.notes] == [("truncate", "t", 1)]
    assert len(skipped) == 1
    with pytest.raises(OptionError, match="not kafka"):
        from_cdc([], PAIR, source="kafka")
    with pytest.raises(ChangesetError, match="not a message of debezium"):
        from_cdc([v2("T")], PAIR, source="debezium")
    unavailable = base64.b64encode(b"__debezium_unavailable_value").decode()
    line = debezium("u", after={"id": 1, "v": unavailable}, fields=[{"field": "v", "type": "bytes"}])
    assert told(from_cdc([line], PAIR)) == []


def test_transactions_are_told_apart():
    rows = [v2("I", {"id": number, "v": 1}) for number in range(6)]
    marks = ['{"action": "B", "xid": 7}', '{"action": "C", "xid": 7}']
    lines = [marks[0], rows[0], rows[1], marks[1], marks[0], marks[1], marks[0], rows[2], marks[1]]
    sizes = [(len(each), each.transaction) for each in transactions(lines, PAIR, CdcOptions(), format="patchset")]
    assert sizes == [(2, None), (1, None)]
    by_xid = [v2("I", {"id": n, "v": 1}, xid=x) for n, x in ((1, 5), (2, 5), (3, 6))]
    assert [len(each) for each in transactions(by_xid, PAIR, CdcOptions(), format="patchset")] == [2, 1]
    lines = [
        maxwell("insert", {"id": 1, "v": 1}, xoffset=0),
        maxwell("insert", {"id": 2, "v": 1}, xoffset=1),
        maxwell("insert", {"id": 3, "v": 1}, commit=True),
        maxwell("insert", {"id": 4, "v": 1}, commit=True),
        debezium("c", after={"id": 5, "v": 1}, db="shop"),
    ]
    found = [(len(each), each.transaction) for each in transactions(lines, PAIR, CdcOptions(), format="patchset")]
    assert found == [(3, "1"), (1, "1"), (1, "1")]


def test_deltas_of_the_same_messages():
    lines = [
        v2("I", {"id": 1, "v": "a"}),
        v2("U", {"id": 1, "v": "b"}, {"id": 1, "v": "a"}),
        v2("U", {"id": 2, "v": "b"}, {"id": 1, "v": "b"}),
        v2("U", {"id": 2, "v": "b"}, {"id": 2, "v": "b"}),
        v2("I", {"id": 9, "v": None}),
        v2("D", identity={"id": 9}),
    ]
    deltas = list(deltas_from_cdc(lines, PAIR, client_id="pg", start=100))
    assert [(delta.op, delta.row_id, delta.hlc) for delta in deltas] == [
        ("INSERT", "1", 100), ("UPDATE", "1", 101), ("DELETE", "1", 102), ("INSERT", "2", 103), ("INSERT", "9", 104),
        ("DELETE", "9", 105),
    ]  # fmt: skip
    states = merge(deltas)
    assert {key[1] for key, state in states.items() if state.live} == {"2"}
    blob = debezium("c", after={"id": 1, "v": "AA=="}, fields=[{"field": "v", "type": "bytes"}])
    with pytest.raises(ChangesetError, match="no blobs"):
        list(deltas_from_cdc([blob], PAIR, client_id="x", start=1))


def test_the_command(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tables.sql").write_text(PAIR)
    lines = [v2("I", {"id": 1, "v": 1}, xid=5), v2("T", xid=6), v2("I", {"id": 2, "v": 2}, xid=7)]
    (tmp_path / "wal.jsonl").write_text("\n".join(lines))
    command = ["changeset", "from-cdc", "wal.jsonl", "--schema", "tables.sql"]
    assert run(driftline, [*command, "-o", "out.bin"]) == 2
    assert "error[truncate]: line 2: table t was truncated" in capfd.readouterr().err
    assert not (tmp_path / "out.bin").exists()
    assert run(driftline, [*command, "-o", "out.bin", "--on-truncate", "skip"]) == 0
    assert "note[truncate]: t: line 2" in capfd.readouterr().err
    connection = apsw.Connection(":memory:")
    connection.execute(PAIR)
    apply("out.bin", connection)
    assert connection.execute("SELECT * FROM t").fetchall() == [(1, 1), (2, 2)]
    assert run(driftline, [*command, "--per-transaction", "many"]) == 2
    assert list((tmp_path / "many").iterdir()) == []
    assert run(driftline, [*command, "--per-transaction", "many", "--on-truncate", "skip"]) == 0
    assert sorted(path.name for path in (tmp_path / "many").iterdir()) == ["000001-5.patchset", "000002-7.patchset"]
    assert run(driftline, [*command, "--per-transaction", "many", "--on-truncate", "skip"]) == 2
    capfd.readouterr()
    deltas = [*command, "--format", "deltas", "--client-id", "pg", "--start", "5", "--on-truncate", "skip"]
    assert run(driftline, deltas) == 0
    assert [json.loads(line)["op"] for line in capfd.readouterr().out.splitlines()] == ["INSERT", "INSERT"]
    assert run(driftline, [*command, "--format", "deltas"]) == 2
    assert "need --client-id" in capfd.readouterr().err


def test_printed_messages_and_arrays():
    inserts = [v2("I", {"id": number, "v": 'a }] "{'}) for number in range(3)]
    wanted = told(from_cdc(inserts, PAIR))
    printed = [json.dumps(json.loads(line), indent=2) for line in inserts]
    for text in (
        f"[{', '.join(inserts)}]",
        "[\n" + ",\n".join(inserts) + "\n]",
        json.dumps([json.loads(line) for line in inserts], indent=2),
        "\n".join(printed),
        f"{inserts[0]}\n[{inserts[1]}]\n\n{printed[2]}\n[]",
    ):
        lines = text.splitlines(keepends=True)
        assert told(from_cdc(lines, PAIR)) == wanted
        assert told(from_cdc([line.encode() for line in lines], PAIR)) == wanted


def test_errors_name_the_first_line_of_a_message():
    lines = [v2("I", {"id": 1, "v": 1}), *json.dumps({"hello": 1}, indent=2).splitlines()]
    with pytest.raises(ChangesetError, match=r"^line 2: not a message of any known source"):
        from_cdc(lines, PAIR)
    for cut in (["{", v2("D", identity={"id": 1})], ['{"action":', '"I"'], ["[", v2("D")]):
        with pytest.raises(ChangesetError, match=r"^line 1: not a JSON message"):
            from_cdc(cut, PAIR)


@pytest.mark.parametrize("message", [v2("I", {"a": 1}), v2("U", {"a": 1}), v2("D")])
def test_a_table_without_a_key_is_told_as_one(message):
    with pytest.raises(ChangesetError, match="table t has no primary key") as caught:
        from_cdc([message], "CREATE TABLE t (a)")
    assert caught.value.code == "no_key"
