"""One blob in, the rows of an index out: a pure function of language and bytes, so that it is done once a blob.

Nothing here knows the path of a file (index diffs §6.2).
"""

from __future__ import annotations

import re
from binascii import b2a_base64
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from driftline.codeindex.definitions import Captures, Definition, Span, definitions
from driftline.codeindex.imports import imported_names, loading_calls
from driftline.codeindex.languages import ENTRY_LANGUAGES, LANGUAGES, Language, loaded
from driftline.codeindex.normal_text import MARKS, Layout, NormalText
from driftline.codeindex.publicity import mark_public

SKETCH_VALUES = 64
MIN_SHINGLES = 4
MAX_CALLEE = 80
MAX_SIGNATURE = 2000

_OPEN_NODES = frozenset(("table", "table_array_element", "section", "macro_definition"))
_SEPARATORS = MARKS + b";,"
_BRACKET = re.compile(r"[(\[{<>}\])] |[ ,][)\]}>]")
_OPEN_BLANK = re.compile(r"([(\[{<]) ")
_CLOSE_BLANK = re.compile(r",? ([)\]}>])")
_EXTENDED_WORDS = {"cpp": re.compile(rb"\b(class|namespace|template|using|typename|virtual|constexpr|nullptr)\b|::")}
_LAST_COMMA = re.compile(r",([)\]])")


