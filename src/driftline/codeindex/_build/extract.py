"""The index rows of a blob: a pure function of language and bytes, so that each blob is parsed once.

The path of a file plays no part (index diffs §6.2).
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from driftline.codeindex._api import Fact, FileFacts, children, walk
from driftline.codeindex._api.readers import exported_names, facts_of
from driftline.codeindex._build.languages import Captures, Definition, Span, definitions, mark_plain
from driftline.codeindex._build.index_files import SKETCH_VALUES, Calls, ChunkMeta, ChunkRow
from driftline.codeindex._build.languages import ENTRY_LANGUAGES, LANGUAGES, Language, loaded
from driftline.codeindex._build.normalize import MARKS, Layout, NormalText

if TYPE_CHECKING:
    from tree_sitter import Node, Tree


MIN_SHINGLES = 4
MAX_CALLEE = 80
MAX_SIGNATURE = 2000

_OPEN_NODES = frozenset(("table", "table_array_element", "section", "macro_definition"))
_STRINGS = frozenset(("string", "concatenated_string"))
_SEPARATORS = MARKS + b";,"
# A blank behind an opening bracket, or a blank or comma before a closing one; found from its second byte, which is rare.
_BRACKET = re.compile(r"[ )\]}>](?:(?<=[(\[{<] )|(?<=[ ,][)\]}>]))")
_OPEN_BLANK = re.compile(r"([(\[{<]) ")
_CLOSE_BLANK = re.compile(r",? ([)\]}>])")
_LAST_COMMA = re.compile(r",([)\]])")
_LOAD = re.compile(rb"(?:require|require_relative|load|source|[.])[\s(]+([^\s()]+)")
_SCRIPTS = frozenset(("javascript", "typescript", "tsx"))
_PLAIN = frozenset(("c", "cpp", "ruby", "bash"))


@dataclass(slots=True)
class Extracted:
    """The contents of one blob: chunk rows without a path, imports, and whether it has parse errors."""

    rows: list[ChunkRow] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    parse_error: bool = False
    facts: FileFacts | None = None


def extract(language_name: str, source: bytes) -> Extracted:
    language_name, tree = parse(language_name, source)
    if tree is None:
        return Extracted(facts=facts_of(language_name, source, None))
    from tree_sitter import QueryCursor

    language, root = LANGUAGES[language_name], tree.root_node
    captures = QueryCursor(loaded(language_name)[1]).captures(root)
    found = definitions(language, captures)
    reader = _Reader(language, source, captures, found, root)
    facts, too_deep = None, False
    try:
        facts = facts_of(language_name, source, root)
    except RecursionError:
        too_deep = True  # reported as a file that was not understood
    if language_name in _PLAIN:
        mark_plain(found)
        facts = reader.plain_facts()
    elif facts is not None:
        visible = exported_names(language_name, facts)
        for item in found:
            item.public = item.kind == "scope" or item.name in visible or " as " in item.parent
    nodes = [*captures.get("imp", ()), *captures.get("reexport", ())]
    loads = {_decoded(found[1]).strip("\"'") for _, found in _loads(source, captures)}
    imports = sorted(loads.union(*(_names(language.name, node) for node in nodes)))
    return Extracted(reader.rows(), imports, root.has_error or too_deep, facts)


def parse(language_name: str, source: bytes) -> tuple[str, Tree | None]:
    """The tree of a file, and the language it turned out to be in; no tree where no grammar is needed."""
    language = LANGUAGES[language_name]
    if not language.grammar:
        return language_name, None
    extended = language.extended_by
    # A grammar takes several times longer over what it cannot read, so it is skipped where a line decides.
    if extended is not None and re.search(language.extended_lines.encode(), source, re.MULTILINE):
        return parse(extended, source)
    tree = loaded(language_name)[0].parse(source)
    if extended is not None and tree.root_node.has_error and re.search(language.extended_words.encode(), source):
        return parse(extended, source)
    return language_name, tree


class _Reader:
    """Reads signature, body and doc of each definition out of the normal text of its file."""

    def __init__(
        self, language: Language, source: bytes, captures: Captures, found: list[Definition], root: Node
    ) -> None:
        self.language, self.source, self.found, self.root = language, source, found, root
        self.comments = _spans(captures, "c")
        self.comment_ends = [end for _, end in self.comments]
        self.normal = NormalText.of(source, self._layout(captures))
        self.newlines = np.flatnonzero(np.frombuffer(source, np.uint8) == 10).tolist()
        self.imports = [span for name in ("imp", "import") for span in _spans(captures, name)]
        self.imports += [span for span, _ in _loads(source, captures)]
        self.module_calls = self._assign_calls(captures)

    def _layout(self, captures: Captures) -> Layout:
        blocks = _spans(captures, "b")
        taken = {start for spans in (self.comments, blocks) for start, _ in spans}
        return Layout(
            comments=self.comments,
            strings=_spans(captures, "t"),
            statements=sorted(set(_starts(captures, "s")) - taken),
            blocks=blocks,
            nodes=_starts(captures, "m"),
            kept_commas=_starts(captures, "k"),
            joined=_spans(captures, "j"),
            dropped=_starts(captures, "d"),
            equal_quotes=self.language.equal_quotes,
        )

    def _assign_calls(self, captures: Captures) -> set[bytes]:
        """Add each called name to the innermost definition around it; the rest is the module's, expressions belong to none."""
        module: set[bytes] = set()
        enclosing: list[Definition] = []
        waiting = iter(self.found)
        following = next(waiting, None)
        for start, end in _spans(captures, "call"):
            while following is not None and following.start <= start:
                enclosing.append(following)
                following = next(waiting, None)
            while enclosing and enclosing[-1].end <= start:
                enclosing.pop()
            called = self.source[start:end]
            if len(called) <= MAX_CALLEE and b"(" not in called and b"\n" not in called:
                (enclosing[-1].calls if enclosing else module).add(called)
        return module

    def rows(self) -> list[ChunkRow]:
        """All rows, the module's last."""
        seen: Counter[str] = Counter()
        rows = []
        for item in (item for item in self.found if item.kind != "scope"):
            rows.append(self._row(item, seen[item.name]))
            seen[item.name] += 1
        return [*rows, *filter(None, [self._module_row()])]

    def plain_facts(self) -> FileFacts:
        """Names and signatures, where no more is known about a language."""
        shown = (item for item in self.found if item.public and item.kind != "scope")
        return FileFacts(names=[Fact(i.name, "plain", self._line(i.start), value=self._signature(i)) for i in shown])

    def _row(self, item: Definition, ordinal: int) -> ChunkRow:
        body_node = item.body if self.language.docstrings and item.kind in ("function", "class") else None
        docstring = _docstring_of(body_node) if body_node is not None else None
        docs = self._comments_above(item.start) + ([self.source[slice(*docstring)]] if docstring else [])
        # Without the own name, so that a rename of an unchanged definition is exact.
        inside = item.start <= item.named[0] and item.named[1] <= item.body_start
        header = [(item.start, item.named[0]), (item.named[1], item.body_start)] if inside else [(item.start, item.body_start)]
        heads = [self.normal.measured(*span) for span in header]
        body, own = self._body(item, docstring)
        first = docstring[1] if docstring else item.body_start
        end = max(first, min(item.body_end, item.end)) if item.body is not None else first
        sketch, shingles = self._sketch(first, end)
        meta = ChunkMeta(
            signature=self._signature(item),
            params=self._params(item),
            sigHash=_hash(b"\0".join([text for text, _ in heads])),
            bodyHash=_hash(body) if item.body is not None else "",
            docHash=_hash(b" ".join(b"\n".join(docs).split())) if docs else "",
            sketch=sketch,
            shingles=shingles,
            tokens=self.normal.count(first, end),
            ownTokens=own,
            sigTokens=sum([tokens for _, tokens in heads]),
            parent=item.parent,
            exported=item.public,
            ordinal=ordinal,
        )
        return self._placed(item.kind, item.name, (item.start, item.end), item.calls, meta)

    def _placed(self, kind: str, name: str, span: Span, calls: set[bytes], meta: ChunkMeta) -> ChunkRow:
        start, end = span
        lines = self._line(start), self._line(max(end - 1, start))
        pairs = [(name, called) for called in sorted(map(_decoded, calls))]
        return ChunkRow("", "", start, end, *lines, kind, name, Calls(pairs), meta)

    def _body(self, item: Definition, docstring: Span | None) -> tuple[bytes, int]:
        """The body without members and docstring, and its number of tokens."""
        if item.body is None:
            return b"", 0
        # In a TOML table or under a heading, the body goes on behind its first node.
        start, end = item.body_start, max(item.body_end, item.end if item.node.type in _OPEN_NODES else 0)
        cuts = [*item.inner, docstring] if docstring else item.inner
        if not cuts and start < end:
            return self.normal.measured(start, end)
        text, tokens = self._joined(_without(start, end, cuts))
        return text.translate(None, _SEPARATORS + b"\0") if item.inner else text, tokens

    def _joined(self, spans: list[Span]) -> tuple[bytes, int]:
        parts = [self.normal.measured(*span) for span in spans]
        return b"\0".join([text for text, _ in parts if text]), sum([tokens for _, tokens in parts])

    def _comments_above(self, start: int) -> list[bytes]:
        """Comments on their own lines right above."""
        texts: list[bytes] = []
        place = bisect_left(self.comment_ends, start + 1) - 1
        while place >= 0:
            first, last = self.comments[place]
            gap = self.source[last:start]
            ends_line = self.source[last - 1 : last] == b"\n"
            if gap.strip() or gap.count(b"\n") > (0 if ends_line else 1):
                break
            if self.source[self.source.rfind(b"\n", 0, first) + 1 : first].strip():
                break
            texts.insert(0, self.source[first:last])
            start = first
            place -= 1
        return texts

    def _signature(self, item: Definition) -> str:
        start, end = item.start, item.body_start
        source = self.source[start:end]
        first = last = bisect_left(self.comment_ends, start)
        while last < len(self.comments) and self.comments[last][0] < end:
            last += 1
        if first < last:
            source = b" ".join(self.source[slice(*span)] for span in _without(start, end, self.comments[first:last]))
        text = _tidy(source).rstrip("={ ")
        if self.language.name == "python" or self.language.name in ENTRY_LANGUAGES:
            text = text.removesuffix(":").rstrip()
        return text.removesuffix(";").rstrip()[:MAX_SIGNATURE]

    def _params(self, item: Definition) -> list[str] | None:
        if item.kind != "function":
            return None
        node = item.head.child_by_field_name("parameters")
        declarator = item.head.child_by_field_name("declarator") if self.language.declarators else None
        while node is None and declarator is not None:
            node = declarator.child_by_field_name("parameters")
            declarator = declarator.child_by_field_name("declarator")
        if node is None:
            single = item.head.child_by_field_name("parameter")
            return [_tidy(single.text)] if single is not None else None
        return [_tidy(child.text) for child in node.named_children if "comment" not in child.type]

    def _sketch(self, start: int, end: int) -> tuple[str, int]:
        values = self.normal.shingles_between(start, end)
        if len(values) < MIN_SHINGLES:
            return "", len(values)
        smallest = values[:SKETCH_VALUES].astype("<u4", copy=False).tobytes()
        return b2a_base64(smallest, newline=False).decode(), len(values)

    def _line(self, offset: int) -> int:
        return bisect_left(self.newlines, offset) + 1

    def _module_row(self) -> ChunkRow | None:
        """What is left of a file without its definitions and imports; None where nothing is."""
        docstring = _docstring_of(self.root) if self.language.docstrings else None
        top = [(item.start, item.end) for item in self.found if item.container is None and item.kind != "scope"]
        inside = [(item.start, item.end) for item in self.found if item.container and item.container.kind == "scope"]
        cuts = [*top, *inside, *self.imports, *([docstring] if docstring else [])]
        text, tokens = self._joined(_without(0, len(self.source), cuts))
        if not text.translate(None, _SEPARATORS + b"\0 "):
            return None
        doc = _hash(b" ".join(self.source[slice(*docstring)].split())) if docstring else ""
        meta = ChunkMeta("", None, _hash(b""), _hash(text), doc, "", 0, tokens, tokens, 0, "", False, 0)
        return self._placed("module", "", (0, len(self.source)), self.module_calls, meta)


