"""Bytes that are not a changeset: refused with an offset, never a crash, a hang or a large allocation."""

from __future__ import annotations

import contextlib
import random
import tracemalloc

import apsw
import pytest
from hypothesis import given, settings, strategies as st

from driftline.changesets import apply, concat, invert, parse
from driftline.errors import ChangesetError, CorruptChangesetError
from support.random_work import SHAPES, work_of


def sample(patchset=False, shape="composite"):
    connection = apsw.Connection(":memory:")
    connection.execute(SHAPES[shape])
    work_of(shape, 3, 12)(connection)
    session = apsw.Session(connection, "main")
    session.attach()
    work_of(shape, 4, 25)(connection)
    return session.patchset() if patchset else session.changeset()


def whole_prefixes(data):
    """Lengths at which cutting leaves a valid file: after the header of a section and after each record."""
    lengths, seen = {0}, 0
    for operation in parse(data):
        header = operation.table.header(data[0])
        seen = seen or len(header)
        lengths.add(seen)
        seen += len(operation.encode(patchset=data[:1] == b"P"))
    return lengths | {seen}


@pytest.mark.parametrize("patchset", [False, True])
def test_truncated_at_every_byte(patchset):
    data = sample(patchset)
    valid = whole_prefixes(data)
    assert len(data) in valid
    for length in range(len(data)):
        if length in valid:
            parse(data[:length])
            continue
        for read in (parse, concat):
            with pytest.raises(CorruptChangesetError) as caught:
                read(data[:length])
            assert 0 <= caught.value.offset <= length


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_flipped_bits(data):
    content = bytearray(sample(data.draw(st.booleans()), data.draw(st.sampled_from(["rowid", "untyped"]))))
    rng = random.Random(data.draw(st.integers(0, 1 << 32)))
    for _ in range(rng.randrange(1, 4)):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    damaged = bytes(content)
    if read_or_refuse(damaged):
        for work in (concat, invert):
            with contextlib.suppress(ChangesetError):
                work(damaged)


def read_or_refuse(data):
    """Whether the bytes are a file; if they are not, the error must lie within them."""
    try:
        parsed = parse(data)
    except CorruptChangesetError as error:
        where = error.offset
    else:
        assert bytes(parsed) == data
        return True
    assert 0 <= where <= len(data)
    return False


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.sampled_from([b"", b"T", b"P", b"T\x02\x01\x00t\x00", b"P\x02\x01\x00t\x00\x12\x00"]))
def test_noise(noise, start):
    read_or_refuse(start + noise)


@pytest.mark.parametrize(
    ("data", "offset", "words"),
    [
        (b"\x12\x00\x01", 0, "a change before any table header"),
        (b"hello", 0, "not a changeset"),
        (b"T\x00t\x00", 1, "0 columns"),
        (b"T\x01\x01t\x00\x13\x00", 5, "unknown operation 0x13"),
        (b"T\x01\x01t\x00\x12\x00\x06", 7, "unknown type 0x06"),
        (b"T\x01\x01t\x00\x12\x00\x03\x8f\xff\xff\xff\x7f", 7, "are left"),
        (b"T\x01\x01t\x00\x12\x00\x04\xff\xff\xff\xff\xff\xff", 8, "more than five bytes"),
        (b"T\xff\xff\xff\xff\x7ft\x00", 1, "columns"),
        (b"T\x01\x01t", 4, "ends inside a table header"),
        (b"T\x01\x01t\x00\x12\x00\x05P\x01\x01t\x00", 8, "in one file"),
    ],
)
def test_errors_say_where(data, offset, words):
    with pytest.raises(CorruptChangesetError, match=words) as caught:
        parse(data)
    assert caught.value.offset == offset
    assert caught.value.code == "corrupt_changeset"


def test_absurd_lengths_allocate_nothing():
    header = b"T\x01\x01t\x00"
    data = header + b"\x12\x00\x03\x87\xff\xff\xff\x7f" + b"x" * 1000
    tracemalloc.start()
    with pytest.raises(CorruptChangesetError):
        parse(data)
    with pytest.raises(CorruptChangesetError):
        parse(b"T\x84\x80\x00" + b"\x01" * 100)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


def test_nothing_is_applied_when_the_end_is_damaged():
    data = sample(shape="rowid")
    connection = apsw.Connection(":memory:")
    connection.execute(SHAPES["rowid"])
    work_of("rowid", 3, 12)(connection)
    before = connection.execute("SELECT * FROM t ORDER BY id").fetchall()
    with pytest.raises(CorruptChangesetError):
        apply(data[:-3], connection, "omit")
    assert connection.execute("SELECT * FROM t ORDER BY id").fetchall() == before


def test_not_a_number_keeps_its_bytes():
    data = b"T\x02\x01\x00t\x00\x12\x00" + bytes([1]) + bytes(8) + b"\x02\x7f\xf8" + bytes(6)
    parsed = parse(data)
    assert parsed.operations[0].new == (0, None)
    assert bytes(parsed) == data
    minus_zero = b"T\x02\x01\x00t\x00\x12\x00" + bytes([1]) + bytes(8) + b"\x02\x80" + bytes(7)
    assert str(parse(minus_zero).operations[0].new[1]) == "-0.0"
    assert bytes(concat(minus_zero)) == minus_zero


def test_empty_is_an_empty_changeset():
    assert bytes(parse(b"")) == b""
    assert bytes(concat()) == bytes(concat(b"", b"")) == bytes(invert(b"")) == b""
    assert len(parse(b"")) == 0
