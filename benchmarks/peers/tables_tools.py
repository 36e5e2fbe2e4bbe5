"""Other tools that compare two CSV files by key; they give counts or reports, not the same ordered events."""

from __future__ import annotations

import sys
from pathlib import Path


def with_pandas(a: str, b: str, key: str) -> None:
    import pandas as pd

    before, after = (pd.read_csv(path, dtype=str, keep_default_na=False).set_index(key) for path in (a, b))
    both = before.index.intersection(after.index)
    old, new = before.loc[both], after.loc[both]
    changed = both[(old.to_numpy() != new.to_numpy()).any(axis=1)]
    added, removed = after.index.difference(before.index), before.index.difference(after.index)
    print(len(added), len(removed), len(changed))


def with_datacompy(a: str, b: str, key: str) -> None:
    import datacompy
    import polars as pl

    before, after = (pl.read_csv(path, infer_schema=False) for path in (a, b))
    compared = datacompy.PolarsCompare(before, after, join_columns=key)
    print(len(compared.df2_unq_rows), len(compared.df1_unq_rows), len(compared.all_mismatch()))


def with_datacompy_rules(a: str, b: str, key: str) -> None:
    """Without two columns and with a tolerance on two, as the case of rules has it; what differs is written."""
    import datacompy
    import polars as pl

    numbers = {"amount": pl.Float64, "note": pl.Float64}
    before, after = (
        pl.read_csv(path, infer_schema=False).drop("city", "updated").cast(numbers, strict=False) for path in (a, b)
    )
    compared = datacompy.PolarsCompare(before, after, join_columns=key, abs_tol=0.005)
    added, removed, changed = compared.df2_unq_rows, compared.df1_unq_rows, compared.all_mismatch()
    for name, rows in (("added", added), ("removed", removed), ("changed", changed)):
        rows.write_csv(Path(a).with_name(f"datacompy-{name}.csv"))
    print(len(added), len(removed), len(changed))


def with_csv_diff(a: str, b: str, key: str) -> None:
    import csv_diff

    with open(a, encoding="utf-8") as before, open(b, encoding="utf-8") as after:
        found = csv_diff.compare(csv_diff.load_csv(before, key=key), csv_diff.load_csv(after, key=key))
    print(len(found["added"]), len(found["removed"]), len(found["changed"]))


TOOLS = {
    "pandas": with_pandas,
    "datacompy": with_datacompy,
    "datacompy with rules": with_datacompy_rules,
    "csv-diff": with_csv_diff,
}

if __name__ == "__main__":
    TOOLS[sys.argv[1]](*sys.argv[2:5])
