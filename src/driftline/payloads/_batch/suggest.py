"""From pairs to suggestions, and from accepted suggestions to a schema (payloads §11)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from driftline.errors import PayloadError
from driftline.payloads._batch.job import BatchJob, Record, open_source, records_of, splits_of
from driftline.payloads._compare.compare import compile as compile_schema
from driftline.payloads._schema.documents import load_schema
from driftline.payloads._schema.nodes import EXTENSION_PREFIX, Fragments, SchemaDocument, open_document
from driftline.payloads._schema.root import find_root
from driftline.payloads._suggest.align import Alignment, ArrayMode, Sightings, find_array_modes, find_renames
from driftline.payloads._suggest.evidence import (
    MIN_DIFFERING,
    MIN_NOISY,
    SHARE,
    Pair,
    Share,
    Sighting,
    Suggestion,
    hypotheses,
    is_sure,
    shape_of,
    times,
    token,
    wilson,
)
from driftline.payloads._suggest.write import apply_rules
from driftline.payloads._values.paths import Place, generalised
from driftline.payloads._values.text import parse_json
from driftline.payloads._values.values import MISSING, NEW, OLD, Json, same_json

_WRITTEN_OUT = 0.05  # how often a default may also be there


def suggest(
    pairs: Iterable[Pair], noise: Iterable[Pair] = (), schema: Any = None, root: str | None = None
) -> list[Suggestion]:
    """Rules that would explain the differences of pairs; `noise` are pairs of Old with itself.

    The rules of `schema` (text, bytes, a `Path` or an object) are taken as given: where they leave no difference,
    or stand already, nothing is suggested.
    """
    given, again = list(pairs), list(noise)
    known, settled, different = _given(given, schema, root)
    found = [*find_renames(given, known), *find_array_modes(given, again, known)]
    seen = known.observe(given)
    noisy = _Noise(again, known)
    for place, rows in seen.leaves.items():
        if place not in settled:
            found.extend(_missing(place, rows))
            found.extend(_scalar(place, rows, noisy))
    found.extend(_lone_items(seen))
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


class _Noise:
    """Where Old differs from itself, under New's names and the array modes that the comparison uses."""

    def __init__(self, again: list[Pair], known: Alignment) -> None:
        self.pairs = len(again)
        self._known = known
        self._seen = known.observe(again, are_both_old=True)
        self._rows = {place: list(self._telling(place, rows)) for place, rows in self._seen.leaves.items()}

    def rows(self, place: Place) -> list[Sighting]:
        """What Old said twice at a place, of the pairs that can tell."""
        return self._rows.get(place, [])

    def can_be_sure(self, place: Place) -> bool:
        """Whether the items around a place are surely those that belong together: no values moved between them."""
        arrays = self._arrays(place)
        if any(mode is not None and mode.mode == "unordered" for _, mode in arrays):
            return False
        return len(self.rows(place)) == len(self._both(self._seen.leaves.get(place, [])))

    def _arrays(self, place: Place) -> list[tuple[Place, ArrayMode | None]]:
        outer = [place[:at] for at, step in enumerate(place) if step is None]
        return [(array, self._known.modes.get(array)) for array in outer]

    @staticmethod
    def _both(rows: list[Sighting]) -> list[Sighting]:
        return [row for row in rows if row.old is not MISSING and row.new is not MISSING]

    def _telling(self, place: Place, rows: list[Sighting]) -> Iterator[Sighting]:
        """The rows of pairs in which the items are aligned: a value that is at another item now did not change."""
        arrays = self._arrays(place)
        shifted = {
            pair
            for array, mode in arrays
            if mode is None or mode.mode != "keyed"
            for pair in self._seen.lone_items.get(array, ())
        }
        by_pair: dict[int, list[Sighting]] = defaultdict(list)
        for row in self._both(rows):
            by_pair[row.pair].append(row)
        for pair, found in by_pair.items():
            if not arrays or not (pair in shifted or _has_moved(found)):
                yield from found


def _has_moved(rows: list[Sighting]) -> bool:
    """Whether more values differ by their item than are missing from the bag of all items."""
    olds, news = [token(row.old) for row in rows], [token(row.new) for row in rows]
    return sum(map(str.__ne__, olds, news)) > (Counter(olds) - Counter(news)).total()


def _missing(place: Place, rows: list[Sighting]) -> Iterator[Suggestion]:
    """Members that only one side has: a default, null as missing, or a finding."""
    both = [row for row in rows if row.old is not MISSING and row.new is not MISSING]
    for side, words in ((NEW, "the member is gone in New"), (OLD, "the member is new")):
        lone = [(row.old, row.new) for row in rows if (row.old, row.new)[side] is MISSING]
        if not lone:
            continue
        values = Counter(token(pair[1 - side]) for pair in lone)
        spelled, count = values.most_common(1)[0]
        value = next(pair[1 - side] for pair in lone if token(pair[1 - side]) == spelled)
        is_rule = both and len(lone) >= MIN_DIFFERING and count >= SHARE * len(lone)
        if not is_rule or isinstance(value, dict | list):
            why = f"missing {times(len(lone))}" if both else words
            yield Suggestion(place, {}, "finding", 0, len(lone), len(rows), why, lone[:3])
            continue
        written = sum(token((row.old, row.new)[1 - side]) == spelled for row in both)
        rule = {"allow-null-as-missing": True} if value is None else {"default": value}
        sure = wilson(count, len(lone)) >= 0.8 and written <= _WRITTEN_OUT * (written + count)
        against = [pair for pair in lone if token(pair[1 - side]) != spelled]
        why = f"missing {len(lone)} times where the other side has {spelled}, which is written out {written} times"
        level = "sure" if sure else "review"
        yield Suggestion(place, rule, level, count, len(lone), len(rows), why, lone[:3], against[:3])


