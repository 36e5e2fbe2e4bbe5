"""`driftline payloads`: everything about comparing payloads; `lint` looks at their schemas."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from driftline.cli.commands import LazyGroup
from driftline.cli.outcome import DIFFERENT, SAME

_COMMANDS = {
    "compare": ("driftline.cli.compare:compare", "Decide whether two JSON payloads are equivalent."),
    "batch": ("driftline.cli.payloads_batch:batch", "Compare many pairs of payloads, also on Spark."),
    "pairs": ("driftline.cli.payloads_pairs:pairs", "Make pairs of captured traffic (HAR, GoReplay)."),
    "suggest": ("driftline.cli.payloads_suggest:suggest", "Suggest rules that explain observed differences."),
    "infer": ("driftline.cli.payloads_pairs:infer", "Write a schema that fits samples."),
    "lint": ("driftline.cli.payloads:lint", "Find rules that cannot work or never apply."),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def payloads() -> None:
    """Compare API payloads: pairs, batches, captures, and the rules between two versions."""


_LINT_EPILOG = """\b
Examples:
  driftline payloads lint api.yaml
  driftline payloads lint api.yaml --root Invoice --format json

Exit codes: 0 nothing to mend, 1 findings, 2 error.
"""


@click.command(epilog=_LINT_EPILOG)
@click.argument("schema")
@click.option("--root", metavar="NAME", help="The root schema: a component's name or a JSON Pointer.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How findings are written.",
)
def lint(schema: str, root: str | None, format_name: str) -> int:
    """Find unknown extensions, bad values and rules that can never apply in SCHEMA."""
    from driftline.payloads import lint as find

    findings = find(Path(schema), root)
    if format_name == "text" and sys.stdout.isatty():
        from driftline.cli.payload_views import print_lint
        from driftline.cli.terminal import stdout_console

        print_lint(schema, findings, stdout_console())
    elif format_name == "json":
        click.echo(json.dumps([finding.to_dict() for finding in findings], indent=2, ensure_ascii=False))
    else:
        for finding in findings:
            click.echo(f"{schema}:{finding.line}:{finding.column}: {finding.message} ({finding.pointer})")
    return DIFFERENT if findings else SAME