def _tidy(text: bytes | None) -> str:
    """A piece of source on one line, with the usual blanks."""
    flat = " ".join(_decoded(text or b"").split())
    if _BRACKET.search(flat) is None:
        return flat
    return _LAST_COMMA.sub(r"\1", _CLOSE_BLANK.sub(r"\1", _OPEN_BLANK.sub(r"\1", flat)))


def _docstring_of(body: Node) -> Span | None:
    for place in range(body.named_child_count):
        first = body.named_child(place)
        if first is None or first.type == "comment":
            continue
        if first.type == "expression_statement" and first.named_child_count == 1:
            first = first.named_child(0)
        return first.byte_range if first is not None and first.type in _STRINGS else None
    return None


def _spans(captures: Captures, name: str) -> list[Span]:
    return sorted([node.byte_range for node in captures.get(name, ())])


def _starts(captures: Captures, name: str) -> list[int]:
    return [node.start_byte for node in captures.get(name, ())]


def _without(start: int, end: int, cuts: Iterable[Span]) -> list[Span]:
    rest = []
    for first, last in sorted(cuts):
        if last <= start or first >= end:
            continue
        if first > start:
            rest.append((start, first))
        start = max(start, last)
    return [*rest, (start, end)] if start < end else rest


def _hash(text: bytes) -> str:
    return blake2b(text, digest_size=8).hexdigest()


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")


