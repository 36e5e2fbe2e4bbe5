"""The languages that are indexed, and the definitions of a parsed file: names, containers, parts, visibility.

The tables are in `languages.toml`, which documents what its captures mark. Only definitions are visited one by one;
everything else is a result of the query.
"""

from __future__ import annotations

import importlib
import re
import tomllib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from driftline.core import JsonObject

if TYPE_CHECKING:
    from tree_sitter import Node, Parser, Query


class Language(msgspec.Struct, frozen=True):
    """How one language is indexed."""

    name: str
    query: str
    grammar: str = ""
    endings: tuple[str, ...] = ()
    function: str = "language"
    mode: str = "code"
    wrappers: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
    equal_quotes: bool = False
    docstrings: bool = False
    declarators: bool = False
    attributes: frozenset[str] = frozenset()
    file_names: tuple[str, ...] = ()
    extended_by: str | None = None
    extended_lines: str = ""
    extended_words: str = ""

    def to_dict(self) -> JsonObject:
        """Everything that decides what is extracted, the version of the grammar included."""
        members = msgspec.structs.asdict(self)
        plain = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in members.items()}
        return {**plain, "grammar": [self.grammar, version(self.grammar.replace("_", "-")) if self.grammar else ""]}


def _read_tables() -> dict[str, Language]:
    content = tomllib.loads(files("driftline.codeindex").joinpath("languages.toml").read_text("utf-8"))
    found = {}
    for name, table in content["languages"].items():
        query = "".join(content["queries"][part] for part in table.pop("queries", [name]))
        found[name] = msgspec.convert({"name": name, "query": query, **table}, Language)
    return found


LANGUAGES = _read_tables()
# Formats whose definitions are entries: keys of a document.
ENTRY_LANGUAGES = frozenset(("json", "yaml", "toml", "markdown"))

_BY_ENDING = {ending: language for language in LANGUAGES.values() for ending in language.endings}
_BY_FILE_NAME = {name: language for language in LANGUAGES.values() for name in language.file_names}


def language_of(path: str) -> Language | None:
    """The language of a file, by its name.

    >>> language_of("src/a.PY").name, language_of("README") is None
    ('python', True)
    """
    name = path.rpartition("/")[2]
    dot = name.rfind(".")
    return _BY_FILE_NAME.get(name) or _BY_ENDING.get(name[dot:].lower() if dot > 0 else "")


@cache
def loaded(name: str) -> tuple[Parser, Query]:
    """The parser and the compiled query of a language; the grammars are an extra."""
    from tree_sitter import Language as Grammar
    from tree_sitter import Parser, Query

    language = LANGUAGES[name]
    grammar = Grammar(getattr(importlib.import_module(language.grammar), language.function)())
    return Parser(grammar), Query(grammar, language.query)


# The definitions of one parsed file.


Span = tuple[int, int]
Captures: TypeAlias = "dict[str, list[Node]]"

_KINDS = ("function", "class", "scope", "default", "prototype", "value")
_BODY_FIELDS = ("body", "value", "right", "accessors")
_FUNCTION_VALUES = frozenset(("arrow_function", "function_expression", "generator_function", "lambda"))
_CLASS_VALUES = frozenset(("class",))
_MAX_NAME = 200
_TYPE_ARGUMENTS = re.compile(r"<.*", re.DOTALL)
_RECEIVER_SIGNS = re.compile(r"[*&()\s]|\[.*|<.*", re.DOTALL)
_RUBY_LABELS = (b"private", b"protected", b"public")
_HIDDEN_PATH = re.compile(
    r"(^|/)(tests?|testing|__tests__|spec|docs?|examples?|benchmarks?|scripts?|\.github)(/|$)"
    r"|(^|/)(conftest|setup)\.py$|(^|/)test_[^/]*$|_test\.\w+$|\.(test|spec)\.\w+$"
)
_HEADERS = (".h", ".hpp", ".hh", ".hxx", ".ipp")


