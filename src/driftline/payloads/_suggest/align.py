"""Members that have another name in New (payloads §11.1)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from driftline.payloads.datetimes import parse_iso
from driftline.payloads.paths import Place
from driftline.payloads.suggesting.alignment import Alignment
from driftline.payloads.suggesting.evidence import (
    MIN_DIFFERING,
    SHARE,
    Pair,
    Suggestion,
    is_sure,
    likeness,
    number,
    token,
)
from driftline.payloads.values import Json, Value

_ROUNDS = 8
_GONE = 0.02  # a name that is hardly ever on the other side
_RIVAL = 0.02
_LIKE = 0.6
_CHANCE, _CHANCE_LIKE = 1e-12, 1e-6

Bags = dict[int, list[Json]]  # pair -> the values of a member in it


class _Candidate(NamedTuple):
    old: str
    new: str
    score: float
    agreeing: int
    together: int
    can_be_sure: bool
    is_constant: bool
    why: str
    examples: list[Pair]
    against: list[Pair]


def find_renames(pairs: list[Pair], known: Alignment) -> Iterator[Suggestion]:
    """Renames, top down and again, because a renamed object shows what is renamed inside it."""
    told: set[tuple[Place, str]] = set()
    for _ in range(_ROUNDS):
        grew = False
        for place, members in _members(pairs, known).items():
            for candidate, rivals in _chosen(members):
                if (place, candidate.old) in told:
                    continue
                told.add((place, candidate.old))
                if not candidate.is_constant:
                    known.rename(place, candidate.old, candidate.new)
                    grew = True
                yield _suggestion(place, candidate, rivals)
        if not grew:
            return


def _suggestion(place: Place, found: _Candidate, rivals: list[str]) -> Suggestion:
    if found.is_constant:
        level, rule = "finding", {}
    else:
        sure = found.can_be_sure and not rivals and is_sure(found.agreeing, found.together, found.together)
        level, rule = "sure" if sure else "review", {"alias": found.old}
    where = (*place, found.new)
    counts = (found.agreeing, found.together, found.together)
    return Suggestion(where, rule, level, *counts, found.why, found.examples, found.against, rivals)


def _members(pairs: list[Pair], known: Alignment) -> dict[Place, dict[str, tuple[Bags, Bags]]]:
    seen: dict[Place, dict[str, tuple[Bags, Bags]]] = defaultdict(lambda: defaultdict(lambda: ({}, {})))
    for number_of_pair, (old, new) in enumerate(pairs):
        for place, lefts, rights in known.objects(old, new):
            for side, members in enumerate((lefts, rights)):
                for name, values in members.items():
                    seen[place][name][side][number_of_pair] = values
    return dict(sorted(seen.items(), key=lambda entry: (len(entry[0]), str(entry[0]))))


def _chosen(members: dict[str, tuple[Bags, Bags]]) -> Iterator[tuple[_Candidate, list[str]]]:
    lost = [name for name, (olds, news) in members.items() if olds and len(news) <= _GONE * len(olds)]
    gained = [name for name, (olds, news) in members.items() if news and len(olds) <= _GONE * len(news)]
    found = [
        candidate
        for old in lost
        for new in gained
        if (candidate := _candidate(old, new, members[old][0], members[new][1])) is not None
    ]
    found.sort(key=lambda candidate: (-candidate.score, candidate.old, candidate.new))
    used: set[str] = set()
    for candidate in found:
        if candidate.old in used or candidate.new in used:
            continue
        used |= {candidate.old, candidate.new}
        rivals = [
            f"{other.old} -> {other.new}"
            for other in found
            if other is not candidate
            and (other.old == candidate.old or other.new == candidate.new)
            and other.score > candidate.score - _RIVAL
        ]
        yield candidate, rivals


def _candidate(old: str, new: str, olds: Bags, news: Bags) -> _Candidate | None:
    together = sorted(olds.keys() & news.keys())
    if len(together) < MIN_DIFFERING or len(together) < SHARE * len(olds.keys() | news.keys()):
        return None
    like = likeness(old, new)
    forms: list[tuple[str, Callable[[Any], Any], float]] = [("equal values", token, 0.0)]
    if like >= 0.5:
        forms.append(("values equal but for spelling", _folded, 0.1))
    for why, form, malus in forms:
        agreeing = [one for one in together if _bag(olds[one], form) == _bag(news[one], form)]
        if len(agreeing) < SHARE * len(together):
            continue
        counts = Counter(_bag(olds[one], form) for one in agreeing)
        chance = sum((count / len(agreeing)) ** 2 for count in counts.values()) ** len(agreeing)
        strong = len(counts) >= 2 and chance < (_CHANCE_LIKE if like >= _LIKE else _CHANCE)
        if not strong and like < _LIKE:
            continue
        found = _evidence(together, agreeing, olds, news)
        words = f"{why}, {len(counts)} distinct"
        score = 1 - malus + 0.05 * like
        return _Candidate(old, new, score, len(agreeing), len(together), strong, len(counts) < 2, words, *found)
    return _by_name(old, new, olds, news, together, like)


def _by_name(old: str, new: str, olds: Bags, news: Bags, together: list[int], like: float) -> _Candidate | None:
    """Like names whose values change too: by a map, a scale, or inside."""
    if like < 0.5:
        return None
    single = [one for one in together if len(olds[one]) == len(news[one]) == 1]
    objects = [
        (one, left.keys() & right.keys())
        for one in single
        if isinstance(left := olds[one][0], dict) and isinstance(right := news[one][0], dict)
    ]
    if objects and len(objects) == len(single) and like >= 0.75:
        sharing = [one for one, names in objects if names]
        found = _evidence(together, sharing, olds, news)
        why = "like names, and objects of like members"
        return _Candidate(old, new, 0.7 + 0.05 * like, len(sharing), len(together), True, False, why, *found)
    if like == 1.0 or _is_map(olds, news, together):
        found = _evidence(together, together, olds, news)
        why = "like names, always present together; the values change"
        sure = like == 1.0
        return _Candidate(old, new, 0.6 + 0.05 * like, len(together), len(together), sure, False, why, *found)
    return None


def _is_map(olds: Bags, news: Bags, together: list[int]) -> bool:
    """Whether each old value has one new value, and the other way round, over a few values."""
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for one in together:
        lefts, rights = set(map(token, olds[one])), set(map(token, news[one]))
        if len(lefts) == len(rights) == 1:
            seen[lefts.pop()][rights.pop()] += 1
    chosen = [counts.most_common(1)[0] for counts in seen.values()]
    kept, total = sum(count for _, count in chosen), sum(sum(counts.values()) for counts in seen.values())
    return 2 <= len(seen) <= 20 and kept >= SHARE * total and len({new for new, _ in chosen}) == len(seen)


def _bag(values: list[Json], form: Callable[[Any], Any]) -> tuple[Json, ...]:
    return tuple(sorted(map(form, values)))


def _folded(value: Value) -> str:
    """A spelling in which casts, case, blanks and the writing of numbers and times do not matter."""
    if isinstance(value, dict | list):
        return token(value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    found = number(value)
    if found is not None:
        return f"{float(found):.3g}"
    moment = parse_iso(value) if isinstance(value, str) else None
    return f"at {round(moment.nanoseconds / 6e11)}" if moment is not None else str(value).strip().lower()


def _evidence(together: list[int], agreeing: list[int], olds: Bags, news: Bags) -> tuple[list[Pair], list[Pair]]:
    good = set(agreeing)
    return (
        [(olds[one][0], news[one][0]) for one in agreeing[:3]],
        [(olds[one][0], news[one][0]) for one in together if one not in good][:3],
    )
