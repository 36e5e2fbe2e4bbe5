"""Random payloads and schemas."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c", "id", "odd name", "it's", "", "é", "back\\slash", "0"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(2**53 - 2, 2**53 + 2),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.sampled_from(["", " a ", "A", "a", "x", "2025-02-02T10:30:00Z", "2025-02-02T11:30:00+01:00", "1", "true"]),
    st.text(max_size=3),
)
PAYLOADS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)

# Rules that look at both sides alike and at the values alone.
SYMMETRIC_RULES: dict[str, st.SearchStrategy[Any]] = {
    "x-migration-strategy": st.sampled_from(["strict", "ignore", "exists", "lenient"]),
    "x-migration-precision": st.sampled_from([0, 0.01, 1]),
    "x-migration-case-insensitive": st.booleans(),
    "x-migration-trim-whitespace": st.booleans(),
    "x-migration-cast": st.sampled_from(["int", "float", "string", "boolean"]),
    "x-migration-datetime-tolerance": st.sampled_from(["5s", "1h30m"]),
    "x-migration-order-by": st.sampled_from([["a"], ["-id", "b"]]),
    "x-migration-array-mode": st.sampled_from(["strict", "unordered"]),
    "x-migration-allow-null-as-missing": st.booleans(),
    "x-migration-empty-string-as-null": st.booleans(),
    "x-migration-inherit-rules": st.booleans(),
    "x-migration-global-ignores": st.sampled_from([["$..a"], ["$.b.*"], ["$..id[0]"]]),
}
OTHER_RULES: dict[str, st.SearchStrategy[Any]] = {
    "x-migration-pattern": st.sampled_from(["^a", "(", "^(a|aa)+$"]),
    "x-migration-alias": NAMES,
    "x-migration-default": SCALARS,
    "x-migration-enum-map": st.sampled_from([{"A": "a", "1": "x"}, {"true": 1}]),
    "x-migration-array-key": st.sampled_from(["id", ["id", "a"], "a.b", "/odd name"]),
    "x-migration-ignore-extra-items": st.booleans(),
    "x-migration-ignore-missing-items": st.booleans(),
    "x-migration-array-subset": st.booleans(),
    "x-migration-duplicate-handling": st.sampled_from(["error", "first", "last", "merge"]),
    "x-migration-when": st.sampled_from(["$.a == 1", "@.id", "!($.b > 1) || count($..*) > 3", "$.a ="]),
    "x-migration-unknown": st.just(1),
}
KEYED = {"x-migration-array-mode": st.just("keyed"), "x-migration-array-key": st.sampled_from(["id", ["id", "a"]])}


def schemas(rules: dict[str, st.SearchStrategy[Any]], *, types: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    """Nested schemas that carry some of the rules."""
    own = st.dictionaries(st.sampled_from(sorted(rules)), st.none(), max_size=3).flatmap(
        lambda chosen: st.fixed_dictionaries({name: rules[name] for name in chosen})
    )
    typed = st.sampled_from(["object", "array", "string", "number", "integer", ["string", "null"]])
    leaf = st.tuples(own, typed if types else st.just(None)).map(
        lambda parts: parts[0] | ({"type": parts[1]} if parts[1] else {})
    )
    return st.recursive(
        leaf,
        lambda inner: st.tuples(
            leaf,
            st.dictionaries(NAMES, inner, max_size=3),
            st.one_of(st.none(), inner),
            st.one_of(st.none(), inner, st.booleans()),
        ).map(_container),
        max_leaves=6,
    )


def _container(parts: tuple[Any, ...]) -> dict[str, Any]:
    schema, properties, items, additional = parts
    schema = {key: value for key, value in schema.items() if key != "type"} | {"properties": properties}
    if items is not None:
        schema["items"] = items
    if additional is not None:
        schema["additionalProperties"] = additional
    return schema


ANY_SCHEMA = schemas(SYMMETRIC_RULES | OTHER_RULES | KEYED, types=True)
