"""A keyed diff in Polars, with the same ordered events as driftline's; checks nothing but duplicate keys."""

from __future__ import annotations

import json
import sys

import polars as pl


def main(a: str, b: str, key: str, out: str) -> None:
    before, after = pl.collect_all([_scan(a), _scan(b)])
    header = before.columns
    hashes_a, hashes_b = (
        pl.LazyFrame({"k": frame[key], "h": frame.hash_rows()}).with_row_index("i") for frame in (before, after)
    )
    pairs = hashes_a.join(hashes_b, on="k", how="full", coalesce=True, suffix="_b")
    differing = pairs.filter(pl.col("h").ne_missing(pl.col("h_b"))).select("k", "i", "i_b").sort("k").collect()
    assert before[key].n_unique() == before.height
    assert after[key].n_unique() == after.height
    rows_a = before.select(pl.all().gather(differing["i"])).iter_rows()
    rows_b = after.select(pl.all().gather(differing["i_b"])).iter_rows()
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    with open(out, "w", encoding="utf-8", newline="\n") as file:
        for value, row_a, row_b in zip(differing["k"], rows_a, rows_b, strict=True):
            file.write(encode(_event({key: value}, header, row_a, row_b)) + "\n")


def _scan(path: str) -> pl.LazyFrame:
    return pl.scan_csv(path, infer_schema=False, empty_string_is_null=False)


def _event(key: dict[str, str], header: list[str], a: tuple, b: tuple) -> dict:
    if a[0] is None:
        return {"type": "added", "key": key, "row": dict(zip(header, b, strict=True))}
    if b[0] is None:
        return {"type": "removed", "key": key, "row": dict(zip(header, a, strict=True))}
    changed = [name for name, x, y in zip(header, a, b, strict=True) if x != y]
    before, after = dict(zip(header, a, strict=True)), dict(zip(header, b, strict=True))
    delta = {name: {"from": before[name], "to": after[name]} for name in changed}
    return {"type": "changed", "key": key, "changed": changed, "before": before, "after": after, "delta": delta}


if __name__ == "__main__":
    main(*sys.argv[1:5])
