"""Pages about payloads: batches, where answers differ, pairs that failed, suggested rules and accepting them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from driftline.web.console.answers import Form, checked_form, handler, page
from driftline.web.console.payload_studies import RULE_ENDINGS, Batch, Study, suggestion_names

if TYPE_CHECKING:
    from driftline.web.console.app import Console

PAGE_ROWS = 50
_VIEWS = ("places", "failed", "rules", "unused")
_PAIR_ENDINGS = (".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst", ".parquet")


def routes(console: Console) -> list[Route]:
    """The pages of payloads."""
    return [
        Route("/payloads", _batches(console)),
        Route("/payloads/compare", _compare(console), methods=["POST"]),
        Route("/payloads/batch", _batch(console)),
        Route("/payloads/again", _again(console), methods=["POST"]),
        Route("/payloads/accept", _look(console)),
        Route("/payloads/accept", _accept(console), methods=["POST"]),
    ]


@dataclass(frozen=True)
class BatchView:
    """What one address shows of a batch."""

    batch: Batch
    show: str
    endpoint: str
    words: str
    page: int

    @property
    def endpoints(self) -> list[tuple[str, Mapping[str, int]]]:
        """Endpoints with their counts, those with most differences first."""
        known = self.batch.summary.get("endpoints") or {}
        return sorted(known.items(), key=lambda item: -item[1].get("different", 0))

    @property
    def listed(self) -> list[dict[str, Any]]:
        """All entries of the chosen list, under its filters."""
        rows = {
            "places": _by_frequency(self.batch.places),
            "failed": self.batch.failures,
            "rules": self.batch.suggestions,
            "unused": [row for row in self.batch.coverage if not row.get("used")],
        }[self.show]
        words = self.words.lower()
        return [row for row in rows if self._is_here(row) and (not words or words in str(row).lower())]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The entries of this page."""
        return self.listed[(self.page - 1) * PAGE_ROWS : self.page * PAGE_ROWS]

    @property
    def pages(self) -> int:
        """How many pages there are."""
        return max(1, -(-len(self.listed) // PAGE_ROWS))

    @property
    def tabs(self) -> list[tuple[str, str, int]]:
        """The lists, with their names and lengths."""
        unused = sum(not row.get("used") for row in self.batch.coverage)
        counts = (len(self.batch.places), int(self.batch.summary["failed"]), len(self.batch.suggestions), unused)
        names = ("Places", "Failed pairs", "Suggested rules", "Rules never used")
        return list(zip(_VIEWS, names, counts, strict=True))

    def link(self, **change: object) -> str:
        """The address of a neighbouring view."""
        kept = {"path": self.batch.name, "show": self.show, "endpoint": self.endpoint, "q": self.words, **change}
        return f"/payloads/batch?{urlencode({name: value for name, value in kept.items() if value not in ('', None)})}"

    def _is_here(self, row: dict[str, Any]) -> bool:
        endpoint = row.get("endpoint")
        is_for_all = endpoint is None and self.show in ("rules", "unused")
        return not self.endpoint or is_for_all or endpoint == self.endpoint


def _by_frequency(places: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(places, key=lambda row: (row["severity"] != "ERROR", -row["pairs"]))


@handler
async def _batches(console: Console, request: Request) -> Response:
    return page(
        request,
        "payloads.html",
        section="Payloads",
        batches=await run_in_threadpool(console.studies.batches),
        pairs=await run_in_threadpool(console.workspace.names, _PAIR_ENDINGS),
        rules=await run_in_threadpool(console.workspace.names, RULE_ENDINGS),
        root=console.workspace.root.name,
    )


@handler
async def _compare(console: Console, request: Request) -> Response:
    form = await checked_form(request)
    return _to(await run_in_threadpool(console.studies.start, _study(form)))


def _study(form: Form) -> Study:
    lines = [line.strip() for line in form.get("rules", [""])[0].splitlines() if line.strip()]
    rules = tuple(_endpoint_and_file(line) for line in lines)
    return Study(form.get("pairs", [""])[0], rules, form.get("root", [None])[0])


def _endpoint_and_file(line: str) -> tuple[str | None, str]:
    endpoint, mark, file = line.rpartition("=")
    return (endpoint or None, file) if mark else (None, line)


@handler
async def _batch(console: Console, request: Request) -> Response:
    query = request.query_params
    batch = await run_in_threadpool(console.studies.open, query.get("path", ""))
    number = query.get("page", "")
    view = BatchView(
        batch,
        query.get("show", "") if query.get("show") in _VIEWS else "places",
        query.get("endpoint", ""),
        query.get("q", "").strip()[:200],
        max(1, int(number)) if number.isascii() and number.isdigit() and len(number) < 9 else 1,
    )
    template = "batch_body.html" if request.headers.get("x-fragment") else "batch.html"
    return page(request, template, section="Payloads", view=view, batch=batch)


@handler
async def _again(console: Console, request: Request) -> Response:
    form = await checked_form(request)
    batch = await run_in_threadpool(console.studies.open, form.get("path", [""])[0])
    study = batch.study or _study(form)
    return _to(await run_in_threadpool(console.studies.start, Study(study.pairs, study.rules, study.root)))


@handler
async def _look(console: Console, request: Request) -> Response:
    """What accepting the chosen suggestions would change, before anything is written."""
    query = request.query_params
    batch = await run_in_threadpool(console.studies.open, query.get("path", ""))
    wanted = query.getlist("rule")
    known = [name for name in suggestion_names(batch) if name in wanted]
    file = query.get("file", "") or "rules.yaml"
    changes = await run_in_threadpool(console.studies.changes, batch, known, file)
    return page(request, "accept.html", section="Payloads", batch=batch, changes=changes, wanted=known, file=file)


@handler
async def _accept(console: Console, request: Request) -> Response:
    form = await checked_form(request)
    batch = await run_in_threadpool(console.studies.open, form.get("path", [""])[0])
    file = form.get("file", ["rules.yaml"])[0]
    changes = await run_in_threadpool(console.studies.changes, batch, form.get("rule", []), file)
    return _to(await run_in_threadpool(console.studies.accept, batch, changes, form.get("digest", [])))


def _to(job: Any) -> Response:
    return RedirectResponse(f"/jobs/{job.id}", 303)
