"""Kernels over CSV bytes: where quotes are, whether they are sound, where records end.

Splitting a file by quote parity is right as long as quoting is sound: every opening quote begins a field and every
closing one ends it (doubled quotes inside a field close and open again at once). If every split between two parity
boundaries is sound, then by induction over the splits every boundary is a record boundary of the exact reader too.
Where a split is not sound, nothing is concluded and the file is read the exact way.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from driftline.sources.port import Spelling

Positions = npt.NDArray[np.int64]

QUOTE = ord('"')
LINE_FEED = ord("\n")
CARRIAGE_RETURN = ord("\r")

_PIECE = 1 << 20  # masks of this size stay in the cache; larger ones are new pages each time, which the kernel clears


def count_quotes(data: bytes) -> int:
    """How many quote characters there are."""
    return data.count(b'"')


def quote_positions(data: bytes) -> Positions:
    """Where quotes are."""
    # `in` searches at memory speed and saves a pass of NumPy where there is nothing to find.
    return _positions(_as_array(data), QUOTE) if b'"' in data else np.empty(0, np.int64)


def quoting_is_sound(data: bytes, delimiter: str = ",", quotes: Positions | None = None) -> bool:
    """Whether the exact reader provably sees the same fields as quote parity does; `data` begins at a record.

    >>> quoting_is_sound(b'1,"a ""b"" c"\\n'), quoting_is_sound(b'1,5" disk\\n')
    (True, False)
    """
    quotes = quote_positions(data) if quotes is None else quotes
    if len(quotes) == 0 or len(quotes) % 2:
        return len(quotes) == 0
    array = _as_array(data)
    opening, closing = quotes[0::2], quotes[1::2]
    edges = (ord(delimiter), LINE_FEED, CARRIAGE_RETURN, QUOTE)
    before = array[np.maximum(opening - 1, 0)]
    after = array[np.minimum(closing + 1, len(array) - 1)]
    starts_field = _is_one_of(before, edges) | (opening == 0)
    ends_field = _is_one_of(after, edges) | (closing == len(array) - 1)
    return bool(starts_field.all() and ends_field.all())


def spelling_of(data: bytes, delimiter: str) -> Spelling:
    """How whoever wrote soundly quoted data writes cells, told by a part of it that begins at a record.

    >>> spelling_of(b'1,"a",\\n', ",")
    Spelling(quotes_needlessly=True, quotes_empty=False, leaves_empty=True)
    """
    cells, edge = _cells_in_one_pair(data), delimiter.encode()
    return Spelling(
        any(cell and edge not in cell and b"\n" not in cell and b"\r" not in cell for cell in cells),
        b"" in cells,
        any(pair in data for pair in (edge + edge, edge + b"\n", edge + b"\r", b"\n" + edge)),
    )


def _cells_in_one_pair(data: bytes) -> list[bytes]:
    """The quoted cells without a quote in them; a doubled quote closes and opens at once."""
    quotes = quote_positions(data).tolist()
    opening, closing = quotes[0::2], quotes[1::2]
    around = zip([-2, *closing], opening, closing, [*opening[1:], len(data) + 1], strict=False)
    return [data[start + 1 : end] for before, start, end, after in around if before + 1 != start and end + 1 != after]


def record_ends(data: bytes, records: int | None = None) -> Positions:
    """The offset behind each record of soundly quoted data; LF, CRLF and a lone CR end a record.

    Whoever knows the number of `records` saves the search for line ends inside quotes where there are none.

    >>> record_ends(b'a\\n"b\\n"\\r\\nc').tolist()
    [2, 8, 9]
    """
    array = _as_array(data)
    ends = _positions(array, LINE_FEED)
    if b"\r" in data:
        returns = _positions(array, CARRIAGE_RETURN)
        followers = array[np.minimum(returns + 1, len(array) - 1)]
        ends = np.sort(np.concatenate([ends, returns[followers != LINE_FEED]]))
    has_rest = len(array) > 0 and array[-1] not in (LINE_FEED, CARRIAGE_RETURN)
    if len(ends) + has_rest != records and b'"' in data:
        ends = ends[~_inside_quotes(ends, _positions(array, QUOTE))]
    ends = ends + 1
    if len(array) and (not len(ends) or ends[-1] != len(array)):
        ends = np.append(ends, len(array))
    return ends


def _inside_quotes(ends: Positions, quotes: Positions) -> npt.NDArray[np.bool_]:
    """Which line ends lie between an opening and a closing quote; few do, so every pair of quotes looks for them."""
    before = np.searchsorted(ends, quotes)
    if len(quotes) % 2 == 0 and (before[0::2] == before[1::2]).all():
        return np.zeros(len(ends), np.bool_)
    inside: npt.NDArray[np.bool_] = np.searchsorted(quotes, ends) % 2 == 1
    return inside


def _positions(array: npt.NDArray[np.uint8], byte: int) -> Positions:
    """Where a byte is."""
    found = [np.flatnonzero(array[start : start + _PIECE] == byte) + start for start in range(0, len(array), _PIECE)]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def blank_records(data: bytes) -> npt.NDArray[np.bool_]:
    """Which records have no byte but their line end."""
    array = _as_array(data)
    ends = record_ends(data)
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    return _is_one_of(array[starts], (LINE_FEED, CARRIAGE_RETURN))


def _as_array(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def _is_one_of(array: npt.NDArray[np.uint8], values: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(array), dtype=np.bool_)
    for value in values:
        found |= array == value
    return found
