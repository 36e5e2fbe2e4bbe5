"""Regular expressions and JSONPath queries from callers, none of which may hang the process (payloads §7).

Patterns have the semantics of `re`, which cannot be interrupted, so it only gets patterns that are linear by their
shape; all others run in `regex`, which has a timeout. Queries (RFC 9535) check the deadline at each step. `find` gives
each location once, however many ways lead to it, so that `$..*..*` costs a pass for each step instead of multiplying;
filters get nodelists as in the RFC, duplicates included.

>>> SafePattern("^ORD-[A-Z]{2}").match("ORD-AB-1")
True
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

import regex
from jsonpath import JSONPathEnvironment, filter as filters
from jsonpath.exceptions import JSONPathError
from jsonpath.function_extensions import ExpressionType, FilterFunction
from jsonpath.match import JSONPathMatch
from jsonpath.segments import JSONPathChildSegment, JSONPathRecursiveDescentSegment
from jsonpath.selectors import Filter

from driftline.payloads._values.limits import current

try:  # private, but the only parse tree there is; without it no pattern counts as linear
    from re import _compiler, _constants as _op, _parser  # type: ignore[attr-defined]
except ImportError:  # pragma: no cover
    _parser = None

MATCH_SECONDS = 0.25
MAX_PATTERN_LENGTH = 10_000
# Linear still means length times the fixed part behind a repeat; beyond these sizes matches have a timeout after all.
QUICK_TEXT_LENGTH = 1 << 16
_MAX_WIDTH = 1000
_MAX_CHARACTERS = 300

# A part of a parsed expression: what the standard library calls an op and its value, which it does not type.
Part = tuple[Any, Any]


class PatternError(ValueError):
    """The text is not a usable regular expression."""


class PatternTimeoutError(Exception):
    """A match took too long."""


class SafePattern:
    """A compiled pattern whose `match` and `search` have a time limit."""

    __slots__ = ("_plain", "_watched", "engine", "search_engine", "text")

    def __init__(self, text: str, *, ignore_case: bool = False) -> None:
        self.text = text
        self._plain, self._watched = _compiled(text, ignore_case)
        self.engine = "re" if is_linear(text, ignore_case=ignore_case) else "regex"
        self.search_engine = "re" if is_linear(text, ignore_case=ignore_case, search=True) else "regex"

    def match(self, value: str) -> bool:
        """Whether the pattern matches at the start of the value (`re.match`)."""
        if self.engine == "re" and len(value) <= QUICK_TEXT_LENGTH:
            return self._plain.match(value) is not None
        return self._in_time(self._watched.match, value)

    def search(self, value: str) -> bool:
        """Whether the pattern matches anywhere in the value."""
        if self.search_engine == "re" and len(value) <= QUICK_TEXT_LENGTH:
            return self._plain.search(value) is not None
        return self._in_time(self._watched.search, value)

    def _in_time(self, run: Callable[..., Any], value: str) -> bool:
        deadline = current()
        # One slow value is enough: the pattern is not tried again in this comparison.
        if self.text in deadline.given_up:
            raise PatternTimeoutError
        try:
            return run(value, timeout=min(MATCH_SECONDS, deadline.left())) is not None
        except TimeoutError:
            deadline.given_up[self.text] = None
            deadline.check()
            raise PatternTimeoutError from None


@lru_cache(maxsize=1024)
def _compiled(text: str, ignore_case: bool) -> tuple[Any, Any]:
    if len(text) > MAX_PATTERN_LENGTH:
        raise PatternError(f"longer than {MAX_PATTERN_LENGTH} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = re.compile(text, re.IGNORECASE if ignore_case else 0)
            return plain, regex.compile(text, regex.IGNORECASE if ignore_case else 0)
    except (re.error, regex.error, RecursionError, OverflowError, ValueError, MemoryError) as error:
        raise PatternError(str(error).split("\n")[0]) from None


@lru_cache(maxsize=1024)
def is_linear(text: str, *, ignore_case: bool = False, search: bool = False) -> bool:
    r"""Whether `re` takes linear time by the pattern's shape alone.

    Allowed are characters, classes, anchors, plain groups and repeats of one character. A repeat of varying length
    must be disjoint from what follows, or be the last one: then there is one way to match, or one place to back up.

    >>> is_linear(r"^ORD-\d{6}$"), is_linear("(a+)+$"), is_linear("a?a?aa"), is_linear("a+b", search=True)
    (True, False, False, False)
    """
    if _parser is None:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = _parser.parse(text, re.IGNORECASE if ignore_case else 0)
    except (re.error, RecursionError, OverflowError, ValueError):
        return False
    if tree.state.flags & ~(re.UNICODE | re.IGNORECASE):
        return False
    parts = _flat(tree)
    if parts is None or sum(int(value[0]) if op in _REPEATS else 1 for op, value in parts) > _MAX_WIDTH:
        return False
    varying = [number for number, (op, value) in enumerate(parts) if op in _REPEATS and value[0] != value[1]]
    is_anchored = bool(parts) and parts[0] in ((_op.AT, _op.AT_BEGINNING), (_op.AT, _op.AT_BEGINNING_STRING))
    if search and varying and not is_anchored:
        return False
    folds = bool(tree.state.flags & re.IGNORECASE)
    return all(_is_disjoint(parts, number, folds) for number in varying[:-1])


def _flat(tree: Any) -> list[Part] | None:
    """One-character nodes, anchors and repeats of one character in a row; None where there is anything else."""
    found: list[Part] = []
    for op, value in tree:
        if op in _ONE or op is _op.AT or (op in _REPEATS and len(value[2]) == 1 and value[2][0][0] in _ONE):
            found.append((op, value))
        elif op is _op.SUBPATTERN and not value[1] and not value[2]:
            inner = _flat(value[3])
            if inner is None:
                return None
            found += inner
        else:
            return None
    return found


def _is_disjoint(parts: list[Part], number: int, folds: bool) -> bool:
    """Whether a repeat must stop where the next part begins."""
    following = None if folds or number + 1 == len(parts) else _characters(*parts[number + 1])
    repeated = _compiler.compile(parts[number][1][2])
    return following is not None and not any(repeated.match(chr(code)) for code in following)


def _characters(op: Any, value: Any) -> list[int] | None:
    """The characters that a part takes, where they are few; a repeat counts where it cannot be left out."""
    if op in _REPEATS and value[0] > 0:
        op, value = value[2][0]
    if op is _op.LITERAL:
        return [value]
    if op is not _op.IN:
        return None
    found: list[int] = []
    for kind, given in value:
        if kind is _op.LITERAL:
            found.append(given)
        elif kind is _op.RANGE and given[1] - given[0] < _MAX_CHARACTERS:
            found.extend(range(given[0], given[1] + 1))
        else:
            return None
    return found


if _parser is not None:
    _REPEATS = (_op.MAX_REPEAT, _op.MIN_REPEAT)
    _ONE = (_op.LITERAL, _op.NOT_LITERAL, _op.ANY, _op.IN)


# JSONPath queries.
class _SafeSearch(FilterFunction):
    """`match` and `search` with a pattern that cannot hang."""

    arg_types = [ExpressionType.VALUE, ExpressionType.VALUE]  # noqa: RUF012 - the library's own shape
    return_type = ExpressionType.LOGICAL

    def __init__(self, *, whole: bool) -> None:
        self.whole = whole

    def __call__(self, value: object, pattern: object) -> bool:
        if not isinstance(value, str) or not isinstance(pattern, str):
            return False
        try:
            return _known(f"(?:{pattern})\\Z").match(value) if self.whole else _known(pattern).search(value)
        except (PatternError, PatternTimeoutError):
            return False


class _Environment(JSONPathEnvironment):
    """Orders as the RFC says: a boolean is neither less nor greater than anything."""

    def compare(self, left: object, operator: str, right: object) -> bool:
        if operator in ("<", ">", "<=", ">=") and (isinstance(left, bool) or isinstance(right, bool)):
            return operator.endswith("=") and super().compare(left, "==", right)
        return super().compare(left, operator, right)


_known = lru_cache(maxsize=512)(SafePattern)
ENVIRONMENT = _Environment(strict=True)
ENVIRONMENT.function_extensions["match"] = _SafeSearch(whole=True)
ENVIRONMENT.function_extensions["search"] = _SafeSearch(whole=False)


class BadPathError(ValueError):
    """The text is not a JSONPath."""


def parse_path(text: str) -> Any:
    """A compiled query; raises `BadPathError`."""
    if not text.lstrip().startswith("$"):
        raise BadPathError("a path begins with $, such as $.items or $..id")
    try:
        query = ENVIRONMENT.compile(text)
    except (JSONPathError, RecursionError, ValueError) as error:
        raise BadPathError(str(error).splitlines()[0] if str(error) else "not a JSONPath") from None
    if not hasattr(query, "segments"):
        raise BadPathError("not a single JSONPath")
    watch(query)
    return query


def watch(query: Any) -> None:
    """Let all segments of a query, also those inside its filters, check the deadline."""
    kinds = [_Descent if isinstance(each, JSONPathRecursiveDescentSegment) else _Child for each in query.segments]
    query.segments = tuple(
        kind(env=segment.env, token=segment.token, selectors=segment.selectors)
        for kind, segment in zip(kinds, query.segments, strict=True)
    )
    for segment in query.segments:
        for selector in segment.selectors:
            if isinstance(selector, Filter):
                watch_expression(selector.expression)


def watch_expression(expression: Any) -> None:
    """The same for a filter expression."""
    if isinstance(expression, filters.FilterQuery):
        watch(expression.path)
    for child in expression.children():
        watch_expression(child)


class _Child(JSONPathChildSegment):
    def resolve(self, nodes: Iterable[Any]) -> Iterator[Any]:
        return _selected(self, nodes)


class _Descent(JSONPathRecursiveDescentSegment):
    def resolve(self, nodes: Iterable[Any]) -> Iterator[Any]:
        return _selected(self, nodes)


def _descendants(node: Any, seen: set[Any] | None) -> Iterator[Any]:
    """A node and the containers below it, in document order, without recursion; locations in `seen` are left out."""
    deadline = current()
    waiting = [node]
    while waiting:
        deadline.check()
        node = waiting.pop()
        if seen is not None:
            if node.parts in seen:
                continue
            seen.add(node.parts)
        yield node
        value = node.obj
        children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        below = [node.new_child(child, key) for key, child in children if isinstance(child, dict | list)]
        waiting.extend(reversed(below))


def find(query: Any, payload: Any) -> Iterator[Any]:
    """The matches of a query, each location once."""
    # Not the library's own entry point, which would parse a payload that is a string.
    root = JSONPathMatch(filter_context={}, obj=payload, parent=None, path="$", parts=(), root=payload)
    nodes: Iterable[Any] = [root]
    for segment in query.segments:
        nodes = _selected(segment, nodes, visited=set(), found=set())
    yield from nodes


def _selected(
    segment: Any, nodes: Iterable[Any], visited: set[Any] | None = None, found: set[Any] | None = None
) -> Iterator[Any]:
    """What a segment selects; with sets of locations to keep, each location once."""
    is_descent = isinstance(segment, _Descent)
    deadline = current()
    for node in nodes:
        deadline.check()
        for inner in _descendants(node, visited) if is_descent else (node,):
            for selector in segment.selectors:
                for match in selector.resolve(inner):
                    if found is None or match.parts not in found:
                        if found is not None:
                            found.add(match.parts)
                        yield match
