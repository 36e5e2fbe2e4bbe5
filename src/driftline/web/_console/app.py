"""The console: one folder, its pages and their routes, and the access check in front of them."""

from __future__ import annotations

import hmac
import secrets
import threading
from http.cookies import SimpleCookie
from importlib.resources import files
from pathlib import Path
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from driftline.web._console import changesets, code, diff, lake, payloads, pipelines, start
from driftline.web._console.answers import compile_templates, plain_error
from driftline.web._console.code import Reviews
from driftline.web._console.folder import Folder
from driftline.web._console.lake import Lakes
from driftline.web._console.payloads import Studies
from driftline.web._console.pipelines import Pipelines
from driftline.web._console.results import Jobs, Results
from driftline.web._console.start import Previews

_HERE = Path(__file__).parent
_PAGES = (start, diff, payloads, pipelines, lake, changesets, code)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer a browser sends the origin of our own forms as null
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_COOKIE = "driftline_ui"
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
_READING = ("GET", "HEAD")


class Console:
    """One folder shown in a browser."""

    def __init__(self, root: Path) -> None:
        self.folder = Folder(root)
        self.jobs = Jobs()
        self.results = Results(self.folder, self.jobs)
        self.studies = Studies(self.folder, self.jobs)
        self.pipelines = Pipelines(self.folder, self.jobs)
        self.lakes = Lakes(self.folder)
        self.reviews = Reviews(self.folder, self.jobs)
        self.previews = Previews(self.folder)

    def warm_up(self) -> None:
        """Do in the background what the first look would wait for: compiled templates, and Polars for the index."""
        # Polars imports thread pools, which register an exit handler; an interpreter that is ending refuses that, and a
        # console that is stopped right after its start would print the traceback of this thread.
        import concurrent.futures.thread  # noqa: F401

        def work() -> None:
            compile_templates()
            import polars  # noqa: F401

        threading.Thread(target=work, daemon=True, name="warm-up").start()

    def app(self) -> Starlette:
        """The ASGI application, without its guard."""
        routes = [route for page in _PAGES for route in page.pages.routes(self)]
        return Starlette(
            routes=[
                *routes,
                *(Route(f"/static/{name}.css", _shared_style) for name in ("look", "cards", "run", "code")),
                Mount("/static", StaticFiles(directory=_HERE / "static")),
            ],
            exception_handlers={HTTPException: plain_error},
        )


async def _shared_style(request: Request) -> Response:
    """A stylesheet that reports carry inside them."""
    name = request.url.path.rpartition("/")[2]
    return FileResponse(str(files("driftline.sinks") / "templates" / name), media_type="text/css")


# The access check: the Host header, the token, the origin of a POST, and headers for the browser. A page on the web can
# make a browser send requests to a local port. So the Host must be one we listen on (no DNS rebinding), anything that
# changes something must come from our own page (Origin and a token in the form), and scripts, styles and connections
# come from here alone.
class Guard:
    """Middleware of the application; `token` is required when the console listens beyond loopback."""

    def __init__(self, app: ASGIApp, *, port: int, host: str = "127.0.0.1", token: str | None = None) -> None:
        names = [*_LOOPBACK_NAMES, *([] if host in ("0.0.0.0", "::") else [host])]  # noqa: S104 - compared, not bound
        self.app = app
        self.any_host = token is not None
        self.hosts = {f"{name}:{port}" for name in names}
        self.token = token
        self.form_token = secrets.token_urlsafe(24)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope["form_token"] = self.form_token
        refusal = self._refusal(scope)
        await (refusal or self.app)(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if not self.any_host and host not in self.hosts:
            return PlainTextResponse("This console answers under its own address only.\n", 421)
        if self.token is not None and (answer := self._check_token(scope, headers)) is not None:
            return answer
        if _is_cross_site(headers):
            return PlainTextResponse("Another site may link to this console, but not ask it for anything.\n", 403)
        if scope["method"] not in _READING and not self._is_our_page(scope["method"], headers, host):
            return PlainTextResponse("This request did not come from a page of this console.\n", 403)
        return None

    def _check_token(self, scope: Scope, headers: dict[str, str]) -> Response | None:
        """A token in the address is moved into a cookie at once, so that it stays out of links and logs."""
        assert self.token is not None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if given and hmac.compare_digest(given.encode(), self.token.encode()):
            answer = RedirectResponse(scope["path"], 303)
            answer.set_cookie(_COOKIE, self.token, httponly=True, samesite="strict", path="/")
            return answer
        cookie = SimpleCookie(headers.get("cookie", "")).get(_COOKIE)
        if cookie is not None and hmac.compare_digest(cookie.value.encode(), self.token.encode()):
            return None
        return PlainTextResponse("Open the address with the token that `driftline ui` printed.\n", 401)

    def _is_our_page(self, method: str, headers: dict[str, str], host: str) -> bool:
        if headers.get("origin", "") not in (f"http://{host}", f"https://{host}"):
            return False
        # Forms carry the token as a field, which their handler checks; scripts carry it in a header.
        given = headers.get("x-form-token", "")
        return method == "POST" or hmac.compare_digest(given.encode(), self.form_token.encode())


def _is_cross_site(headers: dict[str, str]) -> bool:
    """Whether a browser says that a foreign page sent this, and not a person who followed a link.

    Such a page could not read the answer, but could keep this machine busy.
    """
    is_foreign = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
    return is_foreign and headers.get("sec-fetch-mode") != "navigate"


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
