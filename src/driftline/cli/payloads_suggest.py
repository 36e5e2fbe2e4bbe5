"""`driftline payloads suggest`: rules that would explain observed differences, with evidence."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from driftline.payloads._suggest.evidence import Suggestion

_EPILOG = """\b
Examples:
  driftline payloads suggest pairs.jsonl -o rules.yaml
  driftline payloads suggest pairs.jsonl --noise old-old.jsonl --accept sure -o rules.yaml --page rules.html
  driftline payloads suggest pairs.jsonl --apply api.yaml --root Order --accept '$.total:precision'

PAIRS is JSONL or Parquet with old and new, as "payloads batch" reads it (whole answers count by their bodies); OLD_OLD
has two answers of Old to the same requests, which shows what is noise. Without --accept only rules that say the same in
other words are put into force (preserving); "sure" also takes loosening ones with strong evidence. All others are
written as comments, with counts, examples, counterexamples and what they would hide.

--apply writes the accepted rules into a schema that you have: a line for each, nothing else changes, and the change is
printed. A rule goes where its member is declared; beside the reference where others refer to that schema too.
"""


@click.command(epilog=_EPILOG)
@click.argument("pairs")
@click.option("--schema", metavar="FILE", help="Rules that hold already.")
@click.option("--root", metavar="NAME", help="The root schema: a component, a JSON Pointer, or an operation.")
@click.option("--endpoint", metavar="NAME", help="Look at the pairs of one endpoint only.")
@click.option("--noise", metavar="OLD_OLD", help="Pairs of Old with itself.")
@click.option("--accept", "wanted", multiple=True, metavar="preserving|sure|all|ID", help="What is put into force.")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE (whole or not at all) instead of stdout.")
@click.option("--apply", "target", metavar="FILE", help="Put the accepted rules into the schema FILE; show the change.")
@click.option("--page", metavar="FILE", help="Also write a page to look through the suggestions.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["yaml", "json"]),
    help="How it is written.  [default: for people on a terminal, else yaml]",
)
def suggest(
    pairs: str,
    *,
    schema: str | None,
    root: str | None,
    endpoint: str | None,
    noise: str | None,
    wanted: tuple[str, ...],
    output: str | None,
    target: str | None,
    page: str | None,
    format_name: str | None,
) -> None:
    """Suggest rules that explain how NEW differs from OLD in PAIRS."""
    from driftline.core._files import open_output, write_all, write_atomically
    from driftline.payloads._batch.suggest import accepted, suggest_file
    from driftline.payloads._suggest.write import count_words, suggestions_page

    if target is not None and (output is not None or schema is not None):
        raise click.UsageError("--apply names the schema that is read and changed: leave out --schema and -o")
    base = schema or (target if target is not None and Path(target).exists() else None)
    found = suggest_file(pairs, noise, Path(base) if base is not None else None, root, endpoint)
    words = wanted or ("preserving",)
    chosen = accepted(found, words)
    unknown = set(words) - {"preserving", "sure", "all"} - {one.id for one in found}
    if unknown:
        raise click.UsageError(f"there is no suggestion {sorted(unknown)[0]!r}; look at the ids in the output")
    if output is None and target is None and format_name is None and sys.stdout.isatty():
        from driftline.cli.payload_views import print_suggestions
        from driftline.cli.terminal import stdout_console

        print_suggestions(found, chosen, pairs, stdout_console())
    else:
        with open_output(output, [pairs]) as out:
            write_all(out, _written(found, chosen, base, target, root, format_name))
    if page is not None:
        write_atomically(page, suggestions_page(found, chosen))
    click.echo(f"{count_words(found)}; {len(chosen)} accepted", err=True)
    waiting = [one for one in found if one.rule and one not in chosen]
    if waiting and (output or target) and sys.stderr.isatty():
        # In a file the others are comments; who reads a terminal is told their ids.
        ids = "\n".join(f"  --accept {shlex.quote(one.id)}   {one.why}" for one in waiting)
        click.echo(f"for you to decide:\n{ids}", err=True)


def _written(
    found: list[Suggestion],
    chosen: list[Suggestion],
    base: str | None,
    target: str | None,
    root: str | None,
    format_name: str | None,
) -> bytes:
    """What the command prints; with a target the rules are put into it and the change is printed."""
    from driftline.core._files import write_atomically
    from driftline.payloads._compare.report import indented
    from driftline.payloads._schema.documents import read_text
    from driftline.payloads._suggest.write import apply_rules, rules_yaml
    from driftline.payloads._values.text import encode

    text = read_text(Path(base)) if base is not None else ""
    if target is not None:
        edit = apply_rules(text, chosen, root)
        if edit.after != edit.before:
            write_atomically(target, edit.after.encode())
        return edit.diff(target).encode()
    if format_name == "json":
        return indented(encode([one.to_dict() for one in found])) + b"\n"
    return rules_yaml(found, chosen, text, root).encode("utf-8", "backslashreplace")
