"""From pairs to suggestions, and from accepted suggestions to a schema (payloads §11)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from driftline.errors import PayloadError
from driftline.payloads._batch.job import BatchJob, open_source, splits_of
from driftline.payloads._batch.kernels import records_of
from driftline.payloads._compare.compare import compile as compile_schema
from driftline.payloads._schema.documents import load_schema
from driftline.payloads._schema.nodes import EXTENSION_PREFIX, Fragments, SchemaDocument, open_document
from driftline.payloads._schema.root import find_root
from driftline.payloads._suggest.align import Alignment, ArrayMode, find_array_modes, find_renames
from driftline.payloads._suggest.evidence import (
    MIN_DIFFERING,
    SHARE,
    Pair,
    Suggestion,
    hypotheses,
    is_sure,
    shape_of,
    token,
    wilson,
)
from driftline.payloads._suggest.write import apply_rules
from driftline.payloads._values.paths import Place, generalised
from driftline.payloads._values.text import parse_json
from driftline.payloads._values.values import MISSING, Json, same_json

_NOISY = 3  # differing old-old pairs
_WRITTEN_OUT = 0.05  # how often a default may also be there
Fields = dict[Place, list[Pair]]


def suggest(
    pairs: Iterable[Pair], noise: Iterable[Pair] = (), schema: Any = None, root: str | None = None
) -> list[Suggestion]:
    """Rules that would explain the differences of pairs; `noise` are pairs of Old with itself.

    The rules of `schema` (text, bytes, a `Path` or an object) are taken as given: where they leave no difference,
    or stand already, nothing is suggested.
    """
    given = list(pairs)
    known, settled, different = _given(given, schema, root)
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
    if different is not None:
        found = [one for one in found if any(_is_at(path, one.path) for path in different)]
    return sorted(found, key=lambda one: (("sure", "review", "finding").index(one.level), one.path, one.id))


def _given(pairs: list[Pair], schema: object, root: str | None) -> tuple[Alignment, set[Place], set[str] | None]:
    """What a schema says already: renames and modes, places with rules for values, and the paths that still differ."""
    known = Alignment()
    if schema is None:
        return known, set(), None
    document = open_document(schema)
    settled = _take_over(document, (find_root(document, root),), known, [value for pair in pairs for value in pair])
    plan = compile_schema(schema, root=root)
    entries = (entry for old, new in pairs for entry in plan.compare_values(old, new).diffs)
    return known, settled, {generalised(entry["path"]) for entry in entries}


def _is_at(path: str, place: str) -> bool:
    """Whether a path is at a place or inside it."""
    return path.startswith(place) and path[len(place) : len(place) + 1] in ("", ".", "[")


def _take_over(
    document: SchemaDocument, fragments: Fragments, known: Alignment, values: list[Json], place: Place = ()
) -> set[Place]:
    """Read renames and array modes of a schema, as deep as the values go; the places that have rules for values."""
    node = document.node(fragments)
    rules = {name.removeprefix(EXTENSION_PREFIX): extension.value for name, extension in node.extensions.items()}
    settled = {place} if rules.keys() - {"alias", "array-mode", "array-key"} else set()
    if place and isinstance(rules.get("alias"), str) and isinstance(place[-1], str):
        known.rename(place[:-1], rules["alias"], place[-1])
    if rules.get("array-mode") in ("keyed", "unordered"):
        key = rules.get("array-key")
        known.modes[place] = ArrayMode(rules["array-mode"], key if isinstance(key, str) else None)
    objects = [value for value in values if isinstance(value, dict)]
    members = dict(node.properties) if objects else {}
    for choice in node.choices if objects else ():
        for branch in choice.branches:
            members = {**document.node((branch,)).properties, **members}
    for name, child in members.items():
        alias = document.node(child).extensions.get(f"{EXTENSION_PREFIX}alias")
        names = {name, alias.value if alias is not None else name}
        below = [value[one] for value in objects for one in names if one in value]
        if below:
            settled |= _take_over(document, child, known, below, (*place, name))
    items = [item for value in values if isinstance(value, list) for item in value]
    if items and node.items:
        settled |= _take_over(document, node.items, known, items, (*place, None))
    return settled


def _noise(noise: Iterable[Pair], known: Alignment) -> tuple[bool, Fields]:
    """The fields in which Old differs from itself, under New's names."""
    found: Fields = defaultdict(list)
    given = list(noise)
    for first, second in given:
        for place, left, right in _old_leaves(first, second, known, ()):
            if left is not MISSING and right is not MISSING and not same_json(left, right):
                found[place].append((left, right))
    return bool(given), {place: rows for place, rows in found.items() if len(rows) >= _NOISY}


def _old_leaves(first: object, second: object, known: Alignment, place: Place) -> Iterator[tuple[Place, Any, Any]]:
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
    differing = [pair for pair in both if not same_json(*pair)]
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
        rule: dict[str, Json] = {"pattern": shape}
    else:
        rule = {"strategy": "ignore" if any(value is None for value in values) else "exists"}
    why = f"Old differs from itself in {len(noise)} old-old pairs"
    return Suggestion(place, rule, "sure", len(noise), len(noise), len(both), why, differing[:3])


def suggest_file(
    pairs: str | Path,
    noise: str | Path | None = None,
    schema: Any = None,
    root: str | None = None,
    endpoint: str | None = None,
) -> list[Suggestion]:
    """Suggestions for a file of pairs, as `payloads batch` reads them; whole answers count by their bodies."""
    old_old = read_pairs(noise, endpoint) if noise is not None else ()
    return suggest(read_pairs(pairs, endpoint), old_old, schema, root)


def read_pairs(
    path: str | Path, endpoint: str | None = None, *, without: Collection[str] = (), skip_bad: bool = False
) -> Iterator[Pair]:
    """The pairs of a file that have both sides, of one endpoint or of all `without` some.

    Bad lines raise, or are left out.
    """
    job = BatchJob((open_source(path, "pairs"),), {})
    for split in splits_of(job):
        for record in records_of(job, split):
            if record.problem is not None and skip_bad:
                continue
            if record.problem is not None:
                raise PayloadError(f"{path}, line {record.line}: {record.problem}", details={"line": record.line})
            is_wanted = record.endpoint == endpoint if endpoint is not None else record.endpoint not in without
            if is_wanted and record.old is not None and record.new is not None:
                yield _body(parse_json(bytes(record.old), "old")), _body(parse_json(bytes(record.new), "new"))


def _body(value: Any) -> Any:
    is_answer = isinstance(value, dict) and value.keys() == {"status", "headers", "body"}
    return value["body"] if is_answer else value


def read_accepted(suggestions: list[Suggestion], wanted: Iterable[str] = ("preserving",)) -> list[Suggestion]:
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


def schema_of(chosen: list[Suggestion]) -> Any:
    """A schema that carries the rules of suggestions, and nothing else."""
    return load_schema(apply_rules("", chosen).after).content or {}
