"""The schema as merged nodes: `$ref`, `allOf` and siblings folded together, children left for later.

A `Fragment` is a schema object and its pointer; a `Node` is what one or more fragments say together about a value.
Recursive references stay lazy: a node holds the fragments of its children, and `SchemaDocument.node` folds them
when a payload gets there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from driftline.errors import DriftlineError, PayloadError
from driftline.payloads._schema import documents
from driftline.payloads._values.limits import current
from driftline.payloads._values.paths import escape_pointer, unescape_pointer
from driftline.payloads._values.patterns import PatternError, SafePattern
from driftline.payloads._values.values import Json, kind_of

JSON_TYPES = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
EXTENSION_PREFIX = "x-migration-"
# What `$ref` and `allOf` may add up to in one place: a short schema that doubles at each level has no end.
MAX_PARTS = 10_000
MAX_EXTENSION_VALUES = 10_000


class Fragment(NamedTuple):
    """A schema object (or boolean) at a pointer."""

    schema: Any
    pointer: str


Fragments = tuple[Fragment, ...]


class Extension(NamedTuple):
    """One `x-migration-*` value and its pointer."""

    value: Any
    pointer: str


@dataclass(slots=True)
class Choice:
    """A `oneOf` or `anyOf` with its discriminator, if it has one."""

    branches: list[Fragment]
    discriminator: str | None = None
    allows_null: bool = False  # `nullable: true` is beside it
    mapping: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Node:
    """What the schema says about one value."""

    pointers: tuple[str, ...]
    types: frozenset[str] | None = None
    is_nullable: bool = False
    properties: dict[str, Fragments] = field(default_factory=dict)
    patterns: list[tuple[str, Fragment]] = field(default_factory=list)
    additional: Fragments = ()
    items: Fragments = ()
    prefix_items: list[Fragments] = field(default_factory=list)
    required: list[str] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    allowed_values: list[Json] | None = None
    extensions: dict[str, Extension] = field(default_factory=dict)


class SchemaDocument:
    """Resolves references inside one document (and the files beside it) and folds fragments into nodes."""

    def __init__(self, source: documents.SchemaText, files: documents.FileReader | None = None) -> None:
        self.source = source
        self.read_files: dict[str, bytes] = {}
        self.files = files  # beside the schema
        self._sources: dict[str, documents.SchemaText] = {"": source}
        self._nodes: dict[tuple[str, ...], Node] = {}
        self._first_pointers: dict[int, str] = {}
        self._parts = 0

    def error(self, message: str, pointer: str, **details: Any) -> PayloadError:
        """A `SCHEMA_PARSE_ERROR` with the pointer, and line and column where the schema is text."""
        place = self.position(pointer)
        where = f" at {pointer or '/'}" + (f" (line {place['line']}, column {place['column']})" if place else "")
        return PayloadError(
            message + where,
            code="SCHEMA_PARSE_ERROR",
            details={**place, "pointer": pointer, "reason": message, **details},
        )

    def position(self, pointer: str) -> dict[str, int]:
        """Line and column of the value at a pointer; empty where the schema is no text."""
        name, inner = documents.split_pointer(pointer)
        return self._sources[name].position(inner) if name in self._sources else {}

    def resolve(self, reference: str, at: str) -> Fragment:
        """The fragment that a `$ref` names; `at` is the pointer of the reference."""
        if self.files is None and not reference.startswith("#"):
            raise self.error(f"external $ref {reference!r}: the fragment must be self-contained", at)
        try:
            name, inner = documents.file_of_reference(reference, documents.split_pointer(at)[0])
        except ValueError as error:
            raise self.error(f"external $ref {reference!r}: {error}", at) from None
        if name not in self._sources and self.files is not None:
            current().check()
            try:
                content = self.files.read(name)
                self._sources[name] = documents.load_schema(content)
            except (ValueError, DriftlineError) as error:
                raise self.error(f"$ref {reference!r}: {error}", at) from None
            self.read_files[name] = content
        if inner and not inner.startswith("/"):
            return self._anchor(name, inner, at)
        found = self.lookup(documents.joined_pointer(name, inner))
        if found is None:
            raise self.error(f"dangling $ref {reference!r}", at)
        return found

    def lookup(self, pointer: str) -> Fragment | None:
        """The value at a pointer, or None."""
        name, inner = documents.split_pointer(pointer)
        value = self._sources[name].content
        for token in inner.split("/")[1:]:
            key = unescape_pointer(token)
            if isinstance(value, dict) and key in value:
                value = value[key]
            elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            else:
                return None
        # `file.yaml` and `file.yaml#` are the same place.
        return Fragment(value, documents.joined_pointer(name, inner))

    def follow(self, fragment: Fragment) -> Fragment:
        """The object behind a chain of `$ref`s, for path items and responses."""
        seen: set[str] = set()
        while isinstance(fragment.schema, dict) and isinstance(fragment.schema.get("$ref"), str):
            if fragment.pointer in seen:
                raise self.error("the $ref loop never reaches a schema", fragment.pointer)
            seen.add(fragment.pointer)
            fragment = self.resolve(fragment.schema["$ref"], f"{fragment.pointer}/$ref")
        return fragment

    def _anchor(self, file: str, name: str, at: str) -> Fragment:
        for fragment in objects_of(Fragment(self._sources[file].content, documents.joined_pointer(file, ""))):
            if fragment.schema.get("$anchor") == name:
                return fragment
        raise self.error(f"dangling $ref '#{name}'", at)

    def canonical(self, fragments: Fragments) -> Fragments:
        """Fragments under the first pointer that led to them: a YAML anchor is one schema, however often it is used."""
        return tuple(
            Fragment(schema, self._first_pointers.setdefault(id(schema), pointer))
            if isinstance(schema, dict)
            else Fragment(schema, pointer)
            for schema, pointer in fragments
        )

    def node(self, fragments: Fragments) -> Node:
        """Fold fragments (later ones win) into one node."""
        fragments = self.canonical(fragments)
        key = tuple(dict.fromkeys(fragment.pointer for fragment in fragments))
        node = self._nodes.get(key)
        if node is None:
            current().check()
            node = Node(key)
            self._parts = 0
            for fragment in fragments:
                node.types = _narrowed(node.types, self._fold(fragment, node, ()))
            self._nodes[key] = node
        return node

    def _fold(self, fragment: Fragment, node: Node, chain: tuple[str, ...]) -> frozenset[str] | None:
        """Fold a fragment and all that it refers to into a node; the types that it allows."""
        schema, pointer = fragment
        if isinstance(schema, bool):
            return None
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise self.error(f"$ref and allOf add up to more than {MAX_PARTS:,} schemas in one place", pointer)
        if not isinstance(schema, dict):
            raise self.error(f"a schema must be an object, not {kind_of(schema)}", pointer)
        if pointer in chain:
            raise self.error("the $ref loop never reaches a schema", pointer, loop=[*chain, pointer])
        chain = (*chain, pointer)
        known_choices = len(node.choices)
        types: frozenset[str] | None = None
        reference = schema.get("$ref")
        if isinstance(reference, str):
            types = self._fold(self.resolve(reference, f"{pointer}/$ref"), node, chain)
        for _, part in self._children(schema, "allOf", pointer, list):
            types = _narrowed(types, self._fold(part, node, chain))
        types = _narrowed(types, self._types(schema, pointer))
        self._fold_own(schema, pointer, node, is_part=len(chain) > 1)
        if schema.get("nullable") is True:
            # Real documents write it beside $ref, allOf and the like, and mean that null is allowed (payloads §2.4).
            node.is_nullable = True
            types = None if types is None else types | {"null"}
            for choice in node.choices[known_choices:]:
                choice.allows_null = True
        return types

    def _fold_own(self, schema: dict[str, Any], pointer: str, node: Node, *, is_part: bool) -> None:
        for name, child in self._children(schema, "properties", pointer, dict):
            node.properties[name] = _joined(node.properties.get(name, ()), child)
        for text, child in self._children(schema, "patternProperties", pointer, dict):
            try:
                SafePattern(text)
            except PatternError as error:
                message = f"patternProperties: {text!r} is not a regular expression ({error})"
                raise self.error(message, child.pointer) from None
            node.patterns.append((text, child))
        if isinstance(schema.get("additionalProperties"), dict):
            child = Fragment(schema["additionalProperties"], f"{pointer}/additionalProperties")
            node.additional = _joined(node.additional, child)
        self._fold_items(schema, pointer, node)
        node.required.extend(name for name in self._required(schema, pointer) if name not in node.required)
        self._fold_choices(schema, pointer, node, is_part=is_part)
        if isinstance(schema.get("enum"), list):
            node.allowed_values = schema["enum"]
        elif "const" in schema:
            node.allowed_values = [schema["const"]]
        for name, value in schema.items():
            if name.startswith(EXTENSION_PREFIX):
                place = f"{pointer}/{escape_pointer(name)}"
                if isinstance(value, dict | list) and documents.unfolded_size(value) > MAX_EXTENSION_VALUES:
                    raise self.error(f"the extension holds more than {MAX_EXTENSION_VALUES:,} values", place)
                node.extensions[name] = Extension(value, place)

    def _fold_items(self, schema: dict[str, Json], pointer: str, node: Node) -> None:
        items = schema.get("items")
        if isinstance(items, dict):
            node.items = _joined(node.items, Fragment(items, f"{pointer}/items"))
        elif isinstance(items, list):
            node.prefix_items = [(part,) for _, part in self._children(schema, "items", pointer, list)]
        elif items is not None and not isinstance(items, bool):
            raise self.error("items must be a schema", f"{pointer}/items")
        if "prefixItems" in schema:
            node.prefix_items = [(part,) for _, part in self._children(schema, "prefixItems", pointer, list)]

    def _fold_choices(self, schema: dict[str, Json], pointer: str, node: Node, *, is_part: bool) -> None:
        name, targets = self._discriminator(schema, pointer)
        for keyword in ("oneOf", "anyOf"):
            branches = [branch for _, branch in self._children(schema, keyword, pointer, list)]
            if branches:
                node.choices.append(self._choice(branches, name, targets))
        # A parent that its children extend with allOf must not choose among these children again.
        if targets and not is_part and not {"oneOf", "anyOf"} & schema.keys():
            node.choices.append(self._choice(list(dict.fromkeys(targets.values())), name, targets))

    def _choice(self, branches: list[Fragment], name: str | None, targets: dict[str, Fragment]) -> Choice:
        choice = Choice(branches, name)
        if name is None:
            return choice
        places = [branch.pointer for branch in branches]
        for position, (schema, pointer) in enumerate(branches):
            if isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
                places[position] = self.resolve(schema["$ref"], f"{pointer}/$ref").pointer
        for position, place in enumerate(places):
            choice.mapping[unescape_pointer(place.rsplit("/", 1)[-1])] = position
        for value, target in targets.items():
            if target.pointer in places:
                choice.mapping[value] = places.index(target.pointer)
        return choice

    def _discriminator(self, schema: dict[str, Any], pointer: str) -> tuple[str | None, dict[str, Fragment]]:
        given = schema.get("discriminator")
        if isinstance(given, str):  # OpenAPI 2.0
            return given, {}
        if not isinstance(given, dict) or not isinstance(given.get("propertyName"), str):
            return None, {}
        targets: dict[str, Fragment] = {}
        mapping = given.get("mapping")
        for value, target in mapping.items() if isinstance(mapping, dict) else ():
            if not isinstance(target, str):
                continue
            at = f"{pointer}/discriminator/mapping/{escape_pointer(value)}"
            reference = target if "/" in target or target.startswith("#") else f"#/components/schemas/{target}"
            targets[value] = self.resolve(reference, at)
        return given["propertyName"], targets

    def _types(self, schema: dict[str, Any], pointer: str) -> frozenset[str] | None:
        given = schema.get("type")
        if given is None:
            return None
        names = given if isinstance(given, list) else [given]
        for name in names:
            if not isinstance(name, str) or name not in JSON_TYPES:
                raise self.error(f"unknown type {name!r}", f"{pointer}/type")
        return frozenset(names)

    def _required(self, schema: dict[str, Any], pointer: str) -> list[str]:
        required = schema.get("required", [])
        if isinstance(required, bool):  # OpenAPI 2.0 and early drafts write it on the property
            return []
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise self.error("required must be a list of names", f"{pointer}/required")
        return required

    def _children(
        self, schema: dict[str, Any], keyword: str, pointer: str, kind: type[Any]
    ) -> Iterator[tuple[str, Fragment]]:
        """The schemas under a keyword, by their names or, in a list, their positions."""
        given: Any = schema.get(keyword, kind())
        if not isinstance(given, kind):
            needed = "an object" if kind is dict else "a list of schemas"
            raise self.error(f"{keyword} must be {needed}", f"{pointer}/{keyword}")
        for name, child in given.items() if isinstance(given, dict) else enumerate(given):
            yield str(name), Fragment(child, f"{pointer}/{keyword}/{escape_pointer(str(name))}")


def open_document(schema: object) -> SchemaDocument:
    """The document of a schema: text, bytes, an object, a `Bundle`, or a `Path`, which alone has files beside it."""
    content, files = documents.opened(schema)
    return SchemaDocument(documents.load_schema(content), files)


def parts_of(document: SchemaDocument, fragment: Fragment) -> Iterator[Fragment]:
    """What `$ref` and `allOf` add to a schema, each once."""
    waiting, seen = [fragment], {fragment.pointer}
    while waiting:
        schema, pointer = waiting.pop()
        if not isinstance(schema, dict):
            continue
        found = [Fragment(part, f"{pointer}/allOf/{number}") for number, part in enumerate(schema.get("allOf") or ())]
        if isinstance(schema.get("$ref"), str):
            found.append(document.resolve(schema["$ref"], f"{pointer}/$ref"))
        for part in found:
            if part.pointer not in seen:
                seen.add(part.pointer)
                waiting.append(part)
                yield part


def _joined(known: Fragments, fragment: Fragment) -> Fragments:
    return known if any(part.pointer == fragment.pointer for part in known) else (*known, fragment)


def _narrowed(known: frozenset[str] | None, types: frozenset[str] | None) -> frozenset[str] | None:
    """What both allow; where nothing is left, the later one counts."""
    if known is None or types is None:
        return types if known is None else known
    both, either = known & types, known | types
    return (both | {"integer"} if {"number", "integer"} <= either and "number" not in both else both) or types


def objects_of(fragment: Fragment) -> Iterator[Fragment]:
    """All objects inside a value, itself first."""
    waiting = [fragment]
    seen: set[int] = set()  # YAML aliases share values: each is walked once
    while waiting:
        value, pointer = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            yield Fragment(value, pointer)
            waiting.extend(Fragment(child, f"{pointer}/{escape_pointer(name)}") for name, child in value.items())
        elif isinstance(value, list):
            waiting.extend(Fragment(child, f"{pointer}/{index}") for index, child in enumerate(value))