@dataclass(slots=True, eq=False)
class Definition:
    """One definition; positions are byte offsets, and `start` to `end` takes decorators and modifiers in."""

    kind: str
    name: str
    parent: str
    start: int
    end: int
    named: Span
    body: Node | None
    node: Node
    head: Node
    container: Definition | None
    # Where definitions inside of it are; not these themselves, for cycles would keep whole trees in memory.
    inner: list[Span] = field(default_factory=list)
    calls: set[bytes] = field(default_factory=set)
    public: bool = False
    # Where the header ends; stored, because each access to a node calls the parser.
    body_start: int = 0
    body_end: int = 0

    def __post_init__(self) -> None:
        self.body_start, self.body_end = self.body.byte_range if self.body is not None else (self.end, self.end)


def definitions(language: Language, captures: Captures) -> list[Definition]:
    """All definitions in the order of the source; what is inside of a function belongs to its body."""
    names = sorted((node.byte_range, node) for node in captures.get("n", ()))
    starts = [span[0] for span, _ in names]
    around = ".".join(_name(language, node)[0] for node in captures.get("around", ()))
    found: list[Definition] = []
    enclosing: list[Definition] = []
    # Of several kinds of one node, the first one counts.
    nodes = {node.byte_range: (kind, node) for kind in reversed(_KINDS) for node in reversed(captures.get(kind, ()))}
    for (start, end), (kind, node) in sorted(nodes.items(), key=lambda item: (item[0][0], -item[0][1])):
        while enclosing and enclosing[-1].node.end_byte <= start:
            enclosing.pop()
        container = enclosing[-1] if enclosing else None
        if container is not None and container.kind == "function":
            continue
        place = bisect_left(starts, start)
        name_node = names[place][1] if place < len(names) and names[place][0][1] <= end else None
        if name_node is None and kind != "default":
            continue
        definition = _definition(language, kind, node, name_node, container, around)
        if container is not None:
            container.inner.append((definition.start, definition.end))
        enclosing.append(definition)
        found.append(definition)
    return found


def _definition(
    language: Language, kind: str, node: Node, name_node: Node | None, container: Definition | None, around: str
) -> Definition:
    kind, head, body = _parts(language, kind, node)
    outer = _outer(language, node)
    if kind == "default" or name_node is None:
        name, named = "default", (node.start_byte, node.start_byte)
        is_function = body is not None and node.type in _FUNCTION_VALUES
        kind = "class" if node.type in _CLASS_VALUES else "function" if is_function else "value"
        body = node if kind == "value" else body
    else:
        name, named = _name(language, name_node)
    prefix = _receiver(language, node)
    if language.name == "rust" and kind == "scope":
        trait = node.child_by_field_name("trait")
        parts = [name] if trait is None else [name, _text(trait)]
        name = " as ".join(_TYPE_ARGUMENTS.sub("", part) for part in parts)
    inside = ".".join(part for part in (container.name if container else around, prefix) if part)
    qualified = f"{inside}.{name}" if inside else name
    start = _with_attributes(language, outer)
    shown = "entry" if language.name in ENTRY_LANGUAGES and kind == "value" else kind
    parent = qualified.rpartition(".")[0] if language.declarators else inside
    return Definition(shown, qualified, parent, start, outer.end_byte, named, body, node, head, container)


def _parts(language: Language, kind: str, node: Node) -> tuple[str, Node, Node | None]:
    """The kind, the node with the parameters and the body; a variable that holds a function is a function."""
    if kind == "prototype":
        return "function", node, None
    body = None
    for name in _BODY_FIELDS:
        if (body := node.child_by_field_name(name)) is not None:
            break
    if language.name == "go" and kind == "class":
        body = node.child_by_field_name("type")
    if body is None and kind == "value":
        declarator = node.child_by_field_name("declarator")
        body = declarator.child_by_field_name("value") if declarator is not None else _last_value(node)
    if node.type == "macro_definition":
        body = node.children[2] if node.child_count > 2 else None
    if kind != "value" or body is None:
        return kind, node, body
    inner = body.child_by_field_name("body")
    if inner is not None and body.type in _FUNCTION_VALUES:
        return "function", body, inner
    return ("class", body, inner) if inner is not None and body.type in _CLASS_VALUES else (kind, node, body)


