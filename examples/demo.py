"""`make demo`: what changed in a customer table between two nights, then a whole pipeline on a small shop."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
MONDAY, TUESDAY = "examples/customers/monday.csv", "examples/customers/tuesday.csv"
OUTPUT = Path("out/customers.jsonl")
SHOP, SHOP_ROWS = Path("out/shop"), 6000
SHOWN = 6

console = Console(highlight=False)


def main() -> None:
    (ROOT / OUTPUT).parent.mkdir(exist_ok=True)
    run(["diff", MONDAY, TUESDAY, "--key", "id", "--format", "summary"])
    run(["diff", MONDAY, TUESDAY, "--key", "id", "-o", str(OUTPUT)])
    show_first_events()
    console.print(f"\nAll events: [bold]{OUTPUT}[/bold] (one JSON object a line)")
    console.rule("The whole story: a shop's three days through a pipeline")
    tell_the_story()
    console.print(f"\nAll of it lies in [bold]{SHOP}[/bold]; the pipeline is [bold]{SHOP}/retail.toml[/bold]")
    console.print("The full cut:  [bold].venv/bin/python examples/retail/story.py[/bold]")
    console.print("Next: [bold]make test[/bold], or [bold].venv/bin/driftline diff --help[/bold]")


def run(arguments: list[str]) -> None:
    console.print(f"[bold cyan]$ driftline {' '.join(arguments)}[/bold cyan]")
    done = subprocess.run([sys.executable, "-m", "driftline", *arguments], cwd=ROOT, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.returncode)


def tell_the_story() -> None:
    """A small cut of `examples/retail`: compare, load, compact, time travel, SQLite."""
    story = [sys.executable, "examples/retail/story.py", "--rows", str(SHOP_ROWS), "--dir", str(SHOP)]
    shutil.rmtree(ROOT / SHOP, ignore_errors=True)  # each demo tells the story from its beginning
    sys.stdout.flush()
    done = subprocess.run(story, cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(done.returncode)


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
