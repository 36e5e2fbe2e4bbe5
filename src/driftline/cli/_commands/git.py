"""`driftline git`: databases and tables in Git: readable diffs, dumps as text, and merges by rows and cells."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from driftline.cli._commands.tables import read_rules
from driftline.cli._group import LazyGroup
from driftline.cli._outcome import DIFFERENT, SAME
from driftline.core import io_errors, is_sqlite_file, standard_output, write_all, write_atomically
from driftline.errors import DriftlineError, OptionError

_DEFAULT_PATTERNS = ("*.db",)


@click.group(cls=LazyGroup)
def git() -> None:
    """Diff and merge databases and tables in Git."""


@git.command()
@click.option("--rules", metavar="FILE", help="Key and rules for tables.")
@click.argument("path")
@click.argument("versions", nargs=-1)
def diff(rules: str | None, path: str, versions: tuple[str, ...]) -> int:
    """Show what changed between two versions of a file, for Git."""
    if len(versions) < 6:
        click.echo(f"* Unmerged path {path}")
        return SAME
    old, new = versions[0], versions[3]
    # Git gives up altogether on a driver that fails.
    try:
        click.echo(f"--- a/{path}\n+++ b/{versions[6] if len(versions) > 6 else path}")
        _show(old, new, path, rules)
        sys.stdout.flush()
    except DriftlineError as error:
        click.echo(f"! driftline cannot compare these: {error.message}")
    except BrokenPipeError:  # the pager was left early
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return SAME


def _show(old: str, new: str, path: str, rules: str | None) -> None:
    from driftline.changesets import diff_lines, is_empty

    sides = [side for side in (old, new) if not is_empty(side)]
    if sides and all(map(is_sqlite_file, sides)):
        for line in diff_lines(old, new):
            click.echo(line)
    elif any(map(is_sqlite_file, sides)):
        click.echo("! one version is a database, the other is not")
    elif len(sides) < 2:
        _show_text(old, new)
    else:
        try:
            shown = _table_diff(old, new, path, rules)
        except DriftlineError as error:
            click.echo(f"! by lines, because driftline cannot compare these as tables: {error.message}")
            _show_text(old, new)
        else:
            write_all(standard_output(), shown)


def _table_diff(old: str, new: str, path: str, rules: str | None) -> bytes:
    """The diff as Markdown, complete before anything of it is shown."""
    import io

    from driftline.sinks import write_events
    from driftline.tables import diff as diff_tables

    given = {} if rules is None else read_rules(rules, path)
    out = io.BytesIO()
    with diff_tables(old, new, **given) as found:
        positional = "key_columns" not in given and not given.get("ignore_row_order")
        write_events(found.lines(), out, "markdown", positional=positional)
    return out.getvalue()


def _show_text(old: str, new: str) -> None:
    """Git's own diff of two files, or of the text of their rows, without the lines that name them."""
    with tempfile.TemporaryDirectory() as folder:
        texts = [os.path.join(folder, side) for side in ("old", "new")]
        for path, text in zip((old, new), texts, strict=True):
            Path(text).write_bytes(b"".join(_text_of(path)))
        command = ["git", "--no-pager", "diff", "--no-index", "--no-ext-diff", "--no-textconv", *texts]
        shown = subprocess.run(command, capture_output=True, check=False).stdout
    start = shown.find(b"\n@@")
    write_all(standard_output(), shown[start + 1 :] if start >= 0 else b"Binary files differ\n" if shown else b"")


@git.command()
@click.option("--global", "is_global", is_flag=True, help="For all repositories of this user.")
@click.option("--pattern", "patterns", multiple=True, metavar="GLOB", help="Which files.  [default: *.db]")
@click.option("--rules", metavar="FILE", help="Key and rules for tables; see `driftline diff --help`.")
@click.option("--textconv", is_flag=True, help="Show databases as SQL text with Git's own diff instead.")
def install(is_global: bool, patterns: tuple[str, ...], rules: str | None, textconv: bool) -> None:
    """Write the settings that make Git use driftline, and print them."""
    path = _attributes_file(is_global)
    scope = "--global" if is_global else "--local"
    extra = "" if rules is None else f" --rules {shlex.quote(rules)}"
    name = _driver_name(scope, rules, extra)
    # `git log -p` and `git show` ask for the text only, `git diff` for the command where there is one.
    settings = {
        **({} if textconv else {f"diff.{name}.command": f"driftline git diff{extra}"}),
        f"diff.{name}.textconv": "driftline git textconv",
        f"merge.{name}.name": "driftline: merge by rows",
        f"merge.{name}.driver": f"driftline git merge{extra} %O %A %B %P",
        f"merge.{name}.recursive": "binary",  # two common ancestors in conflict stay undecided
    }
    if textconv:
        _git("config", scope, "--unset-all", f"diff.{name}.command", may_fail=True)
    for setting, value in settings.items():
        _git("config", scope, setting, value)
        click.echo(f"{setting} = {value}")
    for line in _add_attributes(path, patterns or _DEFAULT_PATTERNS, name):
        click.echo(f"{line}  ({path})")


def _driver_name(scope: str, rules: str | None, extra: str) -> str:
    """`driftline`, or a name of its own for rules where that one has others: its files keep theirs."""
    driver = _git("config", scope, "merge.driftline.driver", may_fail=True)
    if rules is None or driver in ("", f"driftline git merge{extra} %O %A %B %P"):
        return "driftline"
    return f"driftline-{re.sub('[^A-Za-z0-9]+', '-', rules).strip('-')}"


