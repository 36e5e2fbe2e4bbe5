"""The console: one folder, its pages and their routes."""

from __future__ import annotations

import threading
from importlib.resources import files
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from driftline.web.console import (
    changesets_page,
    code_page,
    diff_page,
    lake_page,
    payloads_page,
    pipelines_page,
    start_page,
)
from driftline.web.console.answers import plain_error
from driftline.web.console.code_reviews import Reviews
from driftline.web.console.jobs import Jobs
from driftline.web.console.lake_views import Lakes
from driftline.web.console.pages import compile_templates
from driftline.web.console.payload_studies import Studies
from driftline.web.console.pipeline_runs import Pipelines
from driftline.web.console.preview import Previews
from driftline.web.console.results import Results
from driftline.web.console.workspace import Workspace

_HERE = Path(__file__).parent
_PAGES = (start_page, diff_page, payloads_page, pipelines_page, lake_page, changesets_page, code_page)


class Console:
    """One folder shown in a browser."""

    def __init__(self, root: Path) -> None:
        self.workspace = Workspace(root)
        self.jobs = Jobs()
        self.results = Results(self.workspace, self.jobs)
        self.studies = Studies(self.workspace, self.jobs)
        self.pipelines = Pipelines(self.workspace, self.jobs)
        self.lakes = Lakes(self.workspace, self.jobs)
        self.reviews = Reviews(self.workspace, self.jobs)
        self.previews = Previews(self.workspace)

    def warm_up(self) -> None:
        """Do in the background what the first look would wait for: compiled templates, and Polars for the index."""

        def work() -> None:
            compile_templates()
            import polars  # noqa: F401

        threading.Thread(target=work, daemon=True, name="warm-up").start()

    def app(self) -> Starlette:
        """The ASGI application, without its guard."""
        routes = [route for page in _PAGES for route in page.routes(self)]
        return Starlette(
            routes=[
                *routes,
                Route("/static/look.css", _look),
                Mount("/static", StaticFiles(directory=_HERE / "static")),
            ],
            exception_handlers={HTTPException: plain_error},
        )


async def _look(request: Request) -> Response:
    """The stylesheet that reports carry inside them."""
    return FileResponse(str(files("driftline.sinks") / "templates" / "look.css"), media_type="text/css")
