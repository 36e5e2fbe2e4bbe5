"""`driftline compare`: whether two JSON payloads are functionally equivalent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftline.cli._group import Command, format_option, several
from driftline.core import format_of, io_errors, open_bytes, open_output, write_all

if TYPE_CHECKING:
    from driftline.errors import PayloadError
    from driftline.payloads import Masker, PathRule, Report


# Options of `compare` and `payloads`.
schema_options = several(
    click.option(
        "--root",
        metavar="NAME",
        help='The root schema: a component, a JSON Pointer, or an operation such as "GET /v1/charges 200".',
    ),
    click.option("--config", metavar="FILE", help="Limits and switches of the engine, YAML or JSON."),
    click.option(
        "--schema-timeout", type=click.FloatRange(0), metavar="SECONDS", help="CPU time for a schema.  [default: 30]"
    ),
)
# Rules of paths, which win over the schema's.
path_options = several(
    click.option("--new-select", metavar="PATH", help="The part of New that is compared."),
    click.option("--old-select", metavar="PATH", help="The part of Old that is compared, such as $.data."),
    click.option("--allow-new", multiple=True, metavar="PATH", help="Allow new members, here and below."),
    click.option(
        "--tolerance",
        "tolerances",
        multiple=True,
        metavar="PATH=NUMBER|DURATION",
        help="Let numbers or times be so far apart.",
    ),
    click.option("--key", "keys", multiple=True, metavar="PATH=FIELD[,FIELD]", help="Align the items of arrays."),
    click.option("--unordered", multiple=True, metavar="PATH", help="Compare arrays without their order."),
    click.option("--ignore", multiple=True, metavar="PATH", help="Leave out what a JSONPath selects."),
)
mask_options = several(
    click.option("--mask", "masked", multiple=True, metavar="PATH", help="Show tokens instead of values."),
    click.option("--mask-key-file", metavar="FILE", help="The key of the tokens.  [default: a new one each run]"),
)


def flags_of(old_select: str | None, new_select: str | None, **given: tuple[str, ...]) -> tuple[PathRule, ...]:
    """The rules of paths that a call gave; a text that is no path is refused at once."""
    from driftline.payloads import path_flags

    return path_flags((old_select, new_select), **given)


def read_mask_key(path: str | None) -> bytes | None:
    """The key of masked values, from a file."""

    if path is None:
        return None
    with io_errors(path):
        key = Path(path).read_bytes().strip()
    if not key:
        raise click.UsageError(f"--mask-key-file {path} is empty: put some random bytes into it")
    return key


def masker_of(masked: tuple[str, ...], key_file: str | None) -> Masker | None:
    """The masker of `--mask` and `--mask-key-file`."""
    from driftline.payloads import Masker

    key = read_mask_key(key_file)
    return Masker(masked, key) if masked else None


@click.command(cls=Command)
@click.argument("old")
@click.argument("new")
@click.option("--schema", metavar="FILE", help="The schema with its x-migration-* rules.  [default: all is strict]")
@schema_options
@path_options
@mask_options
@format_option(
    ["json", "text", "junit", "patch"], "How the report is written.  [default: text on a terminal, else json]"
)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE (whole or not at all) instead of stdout.")
def compare(
    old: str,
    new: str,
    *,
    schema: str | None,
    root: str | None,
    config: str | None,
    schema_timeout: float | None,
    masked: tuple[str, ...],
    mask_key_file: str | None,
    format_name: str | None,
    output: str | None,
    **flags: Any,
) -> int:
    """Decide whether the payload NEW is equivalent to OLD."""
    from driftline.errors import PayloadError
    from driftline.payloads import Report, compile as compile_schema, indented, to_json_bytes

    if old == new == "-":
        raise click.UsageError("only one of OLD and NEW can be standard input")
    is_named = format_name is not None
    format_name = format_name or ("text" if output is None and sys.stdout.isatty() else "json")
    name = f"{_shown(old)} {_shown(new)}"
    inputs = [path for path in (old, new, schema, config) if path is not None]
    if format_name == "patch" and masked:
        raise click.UsageError("a patch has the values themselves: leave out --mask, or take another --format")
    masker = masker_of(masked, mask_key_file)
    source: Any = Path(schema) if schema is not None else {}
    plan = compile_schema(source, read_config(config, schema_timeout), root, flags=flags_of(**flags))
    if masker is not None:
        masker.with_aliases(plan.renames)
    stopped: PayloadError | None = None
    before, after = _read(old), _read(new)
    try:
        report = plan.compare(before, after)
    except PayloadError as error:
        if error.context.get("partial_result") is None:
            raise
        stopped, report = error, Report.of(error.context["partial_result"])
    if format_name == "patch" and stopped is not None:
        raise stopped
    patch = to_json_bytes(plan.patch(before, after)) if format_name == "patch" else None
    shown = masker.report(report) if masker is not None else report
    if stopped is not None and masker is not None:
        stopped.context["partial_result"] = shown.to_dict()
    with open_output(output, inputs) as out:
        if output is not None and not is_named:
            format_of(output, {".json": "json"})
        content = _rendered(shown, format_name, name, output, stopped) if patch is None else indented(patch) + b"\n"
        write_all(out, content)
    if stopped is not None:
        raise stopped
    return report.exit_code


def read_config(path: str | None, schema_timeout: float | None = None) -> dict[str, Any]:
    """The engine configuration of a YAML or JSON file; the limit of a flag wins."""
    given = {} if schema_timeout is None else {"schema_timeout_seconds": schema_timeout}
    if path is None:
        return given
    from driftline.errors import PayloadError
    from driftline.payloads import load_schema

    try:
        content = load_schema(Path(path)).content
    except PayloadError as error:
        raise PayloadError(f"{path} cannot be parsed: {error.details['reason']}", details=error.details) from None
    # What is no object is refused with the configuration itself.
    return content if not isinstance(content, dict | None) else {**(content or {}), **given}


def _read(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read()
    with open_bytes(path) as stream:
        return stream.read()


def _shown(path: str) -> str:
    return "stdin" if path == "-" else Path(path).name


def _rendered(report: Report, format_name: str, name: str, output: str | None, error: PayloadError | None) -> bytes:
    """The report; of a comparison that was cut short, as JSON its error response with what was found until then."""
    from driftline.payloads import error_response, indented, to_json_bytes

    if format_name == "junit":
        from driftline.payloads import junit_xml

        return junit_xml(report, name, error)
    if format_name == "text":
        return report.to_text(is_terminal=output is None and sys.stdout.isatty())
    return indented(report.to_json() if error is None else to_json_bytes(error_response(error))) + b"\n"
