"""`driftline payloads`: batches, pairs of captures, schemas from samples, suggested rules and lint."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driftline.cli._commands import compare
from driftline.cli._group import LazyGroup, chosen_engine, engine_options, format_option
from driftline.cli._outcome import DIFFERENT, SAME
from driftline.cli._terminal import progress_bar
from driftline.core import is_url, open_bytes, open_output, write_all, write_atomically

if TYPE_CHECKING:
    from driftline.core import Tracker
    from driftline.payloads import BatchJob, BatchTotals, Bundle, Scheduler, Suggestion


@click.group(cls=LazyGroup)
def payloads() -> None:
    """Compare API payloads: pairs, batches, captures, and the rules between two versions."""


@payloads.command(short_help="Compare many pairs of payloads, also on Spark.")
@click.argument("inputs", nargs=-1, required=True, metavar="PAIRS | OLD NEW")
@click.option("--schema", "schemas", multiple=True, metavar="[ENDPOINT=]FILE", help="A schema; can be repeated.")
@click.option("-o", "--output", required=True, metavar="DIR", help="The folder for reports and aggregates.")
@click.option("--id", "id_name", default="id", show_default=True, help="The member that joins two inputs.")
@click.option(
    "--records", type=click.Choice(["payload", "full"]), default="payload", show_default=True, help="What a side is."
)
@click.option("--header", "headers", multiple=True, metavar="NAME", help="A header to compare in full records.")
@compare.schema_options
@compare.path_options
@compare.mask_options
@click.option("--fail-if", "conditions", multiple=True, metavar="CONDITION", help="Exit 1 only if one holds.")
@click.option("--junit", metavar="FILE", help="Also write JUnit XML, a suite for each endpoint.")
@click.option("--sarif", metavar="FILE", help="Also write SARIF, a result for each kind of difference.")
@click.option("--summary", metavar="FILE", help="Also write a Markdown summary, such as $GITHUB_STEP_SUMMARY.")
@click.option("--annotations", is_flag=True, help="Print the most frequent differences as GitHub annotations.")
@engine_options
@click.option("--workers", type=click.IntRange(1), help="Processes of the local engine.  [default: all cores]")
@click.option("--progress/--no-progress", default=None, help="Draw a progress bar. Default: on a terminal.")
def batch(
    inputs: tuple[str, ...],
    schemas: tuple[str, ...],
    output: str,
    *,
    conditions: tuple[str, ...],
    engine: str,
    master: str | None,
    workers: int | None,
    progress: bool | None,
    annotations: bool,
    junit: str | None,
    sarif: str | None,
    summary: str | None,
    **options: Any,
) -> int:
    """Compare many pairs of payloads and add up what differs."""
    from driftline.payloads import annotation_lines, parse_conditions, run_batch, write_for_ci

    requested = parse_conditions(conditions)
    job = _job(inputs, schemas, **options)
    name = chosen_engine("payloads", engine, master, lambda: [job.size])
    with progress_bar(show=progress) as tracker, _scheduler(name, job, master, workers, tracker) as scheduler:
        totals = run_batch(job, output, scheduler, tracker)
    _report(totals, output)
    reasons = totals.reasons(requested)
    write_for_ci(job, totals.view(), reasons, junit, sarif, summary)
    for line in annotation_lines(job, totals.view()) if annotations else ():
        click.echo(line)
    for reason in reasons if requested else ():
        click.echo(f"gate: {reason}", err=True)
    return DIFFERENT if reasons else SAME


def _report(totals: BatchTotals, output: str) -> None:
    """The batch as tables on a terminal, else as a line."""
    if not sys.stdout.isatty():
        counts = totals.counts()
        line = f"{counts['matched']} matched, {counts['different']} differ, {counts['failed']} failed: see {output}"
        click.echo(line, err=True)
        if totals.answers_without_body is not None:
            click.echo(totals.answers_without_body, err=True)
        return
    from driftline.cli._terminal import stdout_console
    from driftline.cli._views import print_batch

    print_batch(totals.view(), output, stdout_console())


def _scheduler(
    engine: str, job: BatchJob, master: str | None, workers: int | None, tracker: Tracker
) -> AbstractContextManager[Scheduler]:
    if engine == "spark":
        from driftline.spark import payload_scheduler

        return payload_scheduler(master, tracker)
    from driftline.payloads import local_scheduler

    return local_scheduler(job, workers)


def _job(
    inputs: tuple[str, ...],
    schemas: tuple[str, ...],
    *,
    id_name: str,
    records: str,
    headers: tuple[str, ...],
    root: str | None,
    config: str | None,
    schema_timeout: float | None,
    masked: tuple[str, ...],
    mask_key_file: str | None,
    **flags: Any,
) -> BatchJob:
    import secrets

    from driftline.payloads import BatchJob, Role, open_source

    if len(inputs) > 2:
        raise click.UsageError("give one file of pairs, or two files to join")
    if headers and records != "full":
        raise click.UsageError("--header needs --records full")
    # Tasks may run elsewhere: they get absolute paths.
    paths = [given if is_url(given) else str(Path(given).resolve()) for given in inputs]
    roles: tuple[Role, ...] = ("pairs",) if len(paths) == 1 else ("old", "new")
    named = dict(map(_schema, schemas))
    compare.masker_of(masked, mask_key_file)  # a bad path is said at once
    return BatchJob(
        tuple(map(open_source, paths, roles)),
        {endpoint: _bundle(path, root) for endpoint, path in named.items()} or {None: b"{}"},
        compare.read_config(config, schema_timeout),
        root,
        id_name,
        compare.flags_of(**flags),
        masked,
        (compare.read_mask_key(mask_key_file) or secrets.token_bytes(32)) if masked else None,
        tuple(name.lower() for name in headers) if records == "full" else None,
        named,
    )


def _schema(given: str) -> tuple[str | None, str]:
    endpoint, separator, path = given.rpartition("=")
    if not separator or Path(given).exists():
        endpoint, path = "", given
    return endpoint or None, path


def _bundle(path: str, root: str | None) -> bytes | Bundle:
    from driftline.payloads import bundle_of

    bundle = bundle_of(Path(path), root)
    return bundle if bundle.files else bundle.main


@payloads.command(short_help="Make pairs of captured traffic (HAR, GoReplay).")
@click.argument("captures", nargs=-1, required=True, metavar="OLD.har NEW.har | FILE.gor")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE (whole or not at all) instead of stdout.")
@click.option("--map-path", "paths", multiple=True, metavar="PATTERN=NEW", help="Replace a pattern in Old's paths.")
@click.option("--drop-query", "dropped_query", multiple=True, metavar="NAME", help="A query parameter to leave out.")
@click.option("--key-header", "headers", multiple=True, metavar="NAME", help="A request header that must be equal.")
def pairs(captures: tuple[str, ...], output: str | None, **pairing: tuple[str, ...]) -> None:
    """Make pairs of captured traffic, for `payloads batch --records full`."""
    from driftline.payloads import PairingOptions, capture_pairs, to_json_bytes

    if len(captures) > 2:
        raise click.UsageError("give two HAR files or one GoReplay file")
    options = PairingOptions.of(**pairing)
    counts = dict.fromkeys(("pairs", "missing", "error", "no_body"), 0)
    with open_output(output, captures) as out:
        for record in capture_pairs(map(Path, captures), options=options):
            counts["pairs"] += 1
            counts["missing"] += "missing" in record
            counts["error"] += "error" in record
            counts["no_body"] += int(str(record.get("no_body", 0)))
            write_all(out, to_json_bytes(record) + b"\n")
    noun = "pair" if counts["pairs"] == 1 else "pairs"
    line = f"{counts['pairs']} {noun}, {counts['missing']} without a partner, {counts['error']} that cannot be read"
    if counts["no_body"]:
        answers = 2 * counts["pairs"] - counts["missing"]
        line += f"; {counts['no_body']:,} of {answers:,} answers have no body"
    click.echo(line, err=True)


@payloads.command(short_help="Suggest rules that explain observed differences.")
@click.argument("pairs")
@click.option("--schema", metavar="FILE", help="Rules that hold already.")
@click.option("--root", metavar="NAME", help="The root schema: a component, a JSON Pointer, or an operation.")
@click.option("--endpoint", metavar="NAME", help="Look at the pairs of one endpoint only.")
@click.option("--noise", metavar="OLD_OLD", help="Pairs of Old with itself.")
@click.option("--accept", "accepted", multiple=True, metavar="preserving|sure|all|ID", help="What is put into force.")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE (whole or not at all) instead of stdout.")
@click.option("--apply", "target", metavar="FILE", help="Put the accepted rules into the schema FILE; show the change.")
@click.option("--page", metavar="FILE", help="Also write a page to look through the suggestions.")
@format_option(["yaml", "json"], "How it is written.  [default: for people on a terminal, else yaml]")
def suggest(
    pairs: str,
    *,
    schema: str | None,
    root: str | None,
    endpoint: str | None,
    noise: str | None,
    accepted: tuple[str, ...],
    output: str | None,
    target: str | None,
    page: str | None,
    format_name: str | None,
) -> None:
    """Suggest rules that explain how NEW differs from OLD in PAIRS."""
    from driftline.payloads import count_words, read_accepted, suggest_file, suggestions_page

    if target is not None and (output is not None or schema is not None):
        raise click.UsageError("--apply names the schema that is read and changed: leave out --schema and -o")
    base = schema or (target if target is not None and Path(target).exists() else None)
    if endpoint is not None:
        _check_endpoint(pairs, endpoint)
    found = suggest_file(pairs, noise, Path(base) if base is not None else None, root, endpoint)
    words = accepted or ("preserving",)
    chosen = read_accepted(found, words)
    unknown = set(words) - {"preserving", "sure", "all"} - {one.id for one in found}
    if unknown:
        raise click.UsageError(f"there is no suggestion {sorted(unknown)[0]!r}; look at the ids in the output")
    if output is None and target is None and format_name is None and sys.stdout.isatty():
        from driftline.cli._terminal import stdout_console
        from driftline.cli._views import print_suggestions

        print_suggestions(found, chosen, pairs, stdout_console())
    else:
        with open_output(output, [pairs]) as out:
            write_all(out, _written(found, chosen, base, target, root, format_name))
    if page is not None:
        write_atomically(page, suggestions_page(found, chosen))
    click.echo(f"{count_words(found)}; {len(chosen)} accepted", err=True)
    waiting = [one for one in found if one.rule and one not in chosen]
    if waiting and (output or target) and sys.stderr.isatty():
        # In a file the others are comments; on a terminal their ids are printed.
        ids = "\n".join(f"  --accept {shlex.quote(one.id)}   {one.why}" for one in waiting)
        click.echo(f"for you to decide:\n{ids}", err=True)


def _check_endpoint(pairs: str, endpoint: str) -> None:
    """A name that no pair has is a typo: without pairs there is nothing to suggest."""
    import difflib

    from driftline.payloads import endpoints_of

    known = endpoints_of(pairs)
    if endpoint not in known:
        near = difflib.get_close_matches(endpoint, known, 1) or sorted(known)[:3]
        which = f"; there is {', '.join(map(repr, near))}" if near else "; no pair names an endpoint"
        raise click.UsageError(f"no pair has the endpoint {endpoint!r}{which}")


def _written(
    found: list[Suggestion],
    chosen: list[Suggestion],
    base: str | None,
    target: str | None,
    root: str | None,
    format_name: str | None,
) -> bytes:
    """What the command prints; with a target the rules are put into it and the change is printed."""
    from driftline.payloads import apply_rules, indented, read_text, rules_yaml, to_json_bytes

    text = read_text(Path(base)) if base is not None else ""
    if target is not None:
        edit = apply_rules(text, chosen, root)
        if edit.after != edit.before:
            write_atomically(target, edit.after.encode())
        return edit.diff(target).encode()
    if format_name == "json":
        return indented(to_json_bytes([one.to_dict() for one in found])) + b"\n"
    return rules_yaml(found, chosen, text, root).encode("utf-8", "backslashreplace")


@payloads.command(short_help="Write a schema that fits samples.")
@click.argument("samples", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of stdout; .json for JSON, else YAML.")
def infer(samples: tuple[str, ...], output: str | None) -> None:
    """Write a schema that fits all SAMPLES."""
    from driftline.payloads import infer_schema, yaml_text

    schema = infer_schema(value for path in samples for value in _values(path))
    as_json = output is not None and output.endswith(".json")
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n" if as_json else yaml_text(schema)
    with open_output(output, samples) as out:
        write_all(out, text.encode("utf-8", "backslashreplace"))


def _values(path: str) -> Iterator[Any]:
    from driftline.payloads import parse_json

    with open_bytes(path) as stream:
        if ".jsonl" in Path(path).name or ".ndjson" in Path(path).name:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield parse_json(line, f"{path}, line {number}")
        else:
            yield parse_json(stream.read(), path)


@payloads.command(short_help="Find rules that cannot work or never apply.")
@click.argument("schema")
@click.option("--root", metavar="NAME", help="The root schema: a component's name or a JSON Pointer.")
@format_option(["text", "json"], "How findings are written.", is_first_default=True)
def lint(schema: str, root: str | None, format_name: str) -> int:
    """Find unknown extensions, bad values and rules that can never apply in SCHEMA."""
    from driftline.payloads import lint as find

    findings = find(Path(schema), root)
    if format_name == "text" and sys.stdout.isatty():
        from driftline.cli._terminal import stdout_console
        from driftline.cli._views import print_lint

        print_lint(schema, findings, stdout_console())
    elif format_name == "json":
        click.echo(json.dumps([finding.to_dict() for finding in findings], indent=2, ensure_ascii=False))
    else:
        for finding in findings:
            click.echo(f"{schema}:{finding.line}:{finding.column}: {finding.message} ({finding.pointer})")
    return DIFFERENT if findings else SAME
