"""`driftline git`: databases and tables in Git: readable diffs, dumps as text, and merges by rows and cells."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from driftline.cli._outcome import DIFFERENT, SAME, run
from driftline.errors import DriftlineError, OptionError

_EPILOG = """\b
Examples:
  driftline git install
  driftline git install --pattern '*.db' --pattern '*.sqlite'
  git diff app.db

A file that begins like an SQLite database is one; every other file is a table.
"""
_DEFAULT_PATTERNS = ("*.db",)


@click.group(epilog=_EPILOG)
def git() -> None:
    """Diff and merge databases and tables in Git."""


@git.command(
    epilog="""\b
Examples:
  driftline git install
  driftline git install --global
  driftline git install --pattern '*.csv' --rules rules.toml
"""
)
@click.option("--global", "is_global", is_flag=True, help="For all repositories of this user.")
@click.option("--pattern", "patterns", multiple=True, metavar="GLOB", help="Which files.  [default: *.db]")
@click.option("--rules", metavar="FILE", help="Key and rules for tables; see `driftline diff --help`.")
@click.option("--textconv", is_flag=True, help="Show databases as SQL text with Git's own diff instead.")
def install(is_global: bool, patterns: tuple[str, ...], rules: str | None, textconv: bool) -> None:
    """Write the settings that make Git use driftline, and print them."""
    path = _attributes_file(is_global)
    scope = "--global" if is_global else "--local"
    extra = "" if rules is None else f" --rules {rules}"
    settings = {
        "diff.driftline.textconv" if textconv else "diff.driftline.command": "driftline git "
        + ("textconv" if textconv else f"diff{extra}"),
        "merge.driftline.name": "driftline: merge by rows",
        "merge.driftline.driver": f"driftline git merge{extra} %O %A %B %P",
    }
    # Both at once would leave it to Git which one is used.
    _git("config", scope, "--unset-all", f"diff.driftline.{'command' if textconv else 'textconv'}", may_fail=True)
    for name, value in settings.items():
        _git("config", scope, name, value)
        click.echo(f"{name} = {value}")
    for line in _add_attributes(path, patterns or _DEFAULT_PATTERNS):
        click.echo(f"{line}  ({path})")


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


def _add_attributes(path: Path, patterns: Sequence[str]) -> list[str]:
    from driftline.core import io_errors, write_atomically

    wanted = [f"{pattern} diff=driftline merge=driftline" for pattern in patterns]
    with io_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        present = path.read_text(encoding="utf-8") if path.exists() else ""
    missing = [line for line in wanted if line not in present.splitlines()]
    if missing:
        start = present if not present or present.endswith("\n") else present + "\n"
        write_atomically(path, (start + "".join(f"{line}\n" for line in missing)).encode())
    return wanted


@git.command(
    epilog="""\b
Examples:
  git diff app.db
  driftline git diff app.db old.db 0 100644 new.db 0 100644

Git calls it: PATH, then file, hash and mode of the old and of the new version.
"""
)
@click.option("--rules", metavar="FILE", help="Key and rules for tables.")
@click.argument("path")
@click.argument("versions", nargs=-1)
def diff(rules: str | None, path: str, versions: tuple[str, ...]) -> int:
    """Show what changed between two versions of a file, for Git."""
    if len(versions) < 6:
        click.echo(f"* Unmerged path {path}")
        return SAME
    old, new = versions[0], versions[3]
    click.echo(f"--- a/{path}\n+++ b/{versions[6] if len(versions) > 6 else path}")
    try:
        _show(old, new, rules)
    except DriftlineError as error:
        # Git gives up altogether on a driver that fails.
        click.echo(f"! driftline cannot compare these: {error.message}")
    return SAME


def _show(old: str, new: str, rules: str | None) -> None:
    from driftline.changesets import diff_lines, is_database, is_empty

    sides = [path for path in (old, new) if not is_empty(path)]
    if sides and all(map(is_database, sides)):
        for line in diff_lines(old, new):
            click.echo(line)
    elif any(map(is_database, sides)):
        click.echo("! one version is a database, the other is not")
    elif len(sides) == 2:
        sys.stdout.flush()
        code = _table_command("diff", [old, new, "--format", "markdown"], rules)
        if code not in (SAME, DIFFERENT):
            click.echo("! driftline cannot compare these as tables")
    else:
        click.echo("! only one version exists")


def _table_command(name: str, arguments: list[str], rules: str | None) -> int:
    from driftline.cli.main import driftline

    return run(driftline, [name, *arguments, *(["--rules", rules] if rules is not None else [])])


@git.command(
    epilog="""\b
Examples:
  git merge branch
  driftline git merge base.db ours.db theirs.db

Git calls it with the common ancestor, our version (which is replaced), theirs, and the path.
"""
)
@click.option("--rules", metavar="FILE", help="Key and rules for tables.")
@click.argument("base")
@click.argument("ours")
@click.argument("theirs")
@click.argument("path", required=False)
def merge(rules: str | None, base: str, ours: str, theirs: str, path: str | None) -> int:
    """Merge three versions of a file, for Git: exit 0 when all is merged, 1 when something is left to decide."""
    from driftline.changesets import is_database, is_empty, merge as merge_databases

    sides = [side for side in (base, ours, theirs) if not is_empty(side)]
    shown = path or ours
    if not sides or not any(map(is_database, sides)):
        return _merge_tables(base, ours, theirs, rules)
    if not all(map(is_database, sides)):
        click.echo(f"{shown}: not every version is a database; ours was kept", err=True)
        return DIFFERENT
    merged = merge_databases(base, ours, theirs)
    for problem in merged.problems:
        click.echo(f"{shown}: cannot be merged, ours was kept: {problem}", err=True)
    for conflict in merged.conflicts:
        click.echo(f"{shown}: ours was kept: {conflict.describe()}", err=True)
    return SAME if merged.is_clean else DIFFERENT


def _merge_tables(base: str, ours: str, theirs: str, rules: str | None) -> int:
    return SAME if _table_command("merge", [base, ours, theirs, "-o", ours], rules) == SAME else DIFFERENT


@git.command(
    epilog="""\b
Examples:
  driftline git textconv app.db
"""
)
@click.argument("file")
def textconv(file: str) -> None:
    """Print a database as SQL text, for Git's own diff; other files as they are."""
    from driftline.changesets import dump_lines, is_database, is_empty
    from driftline.core import io_errors, standard_output, write_all

    if is_empty(file) or is_database(file):
        for line in dump_lines(file):
            write_all(standard_output(), line.encode(errors="surrogateescape") + b"\n")
        return
    with io_errors(file):
        write_all(standard_output(), Path(file).read_bytes())
