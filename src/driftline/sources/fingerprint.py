"""The bytes behind what a user named, as one text: equal bytes, equal fingerprint, whatever the file is called."""

from __future__ import annotations

import xxhash

from driftline.core._files import explain_io_errors
from driftline.core._workspace import Workspace
from driftline.sources.input_file import InputFile
from driftline.sources.inputs import open_source
from driftline.sources.port import ReadOptions

_CHUNK = 4 << 20


def fingerprint(given: str, options: ReadOptions | None = None) -> str:
    """What names the present content of a side."""
    with Workspace() as workspace:
        source = open_source(given, workspace, options)
        return f"{source.format} {source.fingerprint(_hash)}"


def _hash(file: InputFile) -> str:
    digest = xxhash.xxh3_128()
    with explain_io_errors(file.name), open(file.path, "rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    file.check_unchanged()
    return f"xxh128:{digest.hexdigest()}"
