"""A git repository as a store of objects: revisions, trees and blobs, never a checkout."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from driftline.errors import IndexRefError

# Hooks run with these set, and they would lead away from the repository that was asked for.
_STRAY_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
_SHALLOW = (
    "this clone is shallow, and its history may not reach that far: fetch it first "
    "(git fetch --unshallow --tags; in CI: fetch-depth: 0)"
)


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One path of a tree; `size` is None for a submodule, whose object is a commit."""

    path: str
    mode: str
    object_id: str
    size: int | None


class GitRepository:
    """A repository, a bare clone or a worktree."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(os.path.abspath(directory))
        if not self.directory.is_dir():
            raise IndexRefError("the repository does not exist or is not a directory (--repo)", code="NOT_FOUND")
        common = self._ask("rev-parse", "--git-common-dir").decode("utf-8", "surrogateescape").rstrip("\n")
        self.common_directory = Path(os.path.abspath(self.directory / common))

    def tree_id(self, revision: str) -> str:
        """The tree of a revision; what cannot be found is `NOT_FOUND`, with a word about shallow clones."""
        done = self._run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{tree}}")
        if done.returncode == 0:
            return done.stdout.decode().strip().splitlines()[-1]
        hint = f"; {_SHALLOW}" if self.is_shallow() else ""
        raise IndexRefError(f"git:{revision} is no revision of this repository{hint}", code="NOT_FOUND")

    def is_shallow(self) -> bool:
        """Whether history was cut off when the repository was cloned."""
        return self._run("rev-parse", "--is-shallow-repository").stdout.strip() == b"true"

    def entries(self, tree_id: str) -> list[TreeEntry]:
        """All paths of a tree, in git's order; bytes that are not UTF-8 are written as \\xNN."""
        listed = self._ask("ls-tree", "-r", "-z", "-l", "--full-tree", tree_id)
        return [_entry(record) for record in listed.split(b"\0") if record]

    def blobs(self, object_ids: Iterable[str]) -> Iterator[bytes]:
        """The content of blobs, in the order asked for, from one process."""
        with tempfile.TemporaryFile() as wanted:
            wanted.write(b"".join(f"{object_id}\n".encode() for object_id in object_ids))
            wanted.seek(0)
            with subprocess.Popen(
                self._command("cat-file", "--batch"), stdin=wanted, stdout=subprocess.PIPE, env=_environment()
            ) as process:
                assert process.stdout is not None
                while header := process.stdout.readline():
                    words = header.split()
                    if len(words) != 3:
                        process.kill()
                        raise IndexRefError(f"git has no content for object {words[0].decode()}: fetch it first")
                    yield process.stdout.read(int(words[2]))
                    process.stdout.read(1)

    def _ask(self, *words: str) -> bytes:
        done = self._run(*words)
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").replace(str(self.directory), "the repository")
            first = next(iter(said.strip().splitlines()), "git failed").removeprefix("fatal: ")
            raise IndexRefError(f"git cannot read the repository: {first}")
        return done.stdout

    def _run(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(self._command(*words), capture_output=True, check=False, env=_environment())
        except FileNotFoundError:
            raise IndexRefError("git is not installed: git: references and index build need it") from None
        except ValueError:
            raise IndexRefError("a revision cannot hold a NUL") from None

    def _command(self, *words: str) -> list[str]:
        return ["git", "-C", str(self.directory), *words]


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _STRAY_VARIABLES}
    return {**kept, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1"}


def _entry(record: bytes) -> TreeEntry:
    facts, _, path = record.partition(b"\t")
    mode, _, object_id, size = facts.split()
    text = path.decode("utf-8", "backslashreplace")
    return TreeEntry(text, mode.decode(), object_id.decode(), None if size == b"-" else int(size))
