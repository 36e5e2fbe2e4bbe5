"""Where the comparison starts: the root schema of a bare fragment or of a whole OpenAPI document."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from driftline.errors import PayloadError
from driftline.payloads._schema.documents import joined_reference, split_pointer
from driftline.payloads._schema.nodes import EXTENSION_PREFIX, Extension, Fragment, Fragments, Node, SchemaDocument
from driftline.payloads._values.limits import current
from driftline.payloads._values.paths import escape_pointer
from driftline.payloads._values.values import Json, kind_of

_SWITCHES = ("allow-null-as-missing", "empty-string-as-null", "allow-new-members", "naming", "inherit-rules")
_GLOBAL = frozenset(EXTENSION_PREFIX + name for name in ("global-ignores", *_SWITCHES))
_HEADERS = f"{EXTENSION_PREFIX}headers"
_WRAPPERS = {"openapi", "swagger", "components"}
_SCHEMA_KEYWORDS = frozenset(
    {"$ref", "type", "properties", "items", "allOf", "oneOf", "anyOf", "additionalProperties", "patternProperties"}
)
_COMPONENT_PLACES = (("components", "schemas"), ("definitions",), ("$defs",))
_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_LISTED = 10  # names in an error message


def find_root(document: SchemaDocument, root: str | None) -> Fragment:
    """The root schema: the `root` option, else the document itself, else the only sensible component."""
    content = document.source.content
    if not isinstance(content, dict | bool):
        raise document.error(f"a schema must be an object, not {kind_of(content)}", "")
    if root is not None:
        return _named_root(document, root)
    if isinstance(content, bool) or _SCHEMA_KEYWORDS & content.keys() or not _WRAPPERS & content.keys():
        return Fragment(content, "")
    candidates = components_of(content)
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    marked = [one for one in candidates.values() if isinstance(one.schema, dict) and _GLOBAL & one.schema.keys()]
    if len(marked) == 1:
        return marked[0]
    raise _unclear("the root schema is not clear: name one as root", document, list(candidates))


def _named_root(document: SchemaDocument, root: str) -> Fragment:
    components = components_of(document.source.content)
    if root in components:
        return components[root]
    pointer = root.removeprefix("#")
    is_pointer = pointer == "" or pointer.startswith("/")
    found = (document.lookup(pointer) if is_pointer else None) or _operation_root(document, root.split())
    if found is not None:
        return found
    known = [*components, *operations_of(document.source.content)]
    near = get_close_matches(root, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise _unclear(f"there is no schema {root!r}{hint}", document, list(components))


def _unclear(message: str, document: SchemaDocument, names: list[str]) -> PayloadError:
    known = names or list(operations_of(document.source.content))
    listed = ", ".join(known[:_LISTED]) + (f" and {len(known) - _LISTED:,} more" if len(known) > _LISTED else "")
    kind = "schemas" if names else "operations"
    about = f"{message} (known {kind}: {listed})" if known else f"{message} (the document has no schemas of its own)"
    return document.error(about, "", candidates=known[:1000])


def operations_of(content: object) -> Iterator[str]:
    """The operations of a document as roots name them: `GET /v1/charges`."""
    paths = content.get("paths") if isinstance(content, dict) else None
    for path, item in paths.items() if isinstance(paths, dict) else ():
        for method in _METHODS:
            if isinstance(item, dict) and method in item:
                yield f"{method.upper()} {path}"


def _operation_root(document: SchemaDocument, words: list[str]) -> Fragment | None:
    """The schema of an operation's JSON body: `METHOD PATH`, then a status (default: the first that is a success) or
    the word `request`."""
    if len(words) not in (2, 3) or words[0].lower() not in _METHODS or not words[1].startswith("/"):
        return None
    item = document.lookup(f"/paths/{escape_pointer(words[1])}")
    operation = _member(document, item, words[0].lower())
    needed = words[2].lower() if len(words) == 3 else None
    if needed == "request":
        return _body_schema(document, _member(document, operation, "requestBody"))
    responses = _member(document, operation, "responses")
    if responses is None or not isinstance(responses.schema, dict):
        return None
    statuses = {str(status).lower(): str(status) for status in responses.schema}
    status = needed or next((status for status in sorted(statuses) if status.startswith("2")), "default")
    # `2XX` and `default` stand for the statuses that are not written out.
    for name in (status, f"{status[:1]}xx", "default"):
        if name in statuses:
            return _body_schema(document, _member(document, responses, statuses[name]))
    return None


def _member(document: SchemaDocument, owner: Fragment | None, name: str) -> Fragment | None:
    if owner is None:
        return None
    schema, pointer = document.follow(owner)
    if not isinstance(schema, dict):
        return None
    # YAML reads an unquoted 200 as a number, which the reader has turned into text.
    return Fragment(schema[name], f"{pointer}/{escape_pointer(name)}") if name in schema else None


def _body_schema(document: SchemaDocument, body: Fragment | None) -> Fragment | None:
    content = _member(document, body, "content")
    if content is None:
        return _member(document, body, "schema")  # OpenAPI 2.0
    kinds = list(content.schema) if isinstance(content.schema, dict) else []
    chosen = next((kind for kind in kinds if "json" in kind.lower()), kinds[0] if kinds else None)
    return None if chosen is None else _member(document, _member(document, content, chosen), "schema")


def record_root(document: SchemaDocument, body: Fragment) -> Fragment:
    """The schema of a whole response: its body has the schema, its headers have their rules (payloads §9.4), its status
    none."""
    headers = {"type": "object", "properties": _header_rules(document, body)}
    members = {"status": {}, "headers": headers, "body": {"$ref": joined_reference(body.pointer)}}
    return Fragment({"type": "object", "properties": members}, "/(record)")


def _header_rules(document: SchemaDocument, body: Fragment) -> dict[str, Json]:
    """Rules by header: of the operation's response, then of `x-migration-headers`. Types stay out: headers are text."""
    found: dict[str, Json] = {}
    response, separator, _ = body.pointer.partition("/content/")
    declared = document.lookup(f"{response}/headers") if separator else None
    for name in declared.schema if declared is not None and isinstance(declared.schema, dict) else ():
        schema = _member(document, _member(document, declared, name), "schema")
        found[name.lower()] = document.follow(schema).schema if schema is not None else {}
    given = document.node((body,)).extensions.get(_HEADERS)
    for name, rules in given.value.items() if given is not None and isinstance(given.value, dict) else ():
        found[name.lower()] = rules
    return {name: _extensions(schema) for name, schema in found.items()}


