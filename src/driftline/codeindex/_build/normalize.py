"""Source text without layout: what must be equal for two pieces of code to be the same (index diffs §6.3).

Comments and white space go, strings stay to the byte, a last comma before a bracket goes. Where line breaks and
indentation carry meaning, statements and blocks leave marks. Everything is done for a whole file at once, in arrays:
a loop over tokens would take longer than parsing.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from codecs import BOM_UTF8
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Span = tuple[int, int]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

_SPACE, _WORD, _SIGN = 0, 1, 2
_CLASS = np.full(256, _SIGN, np.uint8)
_CLASS[0x80:] = _WORD
for _byte in b"_" + bytes(range(48, 58)) + bytes(range(65, 91)) + bytes(range(97, 123)):
    _CLASS[_byte] = _WORD
for _byte in b" \t\r\n\v\f\x00\x01\x02\x03\x04":
    _CLASS[_byte] = _SPACE
# As tables of `bytes.translate`, which is several times quicker than indexing an array by bytes.
_CLASSES, _SOLID = _CLASS.tobytes(), (_CLASS != _SPACE).tobytes()

_OPENING, _CLOSING = np.zeros(256, np.bool_), np.zeros(256, np.bool_)
_OPENING[list(b"([{,")] = True
_CLOSING[list(b")]}")] = True

# Marks in the normal text.
STATEMENT, BLOCK, END, NODE = 1, 2, 3, 4
MARKS = bytes((STATEMENT, BLOCK, END, NODE))
_EDGES = bytes((STATEMENT, BLOCK, END)) + b" "

_SIMPLE_STRING = re.compile(rb"([a-zA-Z]{0,2})(\"\"\"|'''|\"|')([^\\\"']*)\2")
_STRING = re.compile(rb"([a-zA-Z]{0,2})([\"'])(?!\2.)(.*)\2", re.DOTALL)
_OCTAL_END = re.compile(rb"\\[0-7]{1,2}$")
_DOUBLE_QUOTE = 34
_NOTHING = np.empty(0, np.uint32)
_FEWEST_TOKENS = 6  # below, there are too few shingles to tell anything

# Weights of bytes in a token and of tokens in a shingle: odd, fixed for ever, for sketches are stored.
_MAX_WEIGHT = 4096
with np.errstate(over="ignore"):
    _WEIGHTS = np.cumprod(np.full(_MAX_WEIGHT, 0x9E3779B97F4A7C15, np.uint64))
_FIRST, _SECOND, _THIRD = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_SHIFT = np.uint64(32)


@dataclass(slots=True)
class Layout:
    """Where in a file the things are that decide about layout."""

    comments: Sequence[Span] = ()
    strings: Sequence[Span] = ()
    statements: Iterable[int] = ()
    blocks: Sequence[Span] = ()
    nodes: Iterable[int] = ()
    kept_commas: Iterable[int] = ()
    joined: Sequence[Span] = ()
    dropped: Sequence[int] = ()
    equal_quotes: bool = False


@dataclass(slots=True)
class NormalText:
    """The normal text of a file; positions are those of the source."""

    text: bytes
    # Read one by one, which views of memory do faster than arrays.
    position: memoryview
    tokens: memoryview
    shingles: npt.NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))

    @classmethod
    def of(cls, source: bytes, layout: Layout) -> NormalText:
        """Bring a file into its normal form."""
        data = np.frombuffer(source, np.uint8).copy()
        in_string = np.zeros(len(source), np.bool_)
        for start, end in layout.strings:
            in_string[start:end] = True
        keep = in_string | np.frombuffer(source.translate(_SOLID), np.bool_)
        for start, end in layout.comments:
            keep[start:end] = False
        keep[np.asarray(layout.dropped, np.int64)] = False
        if source.startswith(BOM_UTF8):
            keep[: len(BOM_UTF8)] = False
        if layout.equal_quotes:
            _equalize_quotes(source, data, keep, layout)
        _drop_last_commas(data, keep, in_string, layout.kept_commas)
        return _assembled(data, keep, in_string, layout)

    def measured(self, start: int, end: int) -> tuple[bytes, int]:
        """The normal text of a range of the source, and its number of tokens.

        Marks at its edges go: they belong to what is around the range as much as to what is in it.
        """
        first, last = self.position[start], self.position[end]
        return self.text[first:last].strip(_EDGES), self.tokens[last] - self.tokens[first]

    def count(self, start: int, end: int) -> int:
        found: int = self.tokens[self.position[end]] - self.tokens[self.position[start]]
        return found

    def shingles_between(self, start: int, end: int) -> npt.NDArray[np.uint32]:
        """The hashes of three tokens in a row in a range, sorted and each once."""
        first, last = self.tokens[self.position[start]], self.tokens[self.position[end]]
        if last - first < _FEWEST_TOKENS:
            return _NOTHING
        values = self.shingles[first : last - 2].copy()
        values.sort()
        fresh = np.empty(len(values), np.bool_)
        fresh[0] = True
        np.not_equal(values[1:], values[:-1], out=fresh[1:])
        found: npt.NDArray[np.uint32] = values[fresh]
        return found


def _equalize_quotes(source: bytes, data: Bytes, keep: Flags, layout: Layout) -> None:
    """The kind of quotes is layout where the content has no quote and no backslash; so are joined literals."""
    edges: list[int] = []
    for start, end in layout.strings:
        if source[start] == _DOUBLE_QUOTE and source[start + 1 : start + 2] != b'"':
            continue
        found = _SIMPLE_STRING.fullmatch(source, start, end)
        if found is None:
            continue
        opening, quotes = found.span(2)
        edges += (opening, end - 1)
        if opening > start:
            data[start:opening] = np.frombuffer(found[1].lower(), np.uint8)
            keep[start:opening] &= data[start:opening] != ord("u")
        if quotes - opening > 1:
            keep[opening + 1 : quotes] = False
            keep[end - quotes + opening : end - 1] = False
    data[edges] = _DOUBLE_QUOTE
    for start, end in layout.joined:
        first, last = (bisect_left(layout.strings, (edge, 0)) for edge in (start, end))
        _join(source, data, keep, layout.strings[first:last])


def _join(source: bytes, data: Bytes, keep: Flags, strings: Sequence[Span]) -> None:
    """Make one literal of those that stand side by side, where their texts joined mean the same."""
    outer: list[Span] = []
    for span in strings:
        if not outer or span[0] >= outer[-1][1]:  # not a string inside of an f-string
            outer.append(span)
    simple = [_SIMPLE_STRING.fullmatch(source, *span) for span in outer]
    found = [match for one, span in zip(simple, outer, strict=True) if (match := one or _STRING.fullmatch(source, *span))]
    quotes = {match[2] for match in found if match not in simple}
    prefixes = {match[1].lower().replace(b"u", b"") for match in found}
    braced = any(match[1].lower() != b"f" and (b"{" in match[3] or b"}" in match[3]) for match in found)
    mixed = prefixes == {b"", b"f"} and not braced
    apart = any(_OCTAL_END.search(left[3]) and right[3][:1].isdigit() for left, right in pairwise(found))
    if len(found) != len(outer) or len(quotes) > 1 or apart or not (len(prefixes) == 1 or mixed):
        return
    for left, right in pairwise(found):
        keep[left.end(3) : left.end()] = False
        keep[right.start() : right.start(3)] = False
    quote = ord(next(iter(quotes), b'"'))
    data[[found[0].start(2), found[-1].end() - 1]] = quote
    if mixed and not found[0][1]:
        # The prefix goes to the front: the closing quote that went leaves space for it.
        written = b"f" + bytes((quote,)) + found[0][3]
        start, end = found[0].start(), found[0].start() + len(written)
        data[start:end] = np.frombuffer(written, np.uint8)
        keep[start : found[0].end()] = False
        keep[start:end] = True


def _drop_last_commas(data: Bytes, keep: Flags, in_string: Flags, means_something: Iterable[int]) -> None:
    """A comma before a closing bracket is layout, unless nothing stands before it or the language needs it."""
    commas = ((data == ord(",")) & keep & ~in_string).nonzero()[0]
    if not len(commas):
        return
    begins, ends = _runs(keep)
    commas = commas[(commas > begins[0]) & (commas < ends[-1])]
    # What is kept before and behind: a neighbour, or the edge of the next run.
    before = np.where(keep[commas - 1], commas - 1, ends[ends.searchsorted(commas) - 1])
    after = np.where(keep[commas + 1], commas + 1, begins[begins.searchsorted(commas, "right") % len(begins)])
    last = _CLOSING[data[after]] & ~_OPENING[data[before]] & ~in_string[after]
    needed = [place for place in means_something if keep[place]]
    keep[commas[last]] = False
    keep[needed] = True


def _runs(keep: Flags) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The first and last bytes of what is kept in one piece."""
    begins, ends = (keep[1:] > keep[:-1]).nonzero()[0] + 1, (keep[1:] < keep[:-1]).nonzero()[0]
    begins = np.concatenate(([0], begins)) if keep[:1].all() else begins
    return begins, np.concatenate((ends, [len(keep) - 1])) if keep[-1:].all() else ends


