"""`driftline payloads suggest`: rules that would explain observed differences, with evidence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

_EPILOG = """\b
Examples:
  driftline payloads suggest pairs.jsonl -o rules.yaml
  driftline payloads suggest pairs.jsonl --noise old-old.jsonl --accept sure -o rules.yaml --page rules.html
  driftline payloads suggest pairs.jsonl --schema rules.yaml --accept '$.total:precision' -o rules.yaml

PAIRS is JSONL or Parquet with old and new, as "payloads batch" reads it (whole answers count by their bodies); OLD_OLD
has two answers of Old to the same requests, which shows what is noise. Without --accept only rules that say the same in
other words are put into force (preserving); "sure" also takes loosening ones with strong evidence. All others are
written as comments, with counts, examples, counterexamples and what they would hide.
"""


@click.command(epilog=_EPILOG)
@click.argument("pairs")
@click.option("--schema", metavar="FILE", help="Rules that hold already.")
@click.option("--noise", metavar="OLD_OLD", help="Pairs of Old with itself.")
@click.option("--accept", "wanted", multiple=True, metavar="preserving|sure|all|ID", help="What is put into force.")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE (whole or not at all) instead of stdout.")
@click.option("--page", metavar="FILE", help="Also write a page to look through the suggestions.")
@click.option("--format", "format_name", type=click.Choice(["yaml", "json"]), default="yaml", help="How it is written.")
def suggest(
    pairs: str,
    schema: str | None,
    noise: str | None,
    wanted: tuple[str, ...],
    output: str | None,
    page: str | None,
    format_name: str,
) -> None:
    """Suggest rules that explain how NEW differs from OLD in PAIRS."""
    from driftline.files import open_output, write_all, write_atomically
    from driftline.payloads.report import encode, indented
    from driftline.payloads.schema_text import load_schema
    from driftline.payloads.suggesting.rendering import rules_yaml, suggestions_page
    from driftline.payloads.suggesting.suggester import accepted
    from driftline.payloads.suggesting.suggester import suggest as find

    base = load_schema(Path(schema)).content if schema is not None else None
    found = find(_pairs(pairs), _pairs(noise) if noise is not None else (), base)
    words = wanted or ("preserving",)
    chosen = accepted(found, words)
    unknown = set(words) - {"preserving", "sure", "all"} - {one.id for one in found}
    if unknown:
        raise click.UsageError(f"there is no suggestion {sorted(unknown)[0]!r}; look at the ids in the output")
    if format_name == "json":
        data = indented(encode([one.to_dict() for one in found])) + b"\n"
    else:
        data = rules_yaml(found, chosen, base).encode("utf-8", "backslashreplace")
    with open_output(output, [pairs]) as out:
        write_all(out, data)
    if page is not None:
        write_atomically(page, suggestions_page(found, chosen))
    counts = ", ".join(f"{sum(one.level == level for one in found)} {level}" for level in ("sure", "review", "finding"))
    click.echo(f"{counts}; {len(chosen)} accepted", err=True)


def _pairs(path: str) -> Iterator[tuple[Any, Any]]:
    from driftline.errors import PayloadError
    from driftline.payloads.batch_job import BatchJob, open_source, splits_of
    from driftline.payloads.batch_kernels import records_of
    from driftline.payloads.payload_text import parse_json

    job = BatchJob((open_source(path, "pairs"),), {})
    for split in splits_of(job):
        for record in records_of(job, split):
            if record.problem is not None:
                raise PayloadError(f"{path}, line {record.line}: {record.problem}", details={"line": record.line})
            if record.old is not None and record.new is not None:
                yield _body(parse_json(bytes(record.old), "old")), _body(parse_json(bytes(record.new), "new"))


def _body(value: Any) -> Any:
    is_answer = isinstance(value, dict) and value.keys() == {"status", "headers", "body"}
    return value["body"] if is_answer else value