def _extensions(schema: object) -> dict[str, Json]:
    given = schema.items() if isinstance(schema, dict) else ()
    return {name: value for name, value in given if name.startswith(EXTENSION_PREFIX)}


def document_extensions(document: SchemaDocument, root: Fragment) -> dict[str, Json]:
    """Rules for all payloads written beside `openapi:` in a wrapped document."""
    content = document.source.content
    if root.pointer == "" or not isinstance(content, dict):
        return {}
    return {name: value for name, value in content.items() if name in _GLOBAL}


# Where schemas are inside a schema: under names, in a list, or directly.
_CHILDREN: dict[str, Any] = {
    **dict.fromkeys(("properties", "patternProperties"), dict),
    **dict.fromkeys(("allOf", "oneOf", "anyOf", "prefixItems"), list),
    **dict.fromkeys(("items", "additionalProperties"), object),
}
# A pointer, or a step below one: large documents have many places, and few of them are ever named.
_Link = Any  # str | tuple[_Link, str | int]


class Survey:
    """A walk over the raw schemas that a root reaches, each once and breadth first, without folding them.

    Raises for references that lead nowhere; those of components that the root does not reach are looked at too, as far
    as they stay in the document.
    """

    def __init__(self, document: SchemaDocument, root: Fragment) -> None:
        self.schemas = self.leaves = 0
        self.extensions: dict[str, list[Extension]] = {}
        self._document = document
        self._seen: set[int] = set()
        self._targets: dict[tuple[str, str], Fragment] = {}
        self._go(root, is_beyond=False)
        for component in components_of(document.source.content).values():
            self._go(component, is_beyond=True)
        del self._seen, self._targets  # what was found lives as long as a plan

    def _go(self, start: Fragment, *, is_beyond: bool) -> None:
        waiting: deque[tuple[Any, _Link, str]] = deque([(start.schema, start.pointer, split_pointer(start.pointer)[0])])
        seen, take = self._seen, waiting.popleft
        while waiting:
            schema, link, file = take()
            if type(schema) is not dict or id(schema) in seen:
                continue
            seen.add(id(schema))
            if not len(seen) % 1024:
                current().check()
            known = len(waiting)
            for word, value in schema.items():
                shape = _CHILDREN.get(word)
                if shape is None:
                    if word == "$ref" and isinstance(value, str):
                        self._follow(value, link, file, waiting, is_beyond)
                    elif word.startswith(EXTENSION_PREFIX) and not is_beyond:
                        place = f"{_pointer(link)}/{escape_pointer(word)}"
                        self.extensions.setdefault(word, []).append(Extension(value, place))
                elif shape is object:
                    waiting.append((value, (link, word), file))
                elif shape is type(value):
                    below = (link, word)
                    children = value.items() if shape is dict else enumerate(value)
                    waiting.extend([(child, (below, step), file) for step, child in children])
            self.schemas += not is_beyond
            self.leaves += not is_beyond and len(waiting) == known

    def _follow(self, reference: str, link: _Link, file: str, waiting: deque[Any], is_beyond: bool) -> None:
        # Another file is read when it is needed; a document in memory must not name any.
        if is_beyond and not reference.startswith("#") and self._document.files is not None:
            return
        target = self._targets.get((file, reference))
        if target is None:
            target = self._document.resolve(reference, f"{_pointer(link)}/$ref")
            self._targets[file, reference] = target
            if is_beyond:
                self._document.follow(target)  # it is never folded: a circle is found here
        waiting.append((target.schema, target.pointer, split_pointer(target.pointer)[0]))