def _lone_items(seen: Sightings) -> Iterator[Suggestion]:
    """Items that have no partner: never a rule, because one would hide lost items."""
    for place, lone in seen.lone_items.items():
        rows = list(lone.values())
        lost = sum(row.new is MISSING for row in rows)
        having = len({row.pair for row in seen.arrays.get(place, [])})
        why = f"items without a partner in {len(rows)} of {having} pairs, in {lost} of them one of Old's"
        examples = [(row.old, row.new) for row in rows[:3]]
        yield Suggestion(place, {}, "finding", 0, len(rows), having, why, examples)


def _scalar(place: Place, rows: list[Sighting], noise: _Noise) -> Iterator[Suggestion]:
    found = [
        row for row in rows if all(value is not MISSING and not isinstance(value, dict | list) for value in row[1:])
    ]
    both = [(row.old, row.new) for row in found]
    differing = [pair for pair in both if not same_json(*pair)]
    old_share, new_share = Share.of(noise.rows(place)), Share.of(found)
    is_noisy = old_share.differing >= MIN_NOISY
    if is_noisy and noise.can_be_sure(place) and new_share.is_within(old_share):
        yield _noise_rule(place, both, noise, (old_share, new_share), "sure")
        return
    explained = _explained(place, both, differing)
    if explained is not None:
        yield explained
    elif is_noisy:
        yield _noise_rule(place, both, noise, (old_share, new_share), "review")
    elif differing:
        words = "old-old pairs would tell whether it is noise"
        if noise.pairs:
            words = f"Old differs from itself in {old_share} pairs" if old_share.differing else "Old never changes it"
        why = f"differs without a pattern in {new_share} pairs; {words}"
        yield Suggestion(place, {}, "finding", 0, len(differing), len(both), why, differing[:3])


def _explained(place: Place, both: list[Pair], differing: list[Pair]) -> Suggestion | None:
    """The tightest hypothesis that explains the differences of a field."""
    for hypothesis in hypotheses(differing, both) if len(differing) >= MIN_DIFFERING else ():
        good = [pair for pair in differing if hypothesis.explains(*pair)]
        if len(good) < max(MIN_DIFFERING, SHARE * len(differing)):
            continue
        enough = is_sure(len(good), len(differing), len(both), rare_is_fine=hypothesis.rare_is_fine)
        level = "sure" if hypothesis.can_be_sure and enough else "review"
        is_rare = 2 * len(differing) < len(both)
        why = f"{hypothesis.why}; only in {len(differing)} of {len(both)}" if is_rare else hypothesis.why
        against = [pair for pair in differing if not hypothesis.explains(*pair)]
        counts = (len(good), len(differing), len(both))
        return Suggestion(place, hypothesis.rule, level, *counts, why, good[:3], against[:3])
    return None


def _noise_rule(place: Place, both: list[Pair], noise: _Noise, shares: tuple[Share, Share], level: str) -> Suggestion:
    rows = noise.rows(place)
    values = [value for row in rows for value in row[1:]] + [new for _, new in both] + [old for old, _ in both]
    shape = shape_of(values)
    if shape is not None:
        rule: dict[str, Json] = {"pattern": shape}
    else:
        rule = {"strategy": "ignore" if any(value is None for value in values) else "exists"}
    old, new = shares
    why = f"Old differs from itself in {old} old-old pairs, New from Old in {new} pairs"
    examples = [(row.old, row.new) for row in rows if not same_json(row.old, row.new)][:3]
    unseen = old.upper if level == "sure" else max(old.upper, new.upper)
    return Suggestion(place, rule, level, new.differing, new.differing, new.having, why, examples, unseen=unseen)


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
    for record in _records(path):
        if record.problem is not None and skip_bad:
            continue
        if record.problem is not None:
            raise PayloadError(f"{path}, line {record.line}: {record.problem}", details={"line": record.line})
        is_wanted = record.endpoint == endpoint if endpoint is not None else record.endpoint not in without
        if is_wanted and record.old is not None and record.new is not None:
            yield _body(parse_json(bytes(record.old), "old")), _body(parse_json(bytes(record.new), "new"))


def endpoints_of(path: str | Path) -> set[str]:
    """The endpoints that the pairs of a file name."""
    return {record.endpoint for record in _records(path) if record.endpoint}


def _records(path: str | Path) -> Iterator[Record]:
    job = BatchJob((open_source(path, "pairs"),), {})
    for split in splits_of(job):
        given = (record for record, _ in records_of(job, split) if record is not None)
        for number, record in enumerate(given, 1):
            record.line = number
            yield record


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
