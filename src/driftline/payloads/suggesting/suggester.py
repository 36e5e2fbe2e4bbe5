"""From pairs to suggestions, and from accepted suggestions to a schema (payloads §11)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from driftline.payloads.suggesting.alignment import Alignment, ArrayMode
from driftline.payloads.suggesting.array_modes import find_array_modes
from driftline.payloads.suggesting.evidence import (
    MIN_DIFFERING,
    SHARE,
    Pair,
    Place,
    Suggestion,
    is_sure,
    same,
    token,
    wilson,
)
from driftline.payloads.suggesting.hypotheses import hypotheses, shape_of
from driftline.payloads.suggesting.renames import find_renames
from driftline.payloads.values import MISSING

_NOISY = 3  # differing old-old pairs
_WRITTEN_OUT = 0.05  # how often a default may also be there
_GLOBAL = ("allow-null-as-missing", "empty-string-as-null")
Fields = dict[Place, list[Pair]]


def suggest(pairs: Iterable[Pair], noise: Iterable[Pair] = (), known_rules: Any = None) -> list[Suggestion]:
    """Rules that would explain the differences of pairs; `noise` are pairs of Old with itself.

    `known_rules` is a schema whose renames and array modes are taken as given; what it has rules for is left alone.
    """
    given = list(pairs)
    known = Alignment()
    settled = _take_over(known, known_rules or {})
    found = [*find_renames(given, known), *find_array_modes(given, known)]
    fields: Fields = defaultdict(list)
    for old, new in given:
        for place, left, right in known.leaves(old, new):
            fields[place].append((left, right))
    has_noise, noisy = _noise(noise, known)
    for place, rows in fields.items():
        if place not in settled:
            found.extend(_missing(place, rows))
            found.extend(_scalar(place, rows, noisy.get(place), has_noise))
    return sorted(found, key=lambda one: (("sure", "review", "finding").index(one.level), one.path, one.id))


def _take_over(known: Alignment, schema: Any, place: Place = ()) -> set[Place]:
    """Read renames and array modes of a plain schema; the places that have rules for values."""
    settled: set[Place] = set()
    if not isinstance(schema, dict):
        return settled
    rules = {
        name.removeprefix("x-migration-"): value for name, value in schema.items() if name.startswith("x-migration-")
    }
    if rules.keys() - {"alias", "array-mode", "array-key"}:
        settled.add(place)
    if place and isinstance(rules.get("alias"), str) and isinstance(place[-1], str):
        known.rename(place[:-1], rules["alias"], place[-1])
    if rules.get("array-mode") in ("keyed", "unordered"):
        key = rules.get("array-key")
        known.modes[place] = ArrayMode(rules["array-mode"], key if isinstance(key, str) else None)
    for name, child in (schema.get("properties") or {}).items():
        settled |= _take_over(known, child, (*place, name))
    if "items" in schema:
        settled |= _take_over(known, schema["items"], (*place, None))
    return settled


def _noise(noise: Iterable[Pair], known: Alignment) -> tuple[bool, Fields]:
    """The fields in which Old differs from itself, under New's names."""
    found: Fields = defaultdict(list)
    given = list(noise)
    for first, second in given:
        for place, left, right in _old_leaves(first, second, known, ()):
            if left is not MISSING and right is not MISSING and not same(left, right):
                found[place].append((left, right))
    return bool(given), {place: rows for place, rows in found.items() if len(rows) >= _NOISY}


def _old_leaves(first: Any, second: Any, known: Alignment, place: Place) -> Iterator[tuple[Place, Any, Any]]:
    if isinstance(first, dict) and isinstance(second, dict):
        lefts, rights = (known.members(value, place, is_old=True) for value in (first, second))
        for name, left in lefts.items():
            yield from _old_leaves(left, rights.get(name, MISSING), known, (*place, name))
    elif isinstance(first, list) and isinstance(second, list):
        for left, right in zip(first, second, strict=False):
            yield from _old_leaves(left, right, known, (*place, None))
    else:
        yield place, first, second


