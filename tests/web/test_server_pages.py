"""The pages of a served API without a browser: what they offer is there, and what they send is answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest

from support.compare_server import serving
from support.gateways import GATEWAY, running, token
from support.html_pages import Element, nesting_faults, policy_faults, reading_faults
from support.page_walker import Form, Page, Walker

PAGES = ("/", "/docs")
LINKED = {"/", "/docs", "/openapi.json", "/health", "/ready", "/metrics"}


@pytest.fixture(scope="module", params=["comparisons", "gateway"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walker]:
    """A server of comparisons alone, and one with a gateway beside them."""
    if request.param == "comparisons":
        with serving() as address:
            yield from opened(address)
    else:
        folder: Path = tmp_path_factory.mktemp("gateway")
        with running(folder / "data", "--no-compact") as gateway:
            yield from opened(gateway.url)


def opened(address: str) -> Iterator[Walker]:
    walker = Walker(address)
    yield walker
    walker.close()


def shown(server: Walker) -> list[Page]:
    return [server.open(address) for address in PAGES]


def sent(server: Walker, form: Element) -> tuple[str, str, str, dict[str, str]]:
    """The request that the page's script makes of a form: method, address, body and headers."""
    path, query = form.get("data-path"), {}
    for field in form.all("input[data-in]"):
        value = field.get("value") or ("x" if field.has("required") else "")
        if field.get("data-in") == "path":
            path = path.replace(f"{{{field.get('name')}}}", quote(value))
        elif value:
            query[field.get("name")] = value
    body = form.one("textarea[name=body]").raw_text if form.get("data-type") else ""
    headers = {"Content-Type": form.get("data-type")} if form.get("data-type") else {}
    address = f"{path}?{urlencode(query)}" if query else path
    return form.get("data-method"), address, body, headers


def status_of(server: Walker, method: str, address: str, body: str, headers: dict[str, str]) -> int:
    """The status of an answer; an event stream is not read to its end."""
    client = httpx.Client(base_url=server.origin, timeout=120, trust_env=False)
    with client, client.stream(method, address, content=body.encode() or None, headers=headers) as answer:
        return answer.status_code


def test_every_link_of_a_server_page_leads_somewhere(server: Walker) -> None:
    pages = list(server.reachable("/"))
    assert {page.address for page in pages} == LINKED
    health = next(page for page in pages if page.address == "/health")
    assert json.loads(health.content) == {"status": "ok"}


def test_server_pages_are_well_formed_and_within_their_policy(server: Walker) -> None:
    for page in shown(server):
        policy = page.one("meta[http-equiv=Content-Security-Policy]").get("content")
        assert nesting_faults(page.document) == []
        assert reading_faults(page.document) == []
        assert policy_faults(page.document, policy) == []
        assert page.one("script").raw_text
        assert page.one("header nav a[aria-current=page]").text == ("Server" if page.path == "/" else "API")
        assert not page.all("script[src]")
        assert not page.all("link[rel=stylesheet]")


def test_the_page_has_every_operation_of_the_document(server: Walker) -> None:
    page = server.open("/docs")
    forms = [(form.get("data-method"), form.get("data-path")) for form in page.all("form.try")]
    documented = json.loads(server.open("/openapi.json").content)
    listed = [(method.upper(), path) for path, methods in documented["paths"].items() for method in methods]
    assert set(listed) <= set(forms)
    assert [f"{method} {path}" for method, path in forms] == page.texts(".operation h2")
    assert ("POST", "/v1/compare") in forms
    summaries = [card.all("p")[0].text for card in page.all(".operation")]
    assert all(summaries)


def test_what_the_page_offers_to_try_is_answered_as_documented(server: Walker) -> None:
    permitted = {"Authorization": f"Bearer {token()}"}
    for card in server.open("/docs").all(".operation"):
        method, address, body, headers = sent(server, card.one("form.try"))
        documented = set(card.texts("tbody td")[::2])
        status = status_of(server, method, address, body, {**headers, **permitted})
        assert str(status) in documented, f"{method} {address}: {status} is none of {documented}"
        assert status < 500, address


def test_the_examples_of_comparisons_are_answered_as_they_stand(server: Walker) -> None:
    page = server.open("/docs")
    permitted = {"Authorization": f"Bearer {token()}"}
    compares = [form for form in page.all("form.try[data-method=POST]") if "/compare" in form.get("data-path")]
    assert compares
    for form in compares:
        method, address, body, headers = sent(server, form)
        answer = server.send(method, address, body, {**headers, **permitted})
        assert answer.status_code == 200, answer.text
        assert '"is_match"' in answer.text


def test_the_first_page_compares_what_is_typed(server: Walker) -> None:
    form = server.open("/").form("#payloads")
    assert compared(server, form)["is_match"] is True
    report = compared(server, form.fill(new='{"id": 8, "total": 10.0, "status": "open"}'))
    assert [(each["path"], each["type"]) for each in report["diffs"]] == [("$.id", "VALUE_MISMATCH")]
    assert compared(server, form.fill(rules=""))["diffs"]


def compared(server: Walker, form: Form) -> Any:
    """The answer to what the page's script sends: payloads as they were typed, and the rules as one text."""
    old, new = (form.value(name) for name in ("old", "new"))
    rules = json.dumps(form.value("rules").strip() or "{}")
    body = f'{{"old_json":{old},"new_json":{new},"schema_fragment":{rules}}}'
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token()}"}
    answer = server.send("POST", "/v1/compare", body, headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_server_that_needs_a_token_has_a_field_for_it(server: Walker) -> None:
    start, api = shown(server)
    with_gateway = GATEWAY in start.text
    assert len(start.all("input.token[type=password]")) == (1 if with_gateway else 0)
    assert len(api.all("input.token[type=password]")) == (1 if with_gateway else 0)
    answer = server.send("POST", "/v1/compare", "{}", {"Content-Type": "application/json"})
    assert answer.status_code == (401 if with_gateway else 422)


def test_programs_get_the_same_start_as_json(server: Walker) -> None:
    start = server.send("GET", "/", headers={"Accept": "application/json"}).json()
    assert set(start["links"].values()) >= LINKED - {"/"}
