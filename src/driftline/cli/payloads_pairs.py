"""`driftline payloads pairs` and `infer`: what a comparison starts from, made of captures and samples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

_PAIRS_EPILOG = """\b
Examples:
  driftline payloads pairs old.har new.har -o pairs.jsonl
  driftline payloads pairs traffic.gor -o pairs.jsonl
  driftline payloads batch pairs.jsonl --records full -o out

OLD and NEW are HAR files of the same requests against both versions; a .gor file of GoReplay has both answers (record
it with --output-http-track-response). Requests pair by method, path, query and body, equal ones in order of arrival;
what has no partner becomes a MISSING_PARTNER difference in the batch.
"""


@click.command(epilog=_PAIRS_EPILOG)
@click.argument("captures", nargs=-1, required=True, metavar="OLD.har NEW.har | FILE.gor")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE (whole or not at all) instead of stdout.")
def pairs(captures: tuple[str, ...], output: str | None) -> None:
    """Make pairs of captured traffic, for `payloads batch --records full`."""
    from driftline.core._files import open_output, write_all
    from driftline.payloads._captures import capture_pairs, record_line

    if len(captures) > 2:
        raise click.UsageError("give two HAR files or one GoReplay file")
    found = missing = failed = 0
    with open_output(output, captures) as out:
        for record in capture_pairs(map(Path, captures)):
            found += 1
            missing += "missing" in record
            failed += "error" in record
            write_all(out, record_line(record))
    click.echo(f"{found} pairs, {missing} without a partner, {failed} that cannot be read", err=True)


_INFER_EPILOG = """\b
Examples:
  driftline payloads infer responses/*.json -o schema.yaml
  driftline payloads infer responses.jsonl -o schema.json

A sample is a JSON file, or a line of a .jsonl file (plain, .gz or .zst). The schema names types, members and those that
are always there; rules are yours to add.
"""


@click.command(epilog=_INFER_EPILOG)
@click.argument("samples", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of stdout; .json for JSON, else YAML.")
def infer(samples: tuple[str, ...], output: str | None) -> None:
    """Write a schema that fits all SAMPLES."""
    from driftline.core._files import open_output, write_all
    from driftline.payloads._lint import infer_schema
    from driftline.payloads._schema.documents import yaml_text

    schema = infer_schema(value for path in samples for value in _values(path))
    as_json = output is not None and output.endswith(".json")
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n" if as_json else yaml_text(schema)
    with open_output(output, samples) as out:
        write_all(out, text.encode("utf-8", "backslashreplace"))


def _values(path: str) -> Iterator[Any]:
    from driftline.core._files import open_bytes
    from driftline.payloads._values.text import parse_json

    with open_bytes(path) as stream:
        if ".jsonl" in Path(path).name or ".ndjson" in Path(path).name:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield parse_json(line, f"{path}, line {number}")
        else:
            yield parse_json(stream.read(), path)