def _assembled(data: Bytes, keep: Flags, in_string: Flags, layout: Layout) -> NormalText:
    keys, marks = _marks(_grown_together(data, keep, in_string), layout)
    count = np.zeros(len(data) + 1, np.int32)
    keep.cumsum(dtype=np.int32, out=count[1:])
    # A mark at the key 2p stands before the byte p, one at 2p - 1 behind the byte p - 1.
    marked = count[(keys + 1) // 2] + np.arange(len(marks))
    plain = np.ones(count[-1] + len(marks), np.bool_)
    plain[marked] = False
    out, inside = np.empty(len(plain), np.uint8), np.zeros(len(plain), np.bool_)
    out[marked] = marks
    out[plain], inside[plain] = data[keep], in_string[keep]
    steps = np.bincount(keys // 2 + 1, minlength=len(data) + 1)
    count += steps[: len(data) + 1].cumsum(dtype=np.int32)
    text = out.tobytes()
    starts = _token_starts(text, inside)
    tokens = np.zeros(len(out) + 1, np.int32)
    starts.cumsum(dtype=np.int32, out=tokens[1:])
    return NormalText(text, count.data, tokens.data, _shingles(out, starts.nonzero()[0], tokens))


def _grown_together(data: Bytes, keep: Flags, in_string: Flags) -> npt.NDArray[np.int64]:
    """Where a word begins that would grow together with the one before it, because what was between them went."""
    begins, ends = _runs(keep)
    begins, left = begins[1:], ends[:-1]
    words = (_CLASS[data[left]] == _WORD) & (_CLASS[data[begins]] == _WORD)
    found: npt.NDArray[np.int64] = begins[words & ~(in_string[left] & in_string[begins])]
    return found


def _marks(words: npt.NDArray[np.int64], layout: Layout) -> tuple[npt.NDArray[np.int64], Bytes]:
    """Keys and bytes of all marks, in order: a blank between words that would grow together comes first."""
    blocks = np.array(layout.blocks, np.int64).reshape(-1, 2)
    groups = (
        (2 * words, ord(" ")),
        (2 * blocks[:, 1] - 1, END),
        (2 * blocks[:, 0], BLOCK),
        (2 * np.fromiter(layout.statements, np.int64), STATEMENT),
        (2 * np.fromiter(layout.nodes, np.int64), NODE),
    )
    keys = np.concatenate([keys for keys, _ in groups])
    marks = np.array([mark for _, mark in groups], np.uint8).repeat([len(keys) for keys, _ in groups])
    order = keys.argsort(kind="stable")
    return keys[order], marks[order]


def _token_starts(text: bytes, in_string: Flags) -> Flags:
    kinds = np.frombuffer(text.translate(_CLASSES), np.uint8)
    starts: Flags = kinds != _SPACE
    word = kinds == _WORD
    starts[1:] &= ~(word[1:] & word[:-1])
    starts[1:] &= ~(in_string[1:] & in_string[:-1])
    return starts


def _shingles(out: Bytes, starts: npt.NDArray[np.int64], tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.uint32]:
    if len(starts) < 3:
        return np.empty(0, np.uint32)
    text, firsts = out[starts[0] :], starts - starts[0]
    offsets = np.arange(len(text)) - firsts.take(tokens[starts[0] + 1 :] - 1)
    hashes = _WEIGHTS.take(offsets, mode="clip")
    with np.errstate(over="ignore"):
        hashes *= text * (text > ord(" "))
        hashes = np.add.reduceat(hashes, firsts) * _MIX
        mixed = hashes[:-2] * _FIRST ^ hashes[1:-1] * _SECOND ^ hashes[2:] * _THIRD
        found: npt.NDArray[np.uint32] = ((mixed * _MIX) >> _SHIFT).astype(np.uint32)
    return found
