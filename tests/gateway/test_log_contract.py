"""What every store of the log promises: one suite, run against each of them."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from driftline.deltas._deltas import make_hlc
from driftline.errors import ClockDriftError, DriftlineError, GatewayError
from driftline.gateway._log.log import Appended, DeltaLog, Entry, StoredRow, StoredVersion
from driftline.gateway._log.sqlite import SqliteLog
from support.postgres import postgres_server

NOW = 1_700_000_000_000
OpenLog = Callable[[], DeltaLog]


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres_server() as address:
        yield address


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def open_log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenLog]:
    """Opens the same log again and again, as several processes would."""
    opened: list[DeltaLog] = []
    if request.param == "sqlite":
        made: OpenLog = partial(SqliteLog, tmp_path / "log.sqlite", wall=lambda: NOW)
    else:
        postgres_log = pytest.importorskip("driftline.gateway._log.postgres", reason="needs psycopg")
        gateway = f"gw-{secrets.token_hex(4)}"  # one database serves many gateways
        made = partial(postgres_log.PostgresLog, request.getfixturevalue("database"), gateway, wall=lambda: NOW)

    def open_one() -> DeltaLog:
        opened.append(made())
        return opened[-1]

    yield open_one
    for log in opened:
        log.close()


@pytest.fixture
def log(open_log: OpenLog) -> DeltaLog:
    return open_log()


def entry(number: int, *, op: int = 0, table: str = "todos", hlc: int | None = None) -> Entry:
    body = b'{"n":%d}' % number
    return Entry(number if hlc is None else hlc, hashlib.sha256(body).digest(), op, table, body)


def entries(first: int, last: int) -> list[Entry]:
    return [entry(number) for number in range(first, last + 1)]


def take(log: DeltaLog, *batch: Entry) -> Appended:
    [result] = log.append([batch])
    assert isinstance(result, Appended), result
    return result


def refused(log: DeltaLog, *batch: Entry) -> DriftlineError:
    [result] = log.append([batch])
    assert isinstance(result, DriftlineError)
    return result


def test_records_come_back_in_the_order_of_arrival(log: DeltaLog) -> None:
    assert list(take(log, entry(9), entry(3)).fresh) == [0, 1]
    assert list(take(log, entry(3), entry(5)).fresh) == [1]
    assert [(record.seq, record.hlc) for record in log.read(0, 10)] == [(1, 9), (2, 3), (3, 5)]
    assert [record.seq for record in log.read(0, 10, since_hlc=3)] == [1, 3]
    assert [record.seq for record in log.read(1, 1)] == [2]
    assert [record.seq for record in log.read(0, 10, upto=2)] == [1, 2]


def test_arrivals_rise_and_leave_room_between_them(log: DeltaLog) -> None:
    take(log, *entries(1, 3))
    take(log, entry(4))
    arrivals = [log.arrival_at(seq) or 0 for seq in range(5)]
    assert arrivals[0] == 0
    assert arrivals[1:] == [record.arrival for record in log.read(0, 10)]
    steps = [later - earlier for earlier, later in pairwise(arrivals[1:])]
    assert all(step >= 2 for step in steps)
    assert log.arrival_at(5) is None
    assert [log.first_arrival_from(arrivals[2]), log.first_arrival_from(arrivals[4] + 1)] == [2, 5]


def test_a_batch_is_taken_whole_or_not_at_all(log: DeltaLog) -> None:
    take(log, entry(1))
    clash = Entry(1, entry(1).delta_id, 2, "todos", b"{}")
    assert refused(log, entry(2), clash).code == "VALIDATION_ERROR"
    assert refused(log, entry(3), entry(4, table="Todos")).code == "VALIDATION_ERROR"
    assert refused(log, entry(5, hlc=make_hlc(NOW + 5001))).code == "CLOCK_DRIFT"
    assert [record.hlc for record in log.read(0, 10)] == [1]
    assert log.table_names() == ["todos"]


def test_the_clock_passes_everything_that_came(log: DeltaLog) -> None:
    ahead = make_hlc(NOW + 4000)
    assert take(log, entry(1, hlc=ahead)).server_hlc > ahead
    assert log.head().clock > ahead


def test_what_is_pruned_is_refused_and_told(log: DeltaLog) -> None:
    take(log, *entries(1, 6))
    boundary = log.arrival_at(4)
    assert log.prune(4) == 4
    head = log.head()
    assert (head.pruned, head.last, head.horizon) == (4, 6, 4)
    assert (log.arrival_at(3), log.arrival_at(4)) == (None, boundary)
    assert refused(log, entry(2)).code == "TOO_OLD"
    assert list(take(log, entry(5)).fresh) == []  # still known: acknowledged
    log.advance(horizon=100)
    assert log.head().horizon == 100
    assert refused(log, entry(50)).code == "TOO_OLD"


def test_marks_only_go_forward_until_the_identity_is_renewed(log: DeltaLog, open_log: OpenLog) -> None:
    take(log, *entries(1, 6))
    log.advance(flushing=5)
    log.advance(flushed=3)
    log.advance(flushed=1)
    progress = log.head()
    assert (progress.flushed, progress.flushing) == (3, 5)
    before = log.identity()
    renewed = log.renew_identity()
    progress = open_log().head()
    assert (progress.flushed, progress.flushing) == (3, 3)
    assert renewed.log_id != before.log_id
    assert renewed.was == (before.log_id,)
    assert before.log_id in renewed
    assert open_log().identity() == renewed
    log.flush_again(5)
    assert log.head().flushed == 3
    log.flush_again(1)
    assert (log.head().flushed, log.head().flushing) == (1, 1)


def test_what_waits_for_the_lake_is_measured(log: DeltaLog) -> None:
    assert (log.waiting().size, log.waiting().since_ms) == (0, None)
    take(log, *entries(1, 3))
    log.advance(flushed=1)
    assert log.waiting().size == len(entry(2).body) + len(entry(3).body)
    assert log.waiting().since_ms == (log.arrival_at(2) or 0) >> 16


def test_foreign_deltas_are_marked_and_known_ones_left_out(log: DeltaLog) -> None:
    take(log, entry(1))
    assert log.import_foreign([entry(1), entry(2), entry(2), entry(3, table="other")]) == 2
    assert [(record.hlc, record.is_foreign) for record in log.read(0, 10)] == [(1, False), (2, True), (3, True)]
    assert log.table_names() == ["other", "todos"]
    assert log.import_foreign(entries(1, 3)) == 0
    with pytest.raises(ClockDriftError):
        log.import_foreign([entry(4, hlc=make_hlc(NOW + 60_000))])
    assert list(take(log, entry(2)).fresh) == []


def test_a_foreign_delta_with_a_known_id_and_another_operation_is_refused(log: DeltaLog) -> None:
    take(log, entry(1))
    for batch in ([entry(2), entry(1, op=2)], [entry(2), entry(2, op=2)]):
        with pytest.raises(GatewayError, match=r"deltas\[1\]: its id is known with another op") as caught:
            log.import_foreign(batch)
        assert (caught.value.code, caught.value.index) == ("VALIDATION_ERROR", 1)
    assert [record.hlc for record in log.read(0, 10)] == [1]


def test_documents_and_numbers_change_together(log: DeltaLog, open_log: OpenLog) -> None:
    before = log.head()
    log.change_document("rules", lambda old: b"one" if old is None else b"?", "config", "rules")
    other = open_log()
    assert other.document("rules") == b"one"
    assert (other.head().config, other.head().rules) == (before.config + 1, before.rules + 1)
    other.change_document("rules", lambda old: None, "config")
    assert log.document("rules") is None
    assert (log.head().config, log.head().rules) == (before.config + 2, before.rules + 1)


def test_one_flush_at_a_time(log: DeltaLog, open_log: OpenLog) -> None:
    other = open_log()
    with log.flush_lock(wait=True) as mine:
        assert mine
        with other.flush_lock(wait=False) as theirs:
            assert not theirs
    with other.flush_lock(wait=False) as theirs:
        assert theirs


def test_waiting_for_a_commit_ends_with_it(log: DeltaLog, open_log: OpenLog) -> None:
    assert log.wait_past(0, 0.01) == 0
    other = open_log()
    for number, writer in enumerate((log, other), 1):
        timer = threading.Timer(0.05, take, (writer, entry(number)))
        timer.start()
        assert log.wait_past(number - 1, 30) == number
        timer.join()


def test_several_writers_make_one_dense_order(open_log: OpenLog) -> None:
    logs = [open_log() for _ in range(3)]

    def write(log: DeltaLog, first: int) -> None:
        for number in range(first, first + 200, 10):
            take(log, *entries(number, number + 9))

    threads = [threading.Thread(target=write, args=(log, 1000 * n)) for n, log in enumerate(logs, 1)]
    for thread in threads:
        thread.start()
    seen: list[int] = []
    while any(thread.is_alive() for thread in threads) or len(seen) < logs[0].head().last:
        seen += [record.seq for record in logs[0].read(seen[-1] if seen else 0, 1000)]
    assert seen == list(range(1, 601))
    assert {record.hlc for record in logs[0].read(0, 1000)} == {n * 1000 + k for n in (1, 2, 3) for k in range(200)}


def test_rows_are_replaced_and_their_moments_added(log: DeltaLog, open_log: OpenLog) -> None:
    start = log.head().projection
    assert start == (0, 0)
    key, other = ("todos", "1"), ("todos", "é")
    versions = tuple(StoredVersion(seq, seq % 2 == 0, f'{{"n":{seq}}}') for seq in range(1, 6))
    log.store_rows({key: StoredRow(b"one", versions), other: StoredRow(b"two")}, start, (5, 3))
    assert log.head().projection == (5, 3)
    log.store_rows({key: StoredRow(b"late")}, start, (9, 3))  # somebody else was as quick
    assert open_log().rows([key, other, ("todos", "2")]) == {key: StoredRow(b"one"), other: StoredRow(b"two")}
    more = (StoredVersion(7, True, "{}"),)
    log.store_rows({key: StoredRow(b"three", more)}, (5, 3), (7, 3))
    assert log.versions(key, 0, 100) == [*versions, *more]
    assert log.versions(key, 3, 2) == list(versions[3:5])
    assert log.versions(other, 0, 100) == []
    assert dict(log.all_rows()) == {key: StoredRow(b"three"), other: StoredRow(b"two")}
    log.store_rows({other: StoredRow(b"new", (StoredVersion(0, True, "{}"),))}, (7, 3), (7, 4), anew=True)
    assert dict(log.all_rows()) == {other: StoredRow(b"new")}
    assert (log.versions(key, -1, 9), log.versions(other, -1, 9)) == ([], [StoredVersion(0, True, "{}")])
