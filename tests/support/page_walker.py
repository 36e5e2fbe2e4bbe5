"""Pages of a running server without a browser: addresses opened, links followed, forms filled in and sent.

The requests are those of a browser without scripts, so what works here works without scripts. What a browser does not
allow fails: a form with an empty required field, an option that is not listed, a value for a field that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urldefrag, urlencode, urljoin, urlsplit

import httpx

from support.html_pages import Document, Element, parsed

_MOST_REDIRECTS = 5
_BUTTONS = ("submit", "button", "reset", "image")
_OPENED = {"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


class Page:
    """One answer of the server, parsed if it is HTML."""

    def __init__(self, walker: Walker, address: str, answer: httpx.Response) -> None:
        self.walker = walker
        self.address = address  # path and query
        self.status = answer.status_code
        self.headers = answer.headers
        self.content = answer.content
        self.is_html = answer.headers.get("content-type", "").startswith("text/html")
        self.document: Document = parsed(answer.text if self.is_html else "")

    def __repr__(self) -> str:
        return f"{self.address} ({self.status})"

    @property
    def path(self) -> str:
        return urlsplit(self.address).path

    @property
    def title(self) -> str:
        return self.document.one("head title").raw_text

    @property
    def text(self) -> str:
        """The rendered text of the page below its header."""
        return self.document.one("#content").text

    @property
    def body(self) -> str:
        """The content of an answer that is no page."""
        return self.content.decode()

    def all(self, selector: str, text: str | None = None) -> list[Element]:
        return self.document.all(selector, text)

    def one(self, selector: str, text: str | None = None) -> Element:
        return self.document.one(selector, text)

    def texts(self, selector: str) -> list[str]:
        return self.document.texts(selector)

    def link_to(self, link: Element) -> str:
        """Where a link of this page leads: path and query."""
        assert link.name == "a", f"{link} is no link"
        return self.walker.inner_address(urljoin(self.walker.origin + self.address, link.get("href")))

    def follow(self, selector: str, text: str | None = None, status: int = 200) -> Page:
        """Click on the only link that matches."""
        return self.walker.open(self.link_to(self.one(selector, text)), status)

    def reload(self) -> Page:
        return self.walker.open(self.address)

    def form(self, selector: str = "form", text: str | None = None) -> Form:
        """The only form that matches and does not just close a dialog."""
        found = [each for each in self.all(selector, text) if each.get("method") != "dialog"]
        assert len(found) == 1, f"{len(found)} forms match {selector!r} {text or ''} on {self}"
        return Form(self, found[0])

    def finished(self) -> Page:
        """The result of the job that this page reports on: until it is done, the page links to itself."""
        page = self
        while page.all("#bar"):
            page = page.follow("main a", "Look again")
        return page

    def counted(self) -> Page:
        """This page with the counts of its columns: until they are made, the page says so."""
        page = self
        while page.all("#counting"):
            page = page.reload()
        return page


class Form:
    """A form of a page, with what is filled in."""

    def __init__(self, page: Page, element: Element) -> None:
        self.page = page
        self.element = element
        self.method = element.get("method", "get").lower()
        self.action = page.walker.inner_address(
            urljoin(page.walker.origin + page.address, element.get("action") or page.address)
        )
        self.controls = [each for each in element.below if each.name in ("input", "select", "textarea")]
        self._filled: dict[int, str | bool] = {}
        self._pressed: list[tuple[str, str]] = []

    def __repr__(self) -> str:
        return f"{self.method} {self.action}"

    def control(self, name: str, value: str | None = None) -> Element:
        """The control of a name; of several boxes, the one with that value."""
        named = [each for each in self.controls if each.get("name") == name]
        found = [each for each in named if value is None or each.get("value") == value]
        assert len(found) == 1, f"{len(found)} controls {name!r} {value or ''} among {self.controls}"
        return found[0]

    def value(self, name: str) -> str:
        """What is filled in."""
        return _value(self.control(name), self._filled)

    def fill(self, **values: str) -> Form:
        """Write into fields, or choose options."""
        for name, value in values.items():
            control = self.control(name)
            assert control.get("type") not in ("hidden", "checkbox", "radio", *_BUTTONS), f"{control} takes no text"
            if control.name == "select":
                assert value in _options(control), f"{value!r} is none of {_options(control)}"
            if control.get("type") == "range":
                assert int(control.get("min")) <= int(value) <= int(control.get("max")), f"{control}: {value}"
            self._filled[id(control)] = value
        return self

    def check(self, name: str, value: str | None = None, *, on: bool = True) -> Form:
        """Set or clear a box."""
        control = self.control(name, value)
        assert control.get("type") == "checkbox", f"{control} is no box"
        self._filled[id(control)] = on
        return self

    def press(self, button: Element) -> Form:
        """Send with this button, whose name and value go along."""
        assert button in self.element.below, f"{button} is no button of {self}"
        self._pressed = [(button.get("name"), button.get("value"))]
        return self

    def drop(self, field: str, name: str, data: bytes) -> Form:
        """Drop a file onto a field, as the page's script does: upload it, and write its new name into the field."""
        assert self.control(field).has("data-drop"), f"nothing can be dropped onto {field!r}"
        token = self.page.one("meta[name=form-token]").get("content")
        answer = self.page.walker.send("PUT", f"/uploads/{quote(name)}", data, {"X-Form-Token": token})
        assert answer.status_code == 200, answer.text
        return self.fill(**{field: answer.json()["name"]})

    def entries(self, *, check: bool = True) -> list[tuple[str, str]]:
        """The fields in document order as a browser sends them (HTML standard, constructing the entry list)."""
        found = []
        for control in self.controls:
            name, kind = control.get("name"), control.get("type", "text")
            if not name or control.has("disabled") or (control.name == "input" and kind in _BUTTONS):
                continue
            value = _value(control, self._filled)
            if kind in ("checkbox", "radio"):
                if self._filled.get(id(control), control.has("checked")):
                    found.append((name, control.get("value", "on")))
                continue
            assert value or not check or not control.has("required"), f"{control} is required"
            found.append((name, value.replace("\r\n", "\n").replace("\n", "\r\n")))
        return [*found, *self._pressed]

    @property
    def needs_no_script(self) -> bool:
        """Whether a browser without scripts sends the form: by a button, or by Enter in the only text field."""
        buttons = [each for each in self.element.all("button") if each.get("type", "submit") == "submit"]
        fields = [each for each in self.controls if each.get("type") != "hidden"]
        return bool(buttons) or [each.get("type", "text") for each in fields] in (["text"], ["search"])

    def send(self, status: int = 200) -> Page:
        """Send the form and open what the server answers."""
        assert self.needs_no_script, f"{self} has no button"
        assert not self.element.has("enctype"), f"{self}: only URL-encoded forms are known here"
        body = urlencode(self.entries())
        if self.method == "get":
            return self.page.walker.open(f"{urlsplit(self.action).path}?{body}", status)
        assert self.method == "post", f"{self}: no such method"
        return self.page.walker.open(self.action, status, method="POST", body=body)

    def run(self) -> Page:
        """Send a form that starts a job, wait until it is done, and open its result."""
        return self.send().finished().counted()


