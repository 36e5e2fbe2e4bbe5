"""JSONPath queries (RFC 9535) that end: their segments look at the clock, and their patterns are safe ones.

`find` gives each place once, however many ways lead to it: `$..*..*` then costs a pass for each step instead of
multiplying. Filters see nodelists as the RFC has them, duplicates included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from jsonpath import JSONPathEnvironment
from jsonpath import filter as filters
from jsonpath.exceptions import JSONPathError
from jsonpath.function_extensions import ExpressionType, FilterFunction
from jsonpath.match import JSONPathMatch
from jsonpath.segments import JSONPathChildSegment, JSONPathRecursiveDescentSegment
from jsonpath.selectors import Filter

from driftline.payloads.deadline import current
from driftline.payloads.patterns import PatternError, PatternTimeoutError, SafePattern


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
            return _whole(pattern).match(value) if self.whole else _anywhere(pattern).search(value)
        except (PatternError, PatternTimeoutError):
            return False


@lru_cache(maxsize=256)
def _whole(pattern: str) -> SafePattern:
    return SafePattern(f"(?:{pattern})\\Z")


@lru_cache(maxsize=256)
def _anywhere(pattern: str) -> SafePattern:
    return SafePattern(pattern)


ENVIRONMENT = JSONPathEnvironment(strict=True)
ENVIRONMENT.function_extensions["match"] = _SafeSearch(whole=True)
ENVIRONMENT.function_extensions["search"] = _SafeSearch(whole=False)


class BadPathError(ValueError):
    """The text is not a JSONPath."""


def parse_path(text: str) -> Any:
    """A compiled query; raises `BadPathError`."""
    try:
        query = ENVIRONMENT.compile(text)
    except (JSONPathError, RecursionError, ValueError) as error:
        raise BadPathError(str(error).splitlines()[0] if str(error) else "not a JSONPath") from None
    if not hasattr(query, "segments"):
        raise BadPathError("not a single JSONPath")
    watch(query)
    return query


def watch(query: Any) -> None:
    """Let all segments of a query, also those inside its filters, look at the clock."""
    query.segments = tuple(_watched(segment) for segment in query.segments)
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


def _watched(segment: Any) -> Any:
    kind = _Descent if isinstance(segment, JSONPathRecursiveDescentSegment) else _Child
    return kind(env=segment.env, token=segment.token, selectors=segment.selectors)


class _Child(JSONPathChildSegment):
    def resolve(self, nodes: Iterable[Any]) -> Iterator[Any]:
        deadline = current()
        for node in nodes:
            deadline.check()
            for selector in self.selectors:
                yield from selector.resolve(node)


class _Descent(JSONPathRecursiveDescentSegment):
    def resolve(self, nodes: Iterable[Any]) -> Iterator[Any]:
        for node in nodes:
            for inner in _descendants(node, None):
                for selector in self.selectors:
                    yield from selector.resolve(inner)


def _descendants(node: Any, seen: set[Any] | None) -> Iterator[Any]:
    """A node and the containers below it, in document order, without recursion; places in `seen` are left out."""
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
    """The matches of a query, each place once."""
    # Not the library's own way in: it would parse a payload that is a string.
    root = JSONPathMatch(filter_context={}, obj=payload, parent=None, path="$", parts=(), root=payload)
    nodes: Iterable[Any] = [root]
    for segment in query.segments:
        nodes = _distinct(segment, nodes)
    yield from nodes


def _distinct(segment: Any, nodes: Iterable[Any]) -> Iterator[Any]:
    visited: set[Any] = set()
    found: set[Any] = set()
    is_descent = isinstance(segment, _Descent)
    deadline = current()
    for node in nodes:
        deadline.check()
        for inner in _descendants(node, visited) if is_descent else (node,):
            for selector in segment.selectors:
                for match in selector.resolve(inner):
                    if match.parts not in found:
                        found.add(match.parts)
                        yield match
