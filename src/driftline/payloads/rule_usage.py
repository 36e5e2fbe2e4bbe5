"""Which rules of a schema a payload meets: a rule is met where its field occurs on either side.

The places are walked in the payloads, not traced in the comparison, so that asking costs little; a rule that was met
once is not looked for again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from driftline.payloads.rules import rule_text
from driftline.payloads.schema_nodes import Fragments, Node, SchemaDocument, open_document
from driftline.payloads.schema_root import find_root
from driftline.payloads.values import Value

_ALIAS = "x-migration-alias"
_MAX_ITEMS = 1000


class RulePlace(NamedTuple):
    """A rule and the way to its field: names (with an alias), None for the items of an array."""

    pointer: str
    rule: str
    steps: tuple[tuple[str, str | None] | None, ...]


def rule_places(schema: object, root: str | None = None) -> list[RulePlace]:
    """All rules that can be reached, each at the shortest way to it."""
    document = open_document(schema)
    found: dict[str, RulePlace] = {}
    waiting: list[tuple[Fragments, tuple[Any, ...]]] = [((find_root(document, root),), ())]
    seen: set[tuple[str, ...]] = set()
    for fragments, steps in waiting:
        node = document.node(fragments)
        if node.pointers in seen:
            continue
        seen.add(node.pointers)
        for name, extension in node.extensions.items():
            found.setdefault(extension.pointer, RulePlace(extension.pointer, rule_text(name, extension.value), steps))
        waiting.extend(_below(document, node, steps))
    return list(found.values())


def _below(document: SchemaDocument, node: Node, steps: tuple[Any, ...]) -> Iterator[tuple[Fragments, tuple[Any, ...]]]:
    for name, fragments in node.properties.items():
        alias = document.node(fragments).extensions.get(_ALIAS)
        yield fragments, (*steps, (name, alias.value if alias is not None else None))
    if node.items:
        yield node.items, (*steps, None)
    # What patterns, other names and branches describe is met with its owner.
    for _, fragment in node.patterns:
        yield (fragment,), steps
    if node.additional:
        yield node.additional, steps
    for choice in node.choices:
        for branch in choice.branches:
            yield (branch,), steps


def is_met(place: RulePlace, *payloads: Any) -> bool:
    """Whether the field of a rule occurs in one of the payloads."""
    return any(_occurs(payload, place.steps, 0) for payload in payloads)


def _occurs(value: Value, steps: tuple[Any, ...], at: int) -> bool:
    if at == len(steps):
        return True
    step = steps[at]
    if step is None:
        return isinstance(value, list) and any(_occurs(item, steps, at + 1) for item in value[:_MAX_ITEMS])
    if not isinstance(value, dict):
        return False
    name = step[0] if step[0] in value else step[1]
    return name in value and _occurs(value[name], steps, at + 1)
