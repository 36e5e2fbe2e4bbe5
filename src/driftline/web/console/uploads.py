"""Files that are dropped onto the page: streamed into the hidden folder, whole or not at all."""

from __future__ import annotations

import re

from starlette.requests import Request

from driftline.core._files import atomic_write
from driftline.errors import InputError
from driftline.web.console.workspace import HIDDEN_FOLDER, Workspace

MOST_BYTES = 4 << 30
_NAME = re.compile(r"[^/\\\x00-\x1f]{1,200}")


async def store_upload(workspace: Workspace, name: str, request: Request) -> str:
    """Keep the body of a request under a name; how the console calls the file from then on."""
    if not _NAME.fullmatch(name) or name.startswith("."):
        raise InputError("a dropped file needs a plain name", code="bad_name")
    folder = workspace.hidden / "uploads"
    folder.mkdir(parents=True, exist_ok=True)
    taken = 0
    with atomic_write(folder / name) as out:
        async for chunk in request.stream():
            taken += len(chunk)
            if taken > MOST_BYTES:
                raise InputError("a dropped file may have 4 GiB at most: copy it into the folder", code="too_large")
            out.write(chunk)
    return f"{HIDDEN_FOLDER}/uploads/{name}"