# Imports of a file, one text for each imported name.


def _loads(source: bytes, captures: Captures) -> Iterator[tuple[Span, re.Match[bytes]]]:
    # Not by a predicate in the query: those fail on names that are not UTF-8.
    for node in captures.get("load", ()):
        found = _LOAD.match(source, *node.byte_range)
        if found is not None:
            yield node.byte_range, found


def _names(language: str, node: Node) -> list[str]:
    if language == "python":
        module = node.child_by_field_name("module_name")
        future = node.type == "future_import_statement"
        head = f"from {'__future__' if module is None else _flat(module)} import" if future or module else "import"
        names = [_flat(name) for name in node.children_by_field_name("name")]
        return [f"{head} {name}" for name in names or ["*"]]
    if language in _SCRIPTS:
        source = node.child_by_field_name("source")
        if source is None:
            return []
        target = _flat(source)[1:-1]
        if node.type == "import_statement":
            return [target]
        names = [_flat(item) for item in walk(node, "export_specifier", "namespace_export")]
        names = names or ([] if children(node, "export_clause") else ["*"])
        return [target, *(f"export {name} from {target}" for name in names)]
    text = _decoded(node.text or b"")
    if language == "csharp":
        text = text.removeprefix("global ").removeprefix("using").rstrip("; ")
    return [" ".join(text.split()).strip("\"'<>`")]


def _flat(node: Node) -> str:
    return " ".join(_decoded(node.text or b"").replace("\\\n", " ").split())
