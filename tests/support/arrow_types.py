"""Every type of Arrow columns, with four values of each."""

from __future__ import annotations

import datetime
import decimal

import pyarrow as pa

DECIMAL = decimal.Decimal("1.10")
DAY, NOON = datetime.date(2024, 5, 1), datetime.datetime(2024, 5, 1, 12)
TYPES: dict[pa.DataType, list] = {
    **{kind: [0, 1, 100, None] for kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32())},
    pa.int64(): [0, 2**53 + 1, -(2**63), None],
    pa.uint64(): [0, 2**53 + 1, 2**64 - 1, None],
    pa.float32(): [0.1, 1.5, float("inf"), None],
    pa.float64(): [0.1, 1.5, 1e300, None],
    pa.decimal128(38, 2): [DECIMAL, -DECIMAL, decimal.Decimal(0), None],
    pa.decimal256(60, 4): [DECIMAL, -DECIMAL, decimal.Decimal(0), None],
    pa.bool_(): [True, False, True, None],
    pa.string(): ["", "a", 'é"\\\n', None],
    pa.large_string(): ["", "a", "null", None],
    pa.string_view(): ["", "a", "a text that is longer than twelve bytes", None],
    pa.binary(): [b"", b"a", b"\xff", None],
    pa.large_binary(): [b"", b"a", b"\xff", None],
    pa.binary_view(): [b"", b"a", b"\xff", None],
    pa.binary(2): [b"ab", b"cd", b"\xff\xff", None],
    pa.date32(): [DAY, datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None],
    **{pa.timestamp(unit): [NOON, NOON, datetime.datetime(1970, 1, 1), None] for unit in ("s", "ms", "us", "ns")},
    **{pa.timestamp("us", zone): [NOON, NOON, NOON, None] for zone in ("UTC", "Europe/Oslo", "+02:00")},
    pa.time32("ms"): [datetime.time(1, 2, 3), datetime.time(), datetime.time(23, 59), None],
    pa.time64("us"): [datetime.time(1, 2, 3, 4), datetime.time(), datetime.time(23, 59), None],
    pa.duration("us"): [datetime.timedelta(1), datetime.timedelta(seconds=-1), datetime.timedelta(), None],
    pa.dictionary(pa.int8(), pa.string()): ["a", "b", "a", None],
    pa.list_(pa.int16()): [[], [1, None], [2], None],
    pa.list_(pa.decimal128(10, 2)): [[], [DECIMAL, None], [DECIMAL], None],
    pa.list_(pa.binary()): [[], [b"a", None], [b"\xff"], None],
    pa.list_(pa.float64(), 2): [[1.0, 2.0], [float("inf"), None], [0.0, 0.1], None],
    pa.struct([("a", pa.int8()), ("b", pa.list_(pa.string()))]): [{"a": 1, "b": ["x"]}, {"a": None, "b": None}] * 2,
    pa.map_(pa.string(), pa.int8()): [[("a", 1)], [], [("b", None)], None],
    pa.month_day_nano_interval(): [pa.scalar((1, 2, 3), pa.month_day_nano_interval()).as_py()] * 3 + [None],
    pa.null(): [None] * 4,
}
