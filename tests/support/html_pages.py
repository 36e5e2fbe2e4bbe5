"""HTML documents as trees: selectors, text as a reader without scripts sees it, and faults of structure."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from hashlib import sha256
from html.parser import HTMLParser


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


VOID = _names("area base br col embed hr img input link meta source track wbr")
CONTROLS = ("input", "select", "textarea")
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
# Text of these is not rendered; everything that is not inline starts on a line of its own.
_NOT_RENDERED = _names("head title script style template datalist")
_INLINE = _names("a abbr b bdi code em i kbd mark q s small span strong sub sup time u wbr")


class Element:
    """An element with its attributes and children; the root of a document has the name ``""``.

    >>> parsed('<p class="a b">one <b>two</b></p>').one("p.b b").text
    'two'
    """

    def __init__(self, name: str, attributes: dict[str, str], parent: Element | None, line: int) -> None:
        self.name = name
        self.attributes = attributes
        self.parent = parent
        self.line = line
        self.children: list[Element | str] = []

    def __repr__(self) -> str:
        words = "".join(f' {name}="{value}"' for name, value in self.attributes.items())
        return f"<{self.name}{words}> in line {self.line}"

    def get(self, attribute: str, default: str = "") -> str:
        return self.attributes.get(attribute, default)

    def has(self, attribute: str) -> bool:
        return attribute in self.attributes

    @property
    def classes(self) -> list[str]:
        return self.get("class").split()

    @property
    def elements(self) -> list[Element]:
        """The children that are elements."""
        return [child for child in self.children if isinstance(child, Element)]

    @property
    def ancestors(self) -> Iterator[Element]:
        """The elements around this one, the nearest first; the root of the document is left out."""
        above = self.parent
        while above is not None and above.name:
            yield above
            above = above.parent

    @cached_property
    def below(self) -> list[Element]:
        """All elements below this one, in document order; asked for once the document is parsed."""
        return [each for child in self.elements for each in (child, *child.below)]

    @property
    def raw_text(self) -> str:
        """All text, unchanged."""
        return "".join(child if isinstance(child, str) else child.raw_text for child in self.children)

    @property
    def text(self) -> str:
        """The rendered text, with runs of white space as one blank."""
        return " ".join("".join(_rendered(self)).split())

    def all(self, selector: str, text: str | None = None) -> list[Element]:
        """The elements below this one that match a selector, and whose text contains `text`."""
        steps = [_Step(each) for each in re.findall(r"(?:[^\s\[]|\[[^\]]*\])+", selector)]
        found = (each for each in self.below if _matches(each, steps))
        return [each for each in found if text is None or text in each.text]

    def one(self, selector: str, text: str | None = None) -> Element:
        """The only element that matches."""
        found = self.all(selector, text)
        assert len(found) == 1, f"{len(found)} elements match {selector!r} {text or ''}: {found[:5]}"
        return found[0]

    def texts(self, selector: str) -> list[str]:
        return [each.text for each in self.all(selector)]


def _rendered(element: Element) -> Iterator[str]:
    for child in element.children:
        if isinstance(child, str):
            yield child
        elif child.name not in _NOT_RENDERED:
            gap = "" if child.name in _INLINE else " "
            yield from (gap, *_rendered(child), gap)


class _Step:
    """One compound selector: a name, `#id`, `.class`, `[attribute]`, `[attribute=value]`, `[attribute*=part]`."""

    def __init__(self, text: str) -> None:
        self.name = re.match(r"[\w-]*", text).group()  # type: ignore[union-attr]
        self.tests = re.findall(r"#[\w-]+|\.[\w-]+|\[[^\]]+\]", text)
        assert self.name + "".join(self.tests) == text, f"{text!r} is no selector that is known here"

    def fits(self, element: Element) -> bool:
        return self.name in ("", element.name) and all(self._fits(element, test) for test in self.tests)

    def _fits(self, element: Element, test: str) -> bool:
        if test[0] == "#":
            return element.get("id") == test[1:]
        if test[0] == ".":
            return test[1:] in element.classes
        name, sign, value = re.fullmatch(r"([\w-]+)(\*?=)?(.*)", test[1:-1], re.DOTALL).groups()  # type: ignore[union-attr]
        if sign is None:
            return element.has(name)
        return element.has(name) and (value in element.get(name) if sign == "*=" else element.get(name) == value)


def _matches(element: Element, steps: list[_Step]) -> bool:
    *above, last = steps
    if not last.fits(element):
        return False
    for around in element.ancestors:
        if above and above[-1].fits(around):
            above.pop()
    return not above


class Document(Element):
    """A parsed page; `faults` lists tags that do not close, and attributes or ids that occur twice."""

    def __init__(self) -> None:
        super().__init__("", {}, None, 0)
        self.faults: list[str] = []
        self.doctype = ""


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.document = Document()
        self.open: list[Element] = [self.document]

    def _fault(self, words: str) -> None:
        self.document.faults.append(f"line {self.getpos()[0]}: {words}")

    def handle_decl(self, decl: str) -> None:
        self.document.doctype = decl

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = Counter(name for name, _ in attrs)
        for name, count in names.items():
            if count > 1:
                self._fault(f"<{tag}> has {count} attributes {name}")
        element = Element(tag, {name: value or "" for name, value in attrs}, self.open[-1], self.getpos()[0])
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        names = [element.name for element in self.open[1:]]
        if tag in VOID or tag not in names:
            self._fault(f"</{tag}> closes nothing")
            return
        while (element := self.open.pop()).name != tag:
            self._fault(f"<{element.name}> of line {element.line} is not closed before </{tag}>")

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def close(self) -> None:
        super().close()
        for element in self.open[1:]:
            self._fault(f"<{element.name}> of line {element.line} is not closed")


def parsed(text: str) -> Document:
    """The tree of a page or of a part of one."""
    parser = _Parser()
    parser.feed(text)
    parser.close()
    ids = Counter(element.get("id") for element in parser.document.below if element.has("id"))
    parser.document.faults += [f"the id {name!r} occurs {count} times" for name, count in ids.items() if count > 1]
    return parser.document


# --- faults ----------------------------------------------------------------------------------------------------------
#
# Content models: https://html.spec.whatwg.org/multipage/dom.html#content-models. A browser repairs what breaks them in
# ways that no template intends.

_PARENTS = {
    "li": ("ul", "ol", "menu"), "dt": ("dl", "div"), "dd": ("dl", "div"), "tr": ("thead", "tbody", "tfoot"),
    "td": ("tr",), "th": ("tr",), "thead": ("table",), "tbody": ("table",), "caption": ("table",),
    "colgroup": ("table",), "col": ("colgroup",),
    "option": ("select", "datalist", "optgroup"), "legend": ("fieldset",), "summary": ("details",),
    "figcaption": ("figure",), "main": ("body", "div"), "title": ("head",), "meta": ("head",), "link": ("head",),
}  # fmt: skip
_CHILDREN = {
    "ul": ("li",), "ol": ("li",), "dl": ("dt", "dd", "div"), "tr": ("td", "th"), "thead": ("tr",), "tbody": ("tr",),
    "table": ("caption", "colgroup", "thead", "tbody", "tfoot"), "select": ("option", "optgroup"),
    "datalist": ("option",),
}  # fmt: skip
_FIRST = ("legend", "summary", "caption")
_TEXT_ONLY = ("title", "textarea", "option", "script", "style")
_PHRASING = _names("p h1 h2 h3 h4 h5 h6 pre span small b i em strong code mark time label button output")
_BLOCKS = _names(
    "address article aside blockquote details dialog div dl fieldset figure footer form h1 h2 h3 h4 h5 h6 header hr "
    "main nav ol p pre section table ul"
)
_NOT_INSIDE = {
    "a": ("a", "button"), "button": ("a", "button"), "form": ("form",), "label": ("label", "a", "button"),
    "input": ("a", "button"), "select": ("a", "button"), "textarea": ("a", "button"), "details": ("a", "button"),
}  # fmt: skip


def nesting_faults(document: Document) -> list[str]:
    """Tags that do not close, and elements where HTML does not allow them."""
    found = list(document.faults)
    for element in document.below:
        around = [each.name for each in element.ancestors]
        if "svg" not in around:
            found += [f"{element} is inside <{name}>" for name in _forbidden(element, around)]
            found += [f"{element} has text of its own" for _ in _own_text(element)]
            found += _misplaced_first(element)
    return found


def _forbidden(element: Element, around: list[str]) -> Iterator[str]:
    parent = around[0] if around else ""
    if parent and parent not in _PARENTS.get(element.name, (parent,)):
        yield parent
    if parent in _TEXT_ONLY or element.name not in _CHILDREN.get(parent, (element.name,)):
        yield parent
    if element.get("type") != "hidden":
        yield from (name for name in around if name in _NOT_INSIDE.get(element.name, ()))
    if element.name in _BLOCKS:
        yield from (name for name in around if name in _PHRASING)


def _own_text(element: Element) -> Iterator[str]:
    if element.name in _CHILDREN:
        yield from (child for child in element.children if isinstance(child, str) and child.strip())


def _misplaced_first(element: Element) -> Iterator[str]:
    if element.name in _FIRST and element.parent is not None and element.parent.elements[0] is not element:
        yield f"{element} is not the first child of its parent"


def reading_faults(document: Document) -> list[str]:
    """What a reader with a screen reader or without a mouse would miss."""
    return [
        *_head_faults(document),
        *_heading_faults(document),
        *_name_faults(document),
        *_reference_faults(document),
        *(fault for table in document.all("table") for fault in _table_faults(table)),
    ]


def _head_faults(document: Document) -> Iterator[str]:
    if document.doctype.lower() != "doctype html":
        yield "there is no doctype"
    if not document.one("html").get("lang"):
        yield "the page does not name its language"
    titles = [each.raw_text.strip() for each in document.all("head title")]
    if len(titles) != 1 or not titles[0]:
        yield f"the page has the titles {titles}"
    if len(document.all("main")) != 1:
        yield f"there are {len(document.all('main'))} <main>"


def _heading_faults(document: Document) -> Iterator[str]:
    headings = [each for each in document.below if each.name in HEADINGS]
    level = 0
    for heading in headings:
        if int(heading.name[1]) > level + 1:
            yield f"{heading} follows <h{level}>"
        if not heading.text:
            yield f"{heading} is empty"
        level = int(heading.name[1])
    if not headings or headings[0].name != "h1":
        yield "the first heading is no <h1>"


def _name_faults(document: Document) -> Iterator[str]:
    labels = {label.get("for"): label for label in document.all("label")}
    for element in document.below:
        if element.name in CONTROLS and element.get("type") != "hidden" and not _label(element, labels):
            yield f"{element} has no label"
        if element.name in ("a", "button", "summary", "th") and not (element.text or element.get("aria-label")):
            yield f"{element} has no name"
        if element.name == "img" and not element.has("alt"):
            yield f"{element} has no alternative text"
        if element.get("role") in ("region", "img", "search") and not (
            element.get("aria-label") or element.get("aria-labelledby") or element.name == "form"
        ):
            yield f"{element} has a role and no name"
        if element.name == "label" and sum(len(element.all(name)) for name in CONTROLS) > 1:
            yield f"{element} has more than one control"


def _label(control: Element, labels: dict[str, Element]) -> str:
    around = next((each for each in control.ancestors if each.name == "label"), None)
    named = around or (labels.get(control.get("id")) if control.has("id") else None)
    return control.get("aria-label") or (named.text if named is not None else "")


_REFERENCES = ("for", "list", "aria-describedby", "aria-labelledby", "aria-controls")


def _reference_faults(document: Document) -> Iterator[str]:
    known = {element.get("id") for element in document.below if element.has("id")}
    for element in document.below:
        for attribute in _REFERENCES:
            for name in element.get(attribute).split():
                if name not in known:
                    yield f"{element}: no element has the id {name!r}"


def _table_faults(table: Element) -> Iterator[str]:
    """Rows of one table that have different numbers of cells."""
    widths = {sum(int(cell.get("colspan", "1")) for cell in row.elements) for row in table.all("tr")}
    if len(widths) > 1:
        yield f"{table} has rows of {sorted(widths)} cells"


def policy_faults(document: Document, policy: str) -> list[str]:
    """What the content security policy of a page keeps a browser from running or loading."""
    allowed = {words[0]: words[1:] for words in (each.split() for each in policy.split(";")) if words}
    found = [f"{each} is an inline handler" for each in document.below if any(n[:2] == "on" for n in each.attributes)]
    found += [f"{each} has a style of its own" for each in document.below if each.has("style")]
    for name in ("base", "iframe", "object", "embed", "frame"):
        found += [f"{each} is forbidden" for each in document.all(name)]
    for element, kind, attribute in _loading(document):
        words = allowed.get(kind, allowed["default-src"])
        if not _is_allowed(element.get(attribute), element.raw_text, words):
            found.append(f"{element} is not allowed by {kind} {' '.join(words)}")
    return found


def _loading(document: Document) -> Iterator[tuple[Element, str, str]]:
    yield from ((each, "script-src", "src") for each in document.all("script"))
    yield from ((each, "style-src", "href") for each in document.all("style"))
    yield from ((each, "style-src", "href") for each in document.all("link[rel=stylesheet]"))
    yield from ((each, "img-src", "href") for each in document.all("link[rel=icon]"))
    yield from ((each, "img-src", "src") for each in document.all("img"))


def _is_allowed(address: str, text: str, words: list[str]) -> bool:
    if address.startswith("data:"):
        return "data:" in words
    if address:
        return "'self'" in words and address.startswith("/") and not address.startswith("//")
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in words
