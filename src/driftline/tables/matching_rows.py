"""Which rows of one key meet (tables §5.3): the same rule for single rows and for rows of hashes."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Protocol, TypeVar


class MatchedRow(Protocol):
    """A row with its number in the file and the forms of its compared cells."""

    @property
    def number(self) -> int:
        """Where it stands."""

    @property
    def forms(self) -> tuple[Hashable, ...]:
        """Equal for rows that are equal without tolerance."""


Row = TypeVar("Row", bound=MatchedRow)


def match_alike(
    a: Sequence[Row], b: Sequence[Row], equal: Callable[[Row, Row], bool]
) -> Iterator[tuple[Row | None, Row | None]]:
    """Pairs and surplus rows of one key: pairs and rows of A by A's number, then what is left of B.

    Rows whose forms are equal meet first, in file order; then each row of A that is left takes the first row of B that
    is equal under tolerance; then what is left meets in file order.
    """
    if len(a) <= 1 and len(b) <= 1:
        yield (a[0] if a else None), (b[0] if b else None)
        return
    partners = _partners(a, b, equal)
    for at, row in enumerate(a):
        yield row, b[partners[at]] if at in partners else None
    taken = set(partners.values())
    for at, row in enumerate(b):
        if at not in taken:
            yield None, row


def _partners(a: Sequence[Row], b: Sequence[Row], equal: Callable[[Row, Row], bool]) -> dict[int, int]:
    by_forms: defaultdict[Hashable, deque[int]] = defaultdict(deque)
    for at, row in enumerate(b):
        by_forms[row.forms].append(at)
    partners = {at: by_forms[row.forms].popleft() for at, row in enumerate(a) if by_forms[row.forms]}
    left_b = [at for at in range(len(b)) if at not in set(partners.values())]
    for at, row in enumerate(a):
        if at not in partners:
            near = next((other for other in left_b if equal(row, b[other])), None)
            if near is not None:
                partners[at] = near
                left_b.remove(near)
    left_a = [at for at in range(len(a)) if at not in partners]
    partners.update(zip(left_a, left_b, strict=False))
    return partners
