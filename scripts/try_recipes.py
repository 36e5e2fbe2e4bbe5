"""`make recipes`: try what examples/recipes promises, on the retail example, with the real tools.

Airflow and OpenLineage's client live in an environment of their own; driftline is the command of this one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT / "examples" / "recipes"
DRIFTLINE = str(Path(sys.executable).with_name("driftline"))
TOOLS = ROOT / "out" / "recipes" / "bin" / "python"
DBT = ROOT / "out" / "dbt" / "bin" / "dbt"
LINEAGE = """\
import json, sys
from openlineage.client import event_v2, facet_v2
for line in open(sys.argv[1]):
    event = json.loads(line)
    run, job = event["run"], event["job"]
    sides = [[{key: each[key] for key in ("namespace", "name")} for each in event[it]] for it in ("inputs", "outputs")]
    if "parent" in run["facets"]:
        parent = run["facets"]["parent"]
        facet_v2.parent_run.ParentRunFacet(
            run=facet_v2.parent_run.Run(**parent["run"]), job=facet_v2.parent_run.Job(**parent["job"])
        )
    event_v2.RunEvent(
        eventType=event_v2.RunState[event["eventType"]],
        eventTime=event["eventTime"],
        run=event_v2.Run(runId=run["runId"]),
        job=event_v2.Job(**job),
        producer=event["producer"],
        inputs=[event_v2.InputDataset(**each) for each in sides[0]],
        outputs=[event_v2.OutputDataset(**each) for each in sides[1]],
    )
print("every event is one that OpenLineage's client takes")
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        shop = make_shop(Path(scratch, "shop"))
        try_cron(shop)
        try_airflow(shop, Path(scratch, "airflow"))
        try_lineage(shop)
        try_dbt(Path(scratch, "dbt"))
    print("recipes: all of them work")


def make_shop(folder: Path) -> Path:
    retail = ROOT / "examples" / "retail"
    subprocess.run([sys.executable, retail / "make_data.py", folder, "--rows", "2000"], check=True)
    file = folder / "retail.toml"
    file.write_text((retail / "retail.toml").read_text() + '\n[lineage]\nopenlineage = "out/lineage.jsonl"\n')
    shutil.copy(retail / "api" / "schema.yaml", folder / "api" / "schema.yaml")
    return file


def try_cron(file: Path) -> None:
    """As cron does it: a bare environment, and silence after a good night."""
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(file.parent), "DRIFTLINE": DRIFTLINE}
    command = [str(RECIPES / "cron" / "nightly.sh"), str(file)]
    good = subprocess.run(command, env=bare, cwd="/", capture_output=True, text=True, check=False)
    assert (good.returncode, good.stdout, good.stderr) == (0, "", ""), good
    assert (file.parent / "report.html").exists()
    broken = file.read_text().replace('key = "order_id"', 'key = "no_such_column"')
    other = file.with_name("broken.toml")
    other.write_text(broken.replace('name = "retail"', 'name = "broken"').replace('path = "lake"', 'path = "lake2"'))
    bad = subprocess.run([command[0], str(other)], env=bare, cwd="/", capture_output=True, text=True, check=False)
    assert bad.returncode == 2, bad
    assert "broken.toml ended with 2" in bad.stdout, bad
    print("cron: quiet after a good night, a mail after a bad one")


def try_airflow(file: Path, home: Path) -> None:
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(RECIPES / "airflow"),
        "DRIFTLINE": DRIFTLINE,
        "DRIFTLINE_PIPELINE": str(file),
    }
    airflow = str(TOOLS.with_name("airflow"))
    subprocess.run([airflow, "db", "migrate"], env=environment, check=True, stdout=subprocess.DEVNULL)
    command = [str(TOOLS), str(RECIPES / "airflow" / "driftline_nightly.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "state=success" in done.stdout + done.stderr, done.stdout[-3000:] + done.stderr[-3000:]
    print("airflow: the DAG runs to its end")


def try_dbt(folder: Path) -> None:
    """Two builds of one project in two schemas: the changed models are named with their counts."""
    shutil.copytree(RECIPES / "dbt", folder)
    project, database = folder / "project", folder / "shop.duckdb"
    changed = '{discount: "case when id % 50 = 0 then 5 else 0 end", lost: 7}'
    for schema, variables in (("prod", "{}"), ("dev", changed)):
        environment = {
            **os.environ,
            "SHOP_DB": str(database),
            "SHOP_SCHEMA": schema,
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "0",
        }
        command = [str(DBT), "build", "--quiet", "--profiles-dir", ".", "--vars", variables]
        subprocess.run(command, cwd=project, env=environment, check=True)
    make_pairs = [sys.executable, folder / "pairs_from_manifest.py", project / "target" / "manifest.json", database]
    for new, code, counts in (("dev", 1, ("4 changed of 200", "6 removed of 600")), ("prod", 0, ())):
        pairs = subprocess.run([*make_pairs, "--old", "prod", "--new", new], capture_output=True, check=True).stdout
        (folder / "pairs.toml").write_bytes(pairs)
        checked = subprocess.run(
            [DRIFTLINE, "check", str(folder / "pairs.toml")], capture_output=True, text=True, check=False
        )
        assert checked.returncode == code, checked
        assert all(count in checked.stdout for count in counts), checked
    print("dbt: the changed models of two builds are told")


def try_lineage(file: Path) -> None:
    subprocess.run([str(TOOLS), "-c", LINEAGE, str(file.parent / "out" / "lineage.jsonl")], check=True)


if __name__ == "__main__":
    main()