def _last_value(node: Node) -> Node | None:
    """The value of an assignment whose grammar does not name it: what stands behind the equals sign."""
    children = node.children
    for place, child in enumerate(children[:-1]):
        if child.type == "=" or (child.type == ":" and node.type != "assignment"):
            return children[place + 1]
    if node.type == "section":
        return children[1] if len(children) > 1 else None
    if node.type in ("table", "table_array_element"):
        return next((child for child in children if child.type == "pair"), None)
    return None


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "backslashreplace")


def _name(language: Language, node: Node) -> tuple[str, Span]:
    if language.declarators:
        node = _declared(node)
    text = " ".join(_text(node).split())
    if language.name in ENTRY_LANGUAGES:
        text = text.strip("\"'# ")
    return text.replace("::", ".")[:_MAX_NAME], node.byte_range


def _declared(node: Node) -> Node:
    inner = node.child_by_field_name("declarator")
    if inner is None and node.type in ("parenthesized_declarator", "reference_declarator", "attributed_declarator"):
        inner = next(iter(node.named_children), None)
    return node if inner is None else _declared(inner)


def _receiver(language: Language, node: Node) -> str:
    """What a definition belongs to although it does not stand inside of it."""
    if language.name == "go" and node.type == "method_declaration":
        receiver = node.child_by_field_name("receiver")
        types = [child.child_by_field_name("type") for child in receiver.named_children] if receiver is not None else []
        found = next((item for item in types if item is not None), None)
        return _RECEIVER_SIGNS.sub("", _text(found)) if found is not None else ""
    target = node.child_by_field_name("object") if language.name == "ruby" and node.type == "singleton_method" else None
    return _text(target) if target is not None else ""


def _outer(language: Language, node: Node) -> Node:
    """The definition with what wraps it: decorators, `export`, the statement around it."""
    while (above := node.parent) is not None and above.type in language.wrappers:
        if above.type in language.lists and sum(child.type == node.type for child in above.named_children) > 1:
            break
        node = above
    return node


def _with_attributes(language: Language, outer: Node) -> int:
    """Where the attributes in front of a definition begin."""
    start, before = outer.start_byte, outer
    if not language.attributes:
        return start
    while (previous := before.prev_sibling) is not None:
        if previous.type in language.attributes:
            start = previous.start_byte
        elif "comment" not in previous.type:
            break
        before = previous
    return start


# Visibility in languages whose API is not read from their own facts; the path is considered later (index diffs §6.5).


def mark_plain(found: Sequence[Definition]) -> None:
    """Mark what a file of C, C++, Ruby or Bash lets others see; members only where their container is."""
    for item in found:
        above = item.container
        hidden = above is not None and above.kind != "scope" and not above.public
        leaf = item.name.rpartition(".")[2]
        item.public = item.kind == "scope" or not (hidden or leaf.startswith("_") or _is_private(item))


def _is_private(item: Definition) -> bool:
    """Whether a word of its own, or the access label above it, hides a definition."""
    if any(child.type == "storage_class_specifier" and child.text == b"static" for child in item.node.children):
        return item.container is None
    if item.container is None or item.container.kind != "class":
        return False
    outer = item.node.parent
    if outer is not None and outer.type == "argument_list" and outer.parent is not None:
        return outer.parent.child_by_field_name("method") is not None and (outer.parent.text or b"").startswith(b"private")
    before: Node | None = item.node if outer is None or outer.type != "template_declaration" else outer
    while before is not None and (before := before.prev_sibling) is not None:
        label = before.text or b""
        if before.type == "access_specifier" or (before.type == "identifier" and label in _RUBY_LABELS):
            return label.startswith(b"private")
    return item.container.node.type == "class_specifier"


def path_is_public(language: str | None, path: str) -> bool:
    """Whether definitions of a file can be public at all: tests, docs, examples and data never are.

    >>> path_is_public("python", "pkg/_impl.py"), path_is_public("go", "internal/a.go"), path_is_public("c", "a.h")
    (False, False, True)
    """
    if language in ENTRY_LANGUAGES or _HIDDEN_PATH.search(path):
        return False
    if language == "python":
        modules = path.rpartition(".")[0].split("/")
        return not any(part.startswith("_") and not part.startswith("__") for part in modules)
    if language == "go":
        return "/internal/" not in f"/{path}"
    return path.endswith(_HEADERS) if language in ("c", "cpp") else True