@dataclass(slots=True)
class Extracted:
    """What one blob holds: chunk rows without a path, imports, and whether the parser had to guess."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    parse_error: bool = False


def extract(language_name: str, source: bytes) -> Extracted:
    """The definitions of a file."""
    from tree_sitter import QueryCursor

    language = LANGUAGES[language_name]
    parser, query = loaded(language_name)
    root = parser.parse(source).root_node
    if root.has_error and language.extended_by and _EXTENDED_WORDS[language.extended_by].search(source):
        return extract(language.extended_by, source)
    captures = QueryCursor(query).captures(root)
    found = definitions(language, captures)
    reader = _Reader(language, source, captures, found, root)
    mark_public(language, source, found)
    rows = reader.rows()
    return Extracted(rows, imported_names(language, source, captures), root.has_error)


class _Reader:
    """Reads signature, body and doc of each definition out of the normal text of its file."""

    def __init__(
        self, language: Language, source: bytes, captures: Captures, found: list[Definition], root: Any
    ) -> None:
        self.language = language
        self.source = source
        self.found = found
        self.root = root
        self.comments = _spans(captures, "c")
        self.comment_ends = [end for _, end in self.comments]
        self.normal = NormalText.of(source, self._layout(captures))
        self.newlines = np.flatnonzero(np.frombuffer(source, np.uint8) == 10).tolist()
        self.imports = [span for name in ("imp", "import") for span in _spans(captures, name)]
        self.imports += loading_calls(source, captures)
        self.module_calls = self._give_calls(captures)

    def _layout(self, captures: Captures) -> Layout:
        comments = {start for start, _ in self.comments}
        blocks = _spans(captures, "b")
        taken = comments.union(start for start, _ in blocks)
        return Layout(
            comments=self.comments,
            strings=_spans(captures, "t"),
            statements=sorted({start for start, _ in _spans(captures, "s")} - taken),
            blocks=blocks,
            nodes=[start for start, _ in _spans(captures, "m")],
            kept_commas=[start for start, _ in _spans(captures, "k")],
            joined=_spans(captures, "j"),
            equal_quotes=self.language.equal_quotes,
        )

    def _give_calls(self, captures: Captures) -> set[str]:
        """Give each called name to the innermost definition around it; the rest is the module's."""
        module: set[str] = set()
        enclosing: list[Definition] = []
        waiting = iter(self.found)
        following = next(waiting, None)
        for start, end in _spans(captures, "call"):
            while following is not None and following.start <= start:
                enclosing.append(following)
                following = next(waiting, None)
            while enclosing and enclosing[-1].end <= start:
                enclosing.pop()
            text = self.source[start:end] if end - start <= MAX_CALLEE else b"("
            if b"(" not in text and b"\n" not in text:
                owner = next((item for item in reversed(enclosing) if item.end > start), None)
                (owner.calls if owner is not None else module).add(_decoded(text))
        return module

    def rows(self) -> list[dict[str, Any]]:
        """All rows, the module's last."""
        seen: dict[str, int] = {}
        rows = []
        for item in self.found:
            if item.kind == "scope":
                continue
            ordinal = seen[item.name] = seen.get(item.name, -1) + 1
            rows.append(self._row(item, ordinal))
        module = self._module_row()
        return [*rows, module] if module is not None else rows

    def _row(self, item: Definition, ordinal: int) -> dict[str, Any]:
        docstring = self._docstring(item)
        header_spans = self._header_spans(item)
        header = [self.normal.between(*span) for span in header_spans]
        body, own = self._body(item, docstring)
        first = docstring[1] if docstring else item.body_start
        body_end = item.body.end_byte if item.body is not None else item.end
        end = max(first, min(body_end, item.end)) if item.body is not None else first
        sketch, shingles = self._sketch(first, end)
        return {
            "name": item.name,
            "ordinal": ordinal,
            "kind": item.kind,
            "parent": item.parent,
            "start": item.start,
            "end": item.end,
            "startLine": self._line(item.start),
            "endLine": self._line(max(item.end - 1, item.start)),
            "signature": self._signature(item),
            "params": self._params(item),
            "sigHash": _hash(b"\0".join(header)),
            "sigTokens": sum(self.normal.count(*span) for span in header_spans),
            "bodyHash": _hash(body) if item.body is not None else "",
            "ownTokens": own,
            "tokens": self.normal.count(first, end),
            "docHash": self._doc_hash(item, docstring),
            "sketch": sketch,
            "shingles": shingles,
            "exported": item.public,
            "calls": sorted(item.calls),
        }

    def _header_spans(self, item: Definition) -> list[Span]:
        """The signature without the own name, so that a rename of an unchanged definition is exact."""
        start, end = item.named
        if item.start <= start and end <= item.body_start:
            return [(item.start, start), (end, item.body_start)]
        return [(item.start, item.body_start)]

    def _body(self, item: Definition, docstring: Span | None) -> tuple[bytes, int]:
        """The body without members and docstring, and its number of tokens."""
        if item.body is None:
            return b"", 0
        start, end = item.body_start, max(item.body.end_byte, item.end if self._is_open(item) else 0)
        cuts = [(child.start, child.end) for child in item.children] + ([docstring] if docstring else [])
        if not cuts and start < end:
            return self.normal.between(start, end), self.normal.count(start, end)
        spans = _without(start, end, cuts)
        text = b"\0".join(filter(None, (self.normal.between(*span) for span in spans)))
        if item.children:
            text = text.translate(None, _SEPARATORS + b"\0")
        return text, sum(self.normal.count(*span) for span in spans)

    def _is_open(self, item: Definition) -> bool:
        """Whether the body goes on behind its first node, as in a TOML table or under a heading."""
        return item.node.type in _OPEN_NODES

    def _docstring(self, item: Definition) -> Span | None:
        if not self.language.docstrings or item.kind not in ("function", "class") or item.body is None:
            return None
        return _docstring_of(item.body)

    def _doc_hash(self, item: Definition, docstring: Span | None) -> str:
        texts = self._comments_above(item.start)
        if docstring is not None:
            texts.append(self.source[slice(*docstring)])
        return _hash(b" ".join(b"\n".join(texts).split())) if texts else ""

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
        source = self.source[item.start : item.body_start]
        if comments := self._comments_between(item.start, item.body_start):
            pieces = _without(item.start, item.body_start, comments)
            source = b" ".join(self.source[first:last] for first, last in pieces)
        text = tidy(source).rstrip("={ ")
        if self.language.name == "python" or self.language.name in ENTRY_LANGUAGES:
            text = text.removesuffix(":").rstrip()
        return text.removesuffix(";").rstrip()[:MAX_SIGNATURE]

    def _comments_between(self, start: int, end: int) -> list[Span]:
        place = bisect_left(self.comment_ends, start)
        found = []
        while place < len(self.comments) and self.comments[place][0] < end:
            found.append(self.comments[place])
            place += 1
        return found

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
            return [tidy(single.text)] if single is not None else None
        return [tidy(child.text) for child in node.named_children if "comment" not in child.type]

    def _sketch(self, start: int, end: int) -> tuple[str, int]:
        values = self.normal.shingles_between(start, end)
        if len(values) < MIN_SHINGLES:
            return "", len(values)
        return b2a_base64(values[:SKETCH_VALUES].astype("<u4", copy=False).tobytes(), newline=False).decode(), len(
            values
        )

    def _line(self, offset: int) -> int:
        return bisect_left(self.newlines, offset) + 1

    def _module_row(self) -> dict[str, Any] | None:
        """What is left of a file without its definitions and imports; None where nothing is."""
        docstring = _docstring_of(self.root) if self.language.docstrings else None
        top = [(item.start, item.end) for item in self.found if item.container is None and item.kind != "scope"]
        inside = [(item.start, item.end) for item in self.found if item.container and item.container.kind == "scope"]
        cuts = [*top, *inside, *self.imports, *([docstring] if docstring else [])]
        spans = _without(0, len(self.source), cuts)
        text = b"\0".join(filter(None, (self.normal.between(*span) for span in spans)))
        if not text.translate(None, _SEPARATORS + b"\0 "):
            return None
        tokens = sum(self.normal.count(*span) for span in spans)
        end = len(self.source)
        doc = _hash(b" ".join(self.source[slice(*docstring)].split())) if docstring else ""
        return {
            "name": "", "ordinal": 0, "kind": "module", "parent": "", "start": 0, "end": end, "startLine": 1,
            "endLine": self._line(max(end - 1, 0)), "signature": "", "params": None, "sigHash": _hash(b""),
            "sigTokens": 0, "bodyHash": _hash(text), "ownTokens": tokens, "tokens": tokens, "docHash": doc,
            "sketch": "", "shingles": 0, "exported": False, "calls": sorted(self.module_calls),
        }  # fmt: skip


def tidy(text: bytes | None) -> str:
    """A piece of source on one line, with the blanks that people write."""
    flat = " ".join(_decoded(text or b"").split())
    if not _BRACKET.search(flat):
        return flat
    return _LAST_COMMA.sub(r"\1", _CLOSE_BLANK.sub(r"\1", _OPEN_BLANK.sub(r"\1", flat)))


def _docstring_of(body: Any) -> Span | None:
    children = (body.named_child(place) for place in range(body.named_child_count))
    first = next((child for child in children if child.type != "comment"), None)
    if first is not None and first.type == "expression_statement" and first.named_child_count == 1:
        first = first.named_child(0)
    return first.byte_range if first is not None and first.type in ("string", "concatenated_string") else None


def _spans(captures: Captures, name: str) -> list[Span]:
    return sorted(node.byte_range for node in captures.get(name, ()))


def _without(start: int, end: int, cuts: Iterable[Span]) -> list[Span]:
    """A range without some others."""
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