def _git(*arguments: str, may_fail: bool = False) -> str:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, encoding="utf-8", check=False)
    except FileNotFoundError:
        raise OptionError("git is not installed, or not on the path", code="git_missing") from None
    if done.returncode and not may_fail:
        raise OptionError(f"git {' '.join(arguments)}: {done.stderr.strip() or 'failed'}", code="git_failed")
    return done.stdout.strip()


def _attributes_file(is_global: bool) -> Path:
    if not is_global:
        return Path(_git("rev-parse", "--show-toplevel")) / ".gitattributes"
    configured = _git("config", "--global", "--type=path", "core.attributesFile", may_fail=True)
    if configured:
        return Path(configured)
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "git" / "attributes"


def _add_attributes(path: Path, patterns: Sequence[str], name: str) -> list[str]:
    requested = [f"{pattern} diff={name} merge={name}" for pattern in patterns]
    with io_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        present = path.read_text(encoding="utf-8") if path.exists() else ""
    missing = [line for line in requested if line not in present.splitlines()]
    if missing:
        start = present if not present or present.endswith("\n") else present + "\n"
        write_atomically(path, (start + "".join(f"{line}\n" for line in missing)).encode())
    return requested


@git.command()
@click.option("--rules", metavar="FILE", help="Key and rules for tables.")
@click.argument("base")
@click.argument("ours")
@click.argument("theirs")
@click.argument("path", required=False)
def merge(rules: str | None, base: str, ours: str, theirs: str, path: str | None) -> int:
    """Merge three versions of a file, for Git: exit 0 when all is merged, 1 when something is left to decide."""
    from driftline.changesets import is_empty, merge as merge_databases

    sides = [side for side in (base, ours, theirs) if not is_empty(side)]
    shown = path or ours
    if not sides or not any(map(is_sqlite_file, sides)):
        return _merge_tables(base, ours, theirs, rules, shown)
    if not all(map(is_sqlite_file, sides)):
        click.echo(f"{shown}: not every version is a database; ours was kept", err=True)
        return DIFFERENT
    merged = merge_databases(base, ours, theirs)
    for problem in merged.problems:
        click.echo(f"{shown}: cannot be merged, ours was kept: {problem}", err=True)
    for conflict in merged.conflicts:
        click.echo(f"{shown}: ours was kept: {conflict.describe()}", err=True)
    return SAME if merged.is_clean else DIFFERENT


def _merge_tables(base: str, ours: str, theirs: str, rules: str | None, path: str) -> int:
    """Rows in conflict stay in the file in both versions; where the rules do not fit, Git merges by lines."""
    from driftline.tables import merge as merge_files

    try:
        given = {} if rules is None else read_rules(rules, path)
        with _named_like(path, base, ours, theirs) as named:
            merged = merge_files(named[0], named[1], named[2], ours, conflicts="markers", beside=path, **given)
    except DriftlineError as error:
        labels = ("-L", "ours", "-L", "base", "-L", "theirs")
        # Its code is the number of conflicts, at most 127, or that of a failure: of binary files, which stay.
        code = subprocess.run(["git", "merge-file", *labels, ours, base, theirs], check=False).returncode
        how = "ours was kept" if code > 127 else "merged by lines"
        click.echo(f"{path}: {how}, because driftline cannot merge it as a table: {error.message}", err=True)
        return DIFFERENT if code else SAME
    for conflict in merged.conflicts:
        key = ", ".join(f"{name}={value}" for name, value in conflict["key"].items())
        what = "the row" if conflict["column"] is None else conflict["column"]
        click.echo(f"{path}: conflict at {key}: {what}", err=True)
    if merged.beside is not None:
        words = "ours was kept; {} has all that was merged, with ours in {} conflicts, which {} lists"
        click.echo(f"{path}: {words.format(merged.beside[0], len(merged.conflicts), merged.beside[1])}", err=True)
    return DIFFERENT if merged.conflicts else SAME


@contextmanager
def _named_like(path: str, *versions: str) -> Iterator[list[str]]:
    """Git's files by the name of theirs, which says their format."""
    with tempfile.TemporaryDirectory() as folder:
        named = [os.path.join(folder, f"{side} {os.path.basename(path)}") for side in ("base", "ours", "theirs")]
        for version, link in zip(versions, named, strict=True):
            os.symlink(os.path.abspath(version), link)
        yield named


@git.command()
@click.argument("file")
def textconv(file: str) -> None:
    """Print a database as SQL text and rows of typed columns as JSON, for Git's own diff; other files as they are."""
    for line in _text_of(file):
        write_all(standard_output(), line)


def _text_of(file: str) -> Iterator[bytes]:
    from driftline.changesets import dump_lines, is_empty
    from driftline.core import Workspace
    from driftline.sources import json_lines, open_source

    if is_empty(file) or is_sqlite_file(file):
        yield from (line.encode(errors="surrogateescape") + b"\n" for line in dump_lines(file))
        return
    with io_errors(file):
        content = Path(file).read_bytes()
    if b"\0" in content[:8000]:  # as Git decides what is binary
        with suppress(DriftlineError), Workspace() as workspace:
            source = open_source(file, workspace)
            if source.typed:
                types = (f"{field.name}: {field.type}\n" for field in source.types() or ())
                yield from map(str.encode, [*types, *json_lines(source, workspace)])
                return
    yield content
