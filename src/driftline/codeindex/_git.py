"""A git repository as a store of objects: revisions, trees and blobs, the staged state and the working tree.

No command that a repository's configuration names is run: no hook, filter, fsmonitor or remote helper, and nothing is
fetched unless that was requested.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from driftline.errors import IndexRefError

WORKING_TREE, STAGED = "the working tree", "the staged state"
MAX_BLOB_BYTES = 1_000_000

# Hooks run with these set, and they would lead away from the requested repository.
_STRAY_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR")
_SHALLOW = (
    "this clone is shallow, and its history may not reach that far: fetch it first "
    "(git fetch --unshallow --tags; in CI: fetch-depth: 0)"
)
_PROTOCOLS = "file:git:http:https:ssh"
_SUBMODULE = "160000"
_SIZES = "--batch-check=%(objectname) %(objectsize)"


class TreeEntry(NamedTuple):
    """One path of a tree; `size` is None for a submodule, whose object is a commit, and for a blob that is missing."""

    path: str
    mode: str
    object_id: str
    size: int | None
    missing: bool = False


@dataclass(frozen=True, slots=True)
class TreeState:
    """A tree by its id, whether it is committed or not; `contents` are the blobs that git does not have."""

    tree_id: str
    entries: Callable[[], list[TreeEntry]]
    contents: dict[str, bytes] = field(default_factory=dict)


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
        if revision == "HEAD" and self._run("symbolic-ref", "-q", "HEAD").returncode == 0:
            return self._ask("hash-object", "-t", "tree", "--stdin").decode().strip()  # before the first commit
        raise self._not_found(f"git:{revision} is no revision of this repository")

    def merge_base(self, one: str, other: str) -> str:
        """The commit at which two revisions parted."""
        for revision in (one, other):
            self.tree_id(revision)
        done = self._run("merge-base", "--", one, other)
        if done.returncode != 0:
            raise self._not_found(f"git:{one} and git:{other} have no commit in common")
        return done.stdout.decode().split()[0]

    def _not_found(self, message: str) -> IndexRefError:
        shallow = self._run("rev-parse", "--is-shallow-repository").stdout.strip() == b"true"
        return IndexRefError(message + (f"; {_SHALLOW}" if shallow else ""), code="NOT_FOUND")

    @cached_property
    def promisors(self) -> list[str]:
        """The remotes that a partial clone would fetch missing objects from."""
        found = self._run("config", "--name-only", "--get-regexp", r"^(remote\..*\.promisor|extensions\.partialclone)$")
        names = [line.split(".", 1)[1].rpartition(".")[0] for line in found.stdout.decode().split() if "." in line]
        return [name for name in names if name] or (["origin"] if names else [])

    def state(self, revision: str) -> TreeState:
        """The tree of a revision, of the index (`STAGED`) or of the checkout (`WORKING_TREE`)."""
        if revision not in (WORKING_TREE, STAGED):
            tree_id = self.tree_id(revision)
            return TreeState(tree_id, lambda: self.entries(tree_id))
        return self._uncommitted(with_files=revision == WORKING_TREE)

    def entries(self, tree_id: str, aside: Mapping[str, str] | None = None) -> list[TreeEntry]:
        """All paths of a tree, in git's order; bytes that are not UTF-8 are written as \\xNN."""
        # In a partial clone, git would fetch what it has no size of.
        known = self._sizes(aside) if self.promisors and aside else self._local if self.promisors else None
        sizes = ["-l"] if known is None else []
        listed = self._ask("ls-tree", "-r", "-z", *sizes, "--full-tree", tree_id, aside=aside)
        found = []
        for facts, _, path in (record.partition(b"\t") for record in listed.split(b"\0") if record):
            mode, _, name, *size = facts.decode().split()
            given = str(known.get(name, "BAD")) if known is not None else size[0]  # BAD: git's word for a missing blob
            missing = given == "BAD" and mode != _SUBMODULE
            found.append(TreeEntry(_shown(path), mode, name, int(given) if given.isdigit() else None, missing))
        return found

    def blobs(self, object_ids: Iterable[str], aside: Mapping[str, str] | None = None) -> Iterator[bytes | None]:
        """The content of blobs, in the requested order, from one process; None for one that is missing."""
        needed = list(object_ids)
        absent = {name for name in needed if name not in self._local} if self.promisors and aside is None else set()
        with tempfile.TemporaryFile() as names:
            names.write(b"".join(f"{name}\n".encode() for name in needed if name not in absent))
            names.seek(0)
            command, environment = self._command("cat-file", "--batch"), {**_environment(), **(aside or {})}
            with subprocess.Popen(command, stdin=names, stdout=subprocess.PIPE, env=environment) as process:
                assert process.stdout is not None
                for name in needed:
                    words = process.stdout.readline().split() if name not in absent else []
                    if len(words) != 3:
                        yield None
                        continue
                    yield process.stdout.read(int(words[2]))
                    process.stdout.read(1)

    def contents(self, needed: list[str]) -> list[bytes | None]:
        """Blobs: where git does not have one, the file of the checkout that would become that very blob."""
        found = list(self.blobs(needed))
        if None in found and self._ask("rev-parse", "--is-bare-repository").strip() == b"false":
            checkout = self.state(WORKING_TREE).contents
            found = [checkout.get(name) if blob is None else blob for name, blob in zip(needed, found, strict=True)]
        return found

    def fetch_missing(self, tree_id: str) -> int:
        """Fetch all blobs of a tree that a partial clone lacks, in one go; how many there were."""
        absent = sorted({entry.object_id for entry in self.entries(tree_id) if entry.missing})
        if not absent:
            return 0
        url = self._ask("config", "--get", f"remote.{self.promisors[0]}.url").decode().strip()
        # By its address: the configuration of a remote may name commands.
        blank = ("credential.helper=", "core.sshCommand=ssh", "core.gitProxy=", "core.hooksPath=/dev/null")
        settings = [word for value in ("fetch.negotiationAlgorithm=noop", *blank) for word in ("-c", value)]
        words = ("--quiet", "--no-tags", "--no-write-fetch-head", "--recurse-submodules=no", "--filter=blob:none")
        command = self._command(*settings, "fetch", *words, "--stdin", url)
        environment = {**_environment(), "GIT_ALLOW_PROTOCOL": _PROTOCOLS}
        names = "".join(f"{name}\n" for name in absent).encode()
        done = subprocess.run(command, input=names, capture_output=True, check=False, env=environment)
        self.__dict__.pop("_local", None)
        if done.returncode != 0:
            raise IndexRefError(f"git cannot fetch {len(absent)} missing objects: {self._first_line(done.stderr)}")
        return len(absent)

    @cached_property
    def _local(self) -> dict[str, int]:
        """Sizes of the objects that a partial clone has; a request for another one would make git fetch it."""
        return self._sizes(None)

    def _sizes(self, aside: Mapping[str, str] | None) -> dict[str, int]:
        listed = self._ask("cat-file", "--batch-all-objects", "--unordered", "--buffer", _SIZES, aside=aside)
        pairs = (line.split() for line in listed.decode().splitlines())
        return {name: int(size) for name, size in pairs if size.isdigit()}

    # States that no commit has.

    def _uncommitted(self, *, with_files: bool) -> TreeState:
        """The tree that git would commit, made aside: a copy of the index, and new objects in a folder of their own."""
        top = self._ask("rev-parse", "--show-toplevel").decode("utf-8", "surrogateescape").rstrip("\n")
        paths = self._ask("rev-parse", "--git-path", "index", "--git-path", "objects").decode(
            "utf-8", "surrogateescape"
        )
        index, objects = (os.path.abspath(self.directory / path) for path in paths.splitlines())
        with tempfile.TemporaryDirectory() as folder:
            aside = {"GIT_INDEX_FILE": f"{folder}/index", "GIT_OBJECT_DIRECTORY": f"{folder}/objects"}
            os.makedirs(f"{folder}/objects/info")
            Path(folder, "objects/info/alternates").write_bytes(os.fsencode(objects) + b"\n")
            with suppress(FileNotFoundError):  # before the first `git add`
                shutil.copy2(index, f"{folder}/index")  # with its time, by which git sees what was edited since

            def ask(*words: str, given: bytes = b"") -> bytes:
                return self._ask("-C", top, *self._blank_commands, *words, given=given, aside=aside)

            changed = self._take_checkout(ask, top) if with_files else set()
            ask("update-index", "-z", "--index-info", given=_ours(ask("ls-files", "--unmerged", "-z")))
            tree_id = ask("write-tree", "--missing-ok").decode().strip()
            entries = self.entries(tree_id, aside)
            fresh = {entry.object_id for entry in entries if entry.path in changed and entry.mode != _SUBMODULE}
            contents = {
                name: blob for name, blob in zip(fresh, self.blobs(fresh, aside), strict=True) if blob is not None
            }
        return TreeState(tree_id, lambda: entries, contents)

    def _take_checkout(self, ask: Callable[..., bytes], top: str) -> set[str]:
        """Put the files of the checkout into the index aside; the paths that differ."""
        # Of a submodule, the commit that is checked out counts, and nothing is run inside of it.
        words = ("--name-status", "-z", "--ignore-submodules=dirty", "--no-ext-diff", "--no-relative")
        parts = ask("diff-files", *words).split(b"\0")
        listed = list(zip(parts[::2], parts[1::2], strict=False))
        gone = {path for status, path in listed if status == b"D"}
        fresh = ask("ls-files", "--others", "--exclude-standard", "-z").split(b"\0")
        width = 64 if self._ask("rev-parse", "--show-object-format").strip() == b"sha256" else 40
        # A repository inside of this one is stored by its commit, where it has one of the same kind.
        heads = {path: self._run("-C", os.path.join(top, os.fsdecode(path)), "rev-parse", "-q", "--verify", "HEAD")
                 for path in fresh if path.endswith(b"/")}  # fmt: skip
        left_out = {path for path, head in heads.items() if len(head.stdout.strip()) != width}
        changed = {path.rstrip(b"/") for path in {*fresh, *(path for _, path in listed)} - gone - left_out - {b""}}
        removals = b"".join(b"0 %s\t%s\0" % (b"0" * width, path) for path in sorted(gone))
        ask("update-index", "-z", "--index-info", given=removals)
        added = b"".join(path + b"\0" for path in sorted(changed))
        ask("update-index", "-z", "--add", "--remove", "--stdin", given=added)
        return {_shown(path) for path in changed}

    @cached_property
    def _blank_commands(self) -> tuple[str, ...]:
        pattern = r"^filter\..*\.(clean|smudge|process|required)$"
        found = self._run("config", "--name-only", "-z", "--get-regexp", pattern)
        names = [name.decode("utf-8", "surrogateescape") for name in found.stdout.split(b"\0") if name]
        blank = [f"{name}={'false' if name.endswith('required') else ''}" for name in names]
        # A split index would be written beside the original, and git refuses line ends that it has to convert.
        fixed = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "core.splitIndex=false", "core.safecrlf=false")
        return tuple(word for setting in (*fixed, *blank) for word in ("-c", setting))

    def _ask(self, *words: str, given: bytes = b"", aside: Mapping[str, str] | None = None) -> bytes:
        done = self._run(*words, given=given, aside=aside)
        if done.returncode != 0:
            raise IndexRefError(f"git cannot read the repository: {self._first_line(done.stderr)}")
        return done.stdout

    def _first_line(self, stderr: bytes) -> str:
        said = stderr.decode("utf-8", "replace").replace(str(self.directory), "the repository")
        first = next(iter(said.strip().splitlines()), "git failed").removeprefix("fatal: ")
        if "dubious ownership" in said:
            return f"{first}: allow it with git config --global --add safe.directory and its path"
        if "must be run in a work tree" in said:
            return f"{first}: name two revisions"
        return first

    def _run(
        self, *words: str, given: bytes = b"", aside: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        environment = {**_environment(), **(aside or {})}
        try:
            return subprocess.run(self._command(*words), input=given, capture_output=True, check=False, env=environment)
        except FileNotFoundError:
            raise IndexRefError("git is not installed: git: references and index build need it") from None
        except ValueError:
            raise IndexRefError("a revision cannot hold a NUL") from None

    def _command(self, *words: str) -> list[str]:
        return ["git", "-C", str(self.directory), *words]


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _STRAY_VARIABLES}
    # Where an object is missing, git would fetch it by the commands of a remote: no protocol is allowed for that.
    blocked = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
    fixed = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1"}
    return {**kept, **fixed, **blocked}


def _shown(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")


def _ours(unmerged: bytes) -> bytes:
    """Entries that decide conflicts for our side; the files of a checkout have decided before."""
    rows = [[*facts.split(), path] for facts, _, path in (row.partition(b"\t") for row in unmerged.split(b"\0") if row)]
    removed = {path: b"0 %s\t%s\0" % (b"0" * len(name), path) for _, name, _, path in rows}
    kept = {path: b"%s %s 0\t%s\0" % (mode, name, path) for mode, name, stage, path in rows if stage == b"2"}
    return b"".join((removed | kept).values())
