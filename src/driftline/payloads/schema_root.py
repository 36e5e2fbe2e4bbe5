"""Where the comparison starts: the root schema of a bare fragment or of a wrapped OpenAPI document."""

from __future__ import annotations

from typing import Any

from driftline.payloads.schema_nodes import EXTENSION_PREFIX, Fragment, Fragments, Node, SchemaDocument, children_of
from driftline.payloads.schema_text import escape_pointer
from driftline.payloads.values import kind_of

GLOBAL_EXTENSIONS = tuple(
    EXTENSION_PREFIX + name
    for name in ("global-ignores", "allow-null-as-missing", "empty-string-as-null", "inherit-rules")
)
_SCHEMA_KEYWORDS = frozenset(
    {"$ref", "type", "properties", "items", "allOf", "oneOf", "anyOf", "additionalProperties", "patternProperties"}
)
_COMPONENT_PLACES = (("components", "schemas"), ("definitions",), ("$defs",))


def find_root(document: SchemaDocument, root: str | None) -> Fragment:
    """The root schema: the `root` option, else the document itself, else the only sensible component."""
    content = document.source.content
    if not isinstance(content, dict | bool):
        raise document.error(f"a schema must be an object, not {kind_of(content)}", "")
    if root is not None:
        return _named_root(document, root)
    if not _is_wrapped(content):
        return Fragment(content, "")
    candidates = components_of(content)
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    marked = [fragment for fragment in candidates.values() if _has_global_rule(fragment.schema)]
    if len(marked) == 1:
        return marked[0]
    raise document.error(
        f"the root schema is not clear: name one of {', '.join(candidates) or '(no components)'} as root",
        "",
        candidates=list(candidates),
    )


def document_extensions(document: SchemaDocument, root: Fragment) -> dict[str, Any]:
    """Rules for all payloads written beside `openapi:` in a wrapped document."""
    content = document.source.content
    if root.pointer == "" or not isinstance(content, dict):
        return {}
    return {name: value for name, value in content.items() if name in GLOBAL_EXTENSIONS}


def check_references(document: SchemaDocument, root: Fragment) -> None:
    """Fold every schema of the fragment, so that broken references are found before a payload is read."""
    for fragment in (root, *components_of(document.source.content).values()):
        reachable(document, fragment)


def reachable(document: SchemaDocument, root: Fragment) -> list[Node]:
    """The nodes that can be reached from a schema, itself first."""
    nodes: dict[tuple[str, ...], Node] = {}
    waiting: list[Fragments] = [(root,)]
    for fragments in waiting:
        node = document.node(fragments)
        if node.pointers not in nodes:
            nodes[node.pointers] = node
            waiting.extend(children_of(node))
    return list(nodes.values())


def _named_root(document: SchemaDocument, root: str) -> Fragment:
    content = document.source.content
    components = components_of(content)
    if root in components:
        return components[root]
    pointer = root.removeprefix("#")
    if pointer == "" or pointer.startswith("/"):
        found = document.lookup(pointer)
        if found is not None:
            return found
    raise document.error(
        f"there is no schema {root!r}; known are {', '.join(components) or '(none)'}", "", candidates=list(components)
    )


def _is_wrapped(content: Any) -> bool:
    if not isinstance(content, dict) or _SCHEMA_KEYWORDS & content.keys():
        return False
    return any(keyword in content for keyword in ("openapi", "swagger", "components"))


def components_of(content: Any) -> dict[str, Fragment]:
    """The named schemas of a document."""
    found: dict[str, Fragment] = {}
    for place in _COMPONENT_PLACES:
        value, pointer = content, ""
        for step in place:
            value = value.get(step) if isinstance(value, dict) else None
            pointer += f"/{step}"
        if isinstance(value, dict):
            for name, schema in value.items():
                found.setdefault(name, Fragment(schema, f"{pointer}/{escape_pointer(name)}"))
    return found


def _has_global_rule(schema: Any) -> bool:
    return isinstance(schema, dict) and any(name in schema for name in GLOBAL_EXTENSIONS)
