"""The models of a dbt project in two schemas, as a file of pairs for `driftline check`.

    python pairs_from_manifest.py target/manifest.json shop.duckdb --old prod --new dev > pairs.toml
    driftline check pairs.toml

The database is a DuckDB file, or an address as postgresql://host/shop. A model's key is `config.meta.driftline.key`,
else the column with a `unique` test, else the columns of `unique_combination_of_columns`; a model without one is named
in a comment. Every other member of `meta.driftline` (tolerance, ignore, fail_if, …) goes into the pair as it is.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

BUILT = ("table", "incremental", "view", "materialized_view", "snapshot")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("database")
    parser.add_argument("--old", required=True, help="schema of the old build")
    parser.add_argument("--new", required=True, help="schema of the new build")
    options = parser.parse_args()
    nodes = json.loads(options.manifest.read_text(encoding="utf-8"))["nodes"]
    models = [node for node in nodes.values() if node["resource_type"] in ("model", "snapshot")]
    for model in sorted(models, key=lambda each: str(each["name"])):
        if model["config"].get("materialized") in BUILT:
            print(pair(model, nodes, options.database, options.old, options.new))


def pair(model: dict[str, Any], nodes: dict[str, Any], database: str, old: str, new: str) -> str:
    rules = dict(model["config"].get("meta", {}).get("driftline", {}))
    key = rules.pop("key", None) or key_of(model, nodes)
    if not key:
        return f"# {model['name']}: no unique test and no meta.driftline.key, so it is not compared\n"
    table = model.get("alias") or model["name"]
    lines = [
        f"[pairs.{json.dumps(model['name'])}]",
        f"old = {json.dumps(f'{database}::{old}.{table}')}",
        f"new = {json.dumps(f'{database}::{new}.{table}')}",
        f"key = {json.dumps(key)}",
        *(f"{name} = {toml(value)}" for name, value in sorted(rules.items())),
    ]
    return "\n".join(lines) + "\n"


def key_of(model: dict[str, Any], nodes: dict[str, Any]) -> list[str] | None:
    tests = [node.get("test_metadata") for node in nodes.values() if node.get("attached_node") == model["unique_id"]]
    named = {test["name"]: test["kwargs"] for test in tests if test}
    if "unique" in named:
        return [str(named["unique"]["column_name"])]
    return named.get("unique_combination_of_columns", {}).get("combination_of_columns")


def toml(value: Any) -> str:
    """A value of JSON as TOML writes it inline."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {toml(item)}" for name, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


if __name__ == "__main__":
    main()