def _missing(place: Place, rows: list[Pair]) -> Iterator[Suggestion]:
    """Members that only one side has: a default, null as missing, or a finding."""
    both = [pair for pair in rows if pair[0] is not MISSING and pair[1] is not MISSING]
    for side, words in ((1, "the member is gone in New"), (0, "the member is new")):
        lone = [pair for pair in rows if pair[side] is MISSING and pair[1 - side] is not MISSING]
        if len(lone) < MIN_DIFFERING:
            continue
        if not both:
            yield Suggestion(place, {}, "finding", 0, len(lone), len(rows), words, lone[:3])
            continue
        values = Counter(token(pair[1 - side]) for pair in lone)
        spelled, count = values.most_common(1)[0]
        value = next(pair[1 - side] for pair in lone if token(pair[1 - side]) == spelled)
        if count < SHARE * len(lone) or isinstance(value, dict | list):
            yield Suggestion(place, {}, "finding", 0, len(lone), len(rows), f"missing {len(lone)} times", lone[:3])
            continue
        written = sum(token(pair[1 - side]) == spelled for pair in both)
        rule = {"allow-null-as-missing": True} if value is None else {"default": value}
        sure = wilson(count, len(lone)) >= 0.8 and written <= _WRITTEN_OUT * (written + count)
        against = [pair for pair in lone if token(pair[1 - side]) != spelled]
        why = f"missing {len(lone)} times where the other side has {spelled}, which is written out {written} times"
        level = "sure" if sure else "review"
        yield Suggestion(place, rule, level, count, len(lone), len(rows), why, lone[:3], against[:3])


def _scalar(place: Place, rows: list[Pair], noise: list[Pair] | None, has_noise: bool) -> Iterator[Suggestion]:
    both = [pair for pair in rows if all(value is not MISSING and not isinstance(value, dict | list) for value in pair)]
    differing = [pair for pair in both if not same(*pair)]
    if noise is not None:
        yield _noise_rule(place, both, differing, noise)
        return
    if len(differing) < MIN_DIFFERING:
        return
    for hypothesis in hypotheses(differing, both):
        good = [pair for pair in differing if hypothesis.explains(*pair)]
        if len(good) < max(MIN_DIFFERING, SHARE * len(differing)):
            continue
        enough = is_sure(len(good), len(differing), len(both), rare_is_fine=hypothesis.rare_is_fine)
        level = "sure" if hypothesis.can_be_sure and enough else "review"
        why = (
            hypothesis.why
            if 2 * len(differing) >= len(both)
            else f"{hypothesis.why}; only in {len(differing)} of {len(both)}"
        )
        against = [pair for pair in differing if not hypothesis.explains(*pair)]
        counts = (len(good), len(differing), len(both))
        yield Suggestion(place, hypothesis.rule, level, *counts, why, good[:3], against[:3])
        return
    words = "it is no noise in Old itself" if has_noise else "old-old pairs would tell whether it is noise"
    why = f"differs without a pattern; {words}"
    yield Suggestion(place, {}, "finding", 0, len(differing), len(both), why, differing[:3])


def _noise_rule(place: Place, both: list[Pair], differing: list[Pair], noise: list[Pair]) -> Suggestion:
    values = [value for pair in noise for value in pair] + [new for _, new in both] + [old for old, _ in both]
    shape = shape_of(values)
    if shape is not None:
        rule: dict[str, Any] = {"pattern": shape}
    else:
        rule = {"strategy": "ignore" if any(value is None for value in values) else "exists"}
    why = f"Old differs from itself in {len(noise)} old-old pairs"
    return Suggestion(place, rule, "sure", len(noise), len(noise), len(both), why, differing[:3])


def accepted(suggestions: list[Suggestion], wanted: Iterable[str] = ("preserving",)) -> list[Suggestion]:
    """The suggestions that `--accept` names: preserving (default), sure, all, or ids."""
    words = set(wanted)
    return [
        one
        for one in suggestions
        if one.rule
        and (
            ("preserving" in words and one.is_preserving)
            or ("sure" in words and one.level == "sure")
            or "all" in words
            or one.id in words
        )
    ]


def schema_of(chosen: list[Suggestion], base: dict[str, Any] | None = None) -> dict[str, Any]:
    """The schema that carries the rules of suggestions."""
    root: dict[str, Any] = dict(base or {})
    for one in chosen:
        node = root
        if not one.rule.keys() & set(_GLOBAL):
            for step in one.place:
                if step is None:
                    node = node.setdefault("items", {})
                else:
                    node = node.setdefault("properties", {}).setdefault(step, {})
        for name, value in one.rule.items():
            node[f"x-migration-{name}"] = value
    return root