def _pointer(link: _Link) -> str:
    steps: list[str] = []
    while not isinstance(link, str):
        link, step = link
        steps.append(escape_pointer(str(step)))
    return "/".join([link, *reversed(steps)])


# How a child is reached: by a name (with its schema), or as an item, from which to which; what patterns, other names
# and branches describe is met with its owner.
Steps = tuple[tuple[str, Fragments] | slice, ...]


def _children_of(node: Node) -> Iterator[tuple[Fragments, Steps]]:
    """The fragments of members and items, and of the branches of all choices."""
    for name, fragments in node.properties.items():
        yield fragments, ((name, fragments),)
    for _, fragment in node.patterns:
        yield (fragment,), ()
    if node.additional:
        yield node.additional, ()
    if node.items:
        yield node.items, (slice(len(node.prefix_items), None),)
    for number, part in enumerate(node.prefix_items):
        yield part, (slice(number, number + 1),)
    yield from (((branch,), ()) for choice in node.choices for branch in choice.branches)


def walk(document: SchemaDocument, root: Fragment) -> Iterator[tuple[Node, Steps]]:
    """The nodes that can be reached from a schema, itself first, each with the shortest way to it."""
    waiting: list[tuple[Fragments, Steps]] = [((root,), ())]
    seen: set[tuple[str, ...]] = set()
    for fragments, steps in waiting:
        node = document.node(fragments)
        if node.pointers not in seen:
            seen.add(node.pointers)
            yield node, steps
            waiting.extend((part, (*steps, *step)) for part, step in _children_of(node))


def reachable(document: SchemaDocument, root: Fragment) -> list[Node]:
    """The nodes that can be reached from a schema, itself first."""
    return [node for node, _ in walk(document, root)]


def count_leaves(document: SchemaDocument, root: Fragment) -> int:
    """How many leaves a schema describes: one that several places name counts once."""
    return sum(not any(_children_of(node)) for node in reachable(document, root))


def components_of(content: object) -> dict[str, Fragment]:
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
