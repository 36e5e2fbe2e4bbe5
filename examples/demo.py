"""`make demo`: what changed in a customer table between two days, then a whole pipeline on a small shop.

The pipeline runs on this machine, then, where there is a Java, on Spark; the files of both runs are compared.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from driftline.errors import EngineError
from driftline.spark import find_java

ROOT = Path(__file__).parent.parent
MONDAY, TUESDAY = "examples/customers/monday.csv", "examples/customers/tuesday.csv"
OUTPUT = Path("out/customers.jsonl")
SHOP, SHOP_ROWS = Path("out/shop"), 6000
SPARK_SHOP = Path("out/shop-spark")
INPUTS = ("data", "cdc", "api", "retail.toml")
# Times of a run, and what the story makes of the outputs.
NOT_COMPARED = {"metrics.json", "retail.prom", "report.html", "shop.db"}
SHOWN = 6

console = Console(highlight=False)


def main() -> None:
    (ROOT / OUTPUT).parent.mkdir(exist_ok=True)
    run(["diff", MONDAY, TUESDAY, "--key", "id", "--format", "summary"])
    run(["diff", MONDAY, TUESDAY, "--key", "id", "-o", str(OUTPUT)])
    show_first_events()
    console.print(f"\nAll events: [bold]{OUTPUT}[/bold] (one JSON object a line)")
    console.rule("The whole story: a shop's three days through a pipeline")
    run_story()
    console.rule("The same pipeline on Spark")
    compare_with_spark()
    console.print(f"\nAll of it is in [bold]{SHOP}[/bold]; the pipeline is [bold]{SHOP}/retail.toml[/bold]")
    console.print("The full cut:  [bold].venv/bin/python examples/retail/story.py[/bold]")
    console.print("Next: [bold]make test[/bold], or [bold].venv/bin/driftline diff --help[/bold]")


def run(arguments: list[str]) -> None:
    console.print(f"[bold cyan]$ driftline {' '.join(arguments)}[/bold cyan]")
    done = subprocess.run([sys.executable, "-m", "driftline", *arguments], cwd=ROOT, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.returncode)


def run_story() -> None:
    """A small cut of `examples/retail`: compare, load, compact, time travel, SQLite."""
    story = [sys.executable, "examples/retail/story.py", "--rows", str(SHOP_ROWS), "--dir", str(SHOP)]
    shutil.rmtree(ROOT / SHOP, ignore_errors=True)  # each demo starts with an empty folder
    sys.stdout.flush()
    done = subprocess.run(story, cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def compare_with_spark() -> None:
    """Run the pipeline again on Spark, from the same inputs, and compare every output; end with 1 where one differs."""
    try:
        java = find_java()
    except EngineError as error:
        console.print(f"not run: {error}")
        return
    shutil.rmtree(ROOT / SPARK_SHOP, ignore_errors=True)
    (ROOT / SPARK_SHOP).mkdir(parents=True)
    for name in INPUTS:
        source, target = ROOT / SHOP / name, ROOT / SPARK_SHOP / name
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    console.print(f"Java {java.version}: a Spark session starts on this machine, about half a minute …")
    command = ["pipeline", "run", "retail.toml", "--engine", "spark"]
    console.print(f"[bold cyan]$ driftline {' '.join(command)}[/bold cyan]")
    program = [sys.executable, "-m", "driftline", *command, "--format", "json"]
    done = subprocess.run(program, cwd=ROOT / SPARK_SHOP, check=False, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(done.returncode)
    record = json.loads(done.stdout)
    console.print(f"{len(record['stages'])} stages done on {record['engine']}")
    compare_outputs()


def compare_outputs() -> None:
    """Say that both runs wrote the same bytes, or which files differ, and end with 1."""
    here, there = outputs(SHOP), outputs(SPARK_SHOP)
    differing = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    if differing:
        console.print(f"[bold red]not the same bytes: {', '.join(differing)}[/bold red]")
        sys.exit(1)
    size = sum(map(len, here.values()))
    console.print(
        f"[bold green]the same bytes[/bold green]: {len(here)} files of both runs compared, {size:,} bytes each"
    )


def outputs(shop: Path) -> dict[str, bytes]:
    """The files that a run of the pipeline wrote, but for those with times in them."""
    folder = ROOT / shop / "out"
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    names = {str(path.relative_to(folder)): path for path in files}
    return {name: path.read_bytes() for name, path in names.items() if name not in NOT_COMPARED}


def show_first_events() -> None:
    with (ROOT / OUTPUT).open(encoding="utf-8") as lines:
        events = [json.loads(line) for line, _ in zip(lines, range(SHOWN + 1), strict=False)]
    table = Table(title="The first events", title_justify="left")
    for heading in ("event", "key", "what"):
        table.add_column(heading)
    for event in events[1:]:
        colour = {"added": "green", "removed": "red", "changed": "yellow"}[event["type"]]
        table.add_row(f"[{colour}]{event['type']}[/]", " ".join(event["key"].values()), describe(event))
    console.print(table)


def describe(event: dict) -> str:
    if event["type"] == "changed":
        return ", ".join(f"{name}: {change['from']} → {change['to']}" for name, change in event["delta"].items())
    return ", ".join(list(event["row"].values())[1:5])


if __name__ == "__main__":
    main()
