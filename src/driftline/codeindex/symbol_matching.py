"""Which definition of one side is which of the other: by name in a file, then by content (index diffs §7.2)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from driftline.codeindex.symbols import Symbol, similarity

MIN_TOKENS = 12
SIMILAR = 0.6
SIMILAR_WITH_NAME = 0.4
COMMON = 50
BEST = 20
MAX_LEFT = 50_000

Pair = tuple[Symbol, Symbol]


@dataclass(frozen=True, slots=True)
class Move:
    """A definition found under another name or in another place; a quiet one only went along with its container."""

    before: Symbol
    after: Symbol
    score: float
    quiet: bool = False


@dataclass(slots=True)
class Matching:
    """Everything that was matched, and the rest."""

    pairs: list[Pair] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    removed: list[Symbol] = field(default_factory=list)
    added: list[Symbol] = field(default_factory=list)
    search_skipped: bool = False


def match_in_file(before: Iterable[Symbol], after: Iterable[Symbol], matching: Matching) -> None:
    """Pair definitions of one file by their qualified names."""
    old, new = _by_name(before), _by_name(after)
    for name, candidates in old.items():
        pairs, removed, added = _pair_same_name(candidates, new.pop(name, []))
        matching.pairs += pairs
        matching.removed += removed
        matching.added += added
    for candidates in new.values():
        matching.added += candidates


def _by_name(symbols: Iterable[Symbol]) -> dict[str, list[Symbol]]:
    groups: dict[str, list[Symbol]] = defaultdict(list)
    for symbol in sorted(symbols, key=lambda symbol: symbol.ordinal):
        groups[symbol.name].append(symbol)
    return groups


# Several definitions of one name (overloads): what is most alike first, each in order.
_LIKENESSES: tuple[Callable[[Symbol], Hashable], ...] = (
    lambda symbol: (symbol.kind, symbol.signature_hash, symbol.body_hash),
    lambda symbol: (symbol.kind, symbol.signature_hash),
    lambda symbol: (symbol.kind, symbol.body_hash),
    lambda symbol: symbol.kind,
    lambda symbol: None,
)


def _pair_same_name(before: list[Symbol], after: list[Symbol]) -> tuple[list[Pair], list[Symbol], list[Symbol]]:
    if len(before) == len(after) == 1:
        return [(before[0], after[0])], [], []
    pairs: list[Pair] = []
    for likeness in _LIKENESSES:
        if not before or not after:
            break
        waiting: dict[Hashable, list[Symbol]] = defaultdict(list)
        for symbol in after:
            waiting[likeness(symbol)].append(symbol)
        rest = []
        for symbol in before:
            candidates = waiting[likeness(symbol)]
            if candidates:
                pairs.append((symbol, candidates.pop(0)))
            else:
                rest.append(symbol)
        taken = {id(right) for _, right in pairs}
        before, after = rest, [symbol for symbol in after if id(symbol) not in taken]
    return pairs, before, after


def find_moves(matching: Matching, renamed_files: Mapping[str, str]) -> None:
    """Look for the rest of one side in the rest of the other: classes, their members by name, then all others."""
    if len(matching.removed) > MAX_LEFT or len(matching.added) > MAX_LEFT:
        matching.search_skipped = True
        return
    search = _Search(matching.removed, matching.added, renamed_files)
    search.run(("class",))
    search.take_members_along()
    search.run(("function", "value", "entry"))
    matching.moves = search.moves
    matching.removed = [symbol for symbol in matching.removed if id(symbol) not in search.taken]
    matching.added = [symbol for symbol in matching.added if id(symbol) not in search.taken]


class _Search:
    def __init__(self, removed: Sequence[Symbol], added: Sequence[Symbol], renamed_files: Mapping[str, str]) -> None:
        self.removed = sorted(removed, key=lambda symbol: symbol.key)
        self.added = sorted(added, key=lambda symbol: symbol.key)
        self.renamed_files = renamed_files
        self.moves: list[Move] = []
        self.taken: set[int] = set()
        self.moved_to: dict[tuple[str, str], tuple[str, str]] = {}

    def run(self, kinds: Sequence[str]) -> None:
        """One round: all candidates, the best first."""
        old = [symbol for symbol in self.removed if symbol.kind in kinds and id(symbol) not in self.taken]
        new = [symbol for symbol in self.added if symbol.kind in kinds and id(symbol) not in self.taken]
        candidates = [*_exact(old, new), *_similar(old, new)]
        for _, _, _, score, left, right in sorted(map(self._ranked, candidates), key=lambda item: item[:3]):
            if id(left) not in self.taken and id(right) not in self.taken:
                self._take(Move(left, right, score))

    def _ranked(self, candidate: tuple[float, Symbol, Symbol]) -> tuple[float, object, object, float, Symbol, Symbol]:
        score, left, right = candidate
        same_file = left.file == self.renamed_files.get(right.file, right.file)
        extra = 0.1 * (left.leaf == right.leaf) + 0.05 * same_file + 0.05 * (left.parent == right.parent)
        return -(score + extra), left.key, right.key, score, left, right

    def _take(self, move: Move) -> None:
        self.moves.append(move)
        self.taken |= {id(move.before), id(move.after)}
        self.moved_to[move.before.file, move.before.name] = (move.after.file, move.after.name)

    def take_members_along(self) -> None:
        """Members of a moved container, by their names inside of it."""
        waiting: dict[tuple[str, str, str], list[Symbol]] = defaultdict(list)
        for symbol in self.added:
            waiting[symbol.file, symbol.parent, symbol.leaf].append(symbol)
        for symbol in self.removed:
            target = self.moved_to.get((symbol.file, symbol.parent)) if symbol.parent else None
            if target is None or id(symbol) in self.taken:
                continue
            found = next((item for item in waiting[(*target, symbol.leaf)] if id(item) not in self.taken), None)
            if found is not None:
                self._take(Move(symbol, found, 1.0, quiet=True))


def _exact(old: Sequence[Symbol], new: Sequence[Symbol]) -> Iterable[tuple[float, Symbol, Symbol]]:
    """The same signature and body; small ones only where the name is the same too."""
    groups: dict[Hashable, list[Symbol]] = defaultdict(list)
    for symbol in new:
        groups[symbol.kind, symbol.signature_hash, symbol.body_hash].append(symbol)
    for left in old:
        for right in groups.get((left.kind, left.signature_hash, left.body_hash), ())[:COMMON]:
            named = left.leaf == right.leaf and left.own_tokens + left.signature_tokens >= MIN_TOKENS
            if left.own_tokens >= MIN_TOKENS or named:
                yield 1.0, left, right


def _similar(old: Sequence[Symbol], new: Sequence[Symbol]) -> Iterable[tuple[float, Symbol, Symbol]]:
    """Shared values of the sketches; values that many share tell nothing."""
    places: dict[int, list[int]] = defaultdict(list)
    for number, symbol in enumerate(new):
        if symbol.tokens >= MIN_TOKENS:
            for value in symbol.sketch:
                places[value].append(number)
    for left in old:
        if left.tokens < MIN_TOKENS:
            continue
        hits: Counter[int] = Counter()
        for value in left.sketch:
            found = places.get(value, ())
            if len(found) <= COMMON:
                hits.update(found)
        for number, _ in sorted(hits.items(), key=lambda item: (-item[1], item[0]))[:BEST]:
            right = new[number]
            score = similarity(left, right) if left.kind == right.kind else 0.0
            if score >= (SIMILAR_WITH_NAME if left.leaf == right.leaf else SIMILAR):
                yield score, left, right
