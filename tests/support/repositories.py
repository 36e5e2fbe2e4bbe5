"""Git repositories made for tests."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from support.processes import run_process

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.org", "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.org", "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
}  # fmt: skip


def git(folder: Path, *words: str, stdin: bytes = b"") -> str:
    done = run_process(["git", "-C", str(folder), *words], input=stdin, env=ENVIRONMENT, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def make_repository(folder: Path, *versions: Mapping[str, str | bytes]) -> Path:
    """A repository whose tags v1, v2, … hold the given files; nothing but git objects is written."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    lines: list[bytes] = []
    for number, files in enumerate(versions, 1):
        lines.append(f"commit refs/heads/main\ncommitter t <t@example.org> {number} +0000\ndata 1\nx\n".encode())
        lines.append(b"deleteall\n")
        for path, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            lines.append(f"M 100644 inline {path}\ndata {len(data)}\n".encode() + data + b"\n")
        lines.append(f"reset refs/tags/v{number}\nfrom refs/heads/main\n".encode())
    git(folder, "fast-import", "--quiet", stdin=b"".join(lines))
    return folder