def _value(control: Element, filled: dict[int, str | bool]) -> str:
    if id(control) in filled:
        return str(filled[id(control)])
    if control.name == "textarea":
        return control.raw_text.removeprefix("\n")
    if control.name == "select":
        chosen = [each for each in control.all("option") if each.has("selected")] or control.all("option")[:1]
        return chosen[-1].get("value", chosen[-1].text) if chosen else ""
    return control.get("value")


def _options(control: Element) -> list[str]:
    return [each.get("value", each.text) for each in control.all("option")]


class Walker:
    """A connection to one server."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self._client = httpx.Client(base_url=origin, timeout=120, trust_env=False)

    def close(self) -> None:
        self._client.close()

    def inner_address(self, address: str) -> str:
        """Path and query of an address of this server; an address elsewhere is refused."""
        parts = urlsplit(urldefrag(address).url)
        assert f"{parts.scheme}://{parts.netloc}" == self.origin, f"{address} leads to another server"
        return parts.path + (f"?{parts.query}" if parts.query else "")

    def send(self, method: str, address: str, body: str | bytes = "", headers: Any = None) -> httpx.Response:
        """One request as a page of this server makes it; redirects are not followed."""
        sent = {"Sec-Fetch-Site": "same-origin", **(headers or {})}
        if method not in ("GET", "HEAD"):
            sent = {"Origin": self.origin, **sent}
        data = body.encode() if isinstance(body, str) else body
        return self._client.request(method, address, content=data or None, headers=sent)

    def open(self, address: str, status: int = 200, *, method: str = "GET", body: str = "") -> Page:
        """The page at an address, behind redirects; a status that is not expected fails."""
        headers = dict(_OPENED)
        if method == "POST":
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        for _ in range(_MOST_REDIRECTS):
            answer = self.send(method, address, body, headers)
            if answer.status_code not in (301, 302, 303, 307, 308):
                page = Page(self, address, answer)
                assert page.status == status, f"{method} {page}: {page.document.text[:500]}"
                return page
            assert answer.status_code == 303 or method == "GET", f"{address}: {answer.status_code} sends the form again"
            address = self.inner_address(urljoin(self.origin + address, answer.headers["location"]))
            method, body, headers = "GET", "", dict(_OPENED)
        raise AssertionError(f"{address}: more than {_MOST_REDIRECTS} redirects")

    def fragment(self, address: str) -> str:
        """What the page's script asks for when it replaces the view only."""
        answer = self.send("GET", address, headers={"X-Fragment": "1"})
        assert answer.status_code == 200, f"{address}: {answer.status_code}\n{answer.text[:2000]}"
        return answer.text

    def reachable(self, *starts: str) -> Iterator[Page]:
        """Every page and file that links lead to; each must be there."""
        waiting, known = list(starts), set(starts)
        while waiting:
            page = self.open(waiting.pop(0)).counted()
            yield page
            for link in page.all("a[href]"):
                address = page.link_to(link)
                if address not in known:
                    known.add(address)
                    waiting.append(address)
