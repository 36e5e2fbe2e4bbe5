"""The real diff against an independent one in plain Python, over random indexes, row orders and storage forms."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings, strategies as st

from driftline import codeindex
from support.index_layouts import LAYOUTS, write_index
from support.index_oracle import oracle_events

NAMES = st.sampled_from(["f", "g", "ß", "\U0001f602", "\ufb33", 'a"b\\', "|"])
FILES = st.sampled_from(["a.js", "b/c.js", "é.js", "\U0001f602.js", "\ufb33.js", "z"])
TARGETS = st.lists(st.sampled_from(["./x", "./y", "g", "\U0001f602"]), max_size=2)


@st.composite
def relations(draw: Any) -> dict[str, Any]:
    return {
        "imports": draw(TARGETS),
        "calls": [["f", callee] for callee in draw(TARGETS)],
        "usageLinks": [{"to": {"targetName": name, "resolved": {"chunkUid": draw(NAMES)}}} for name in draw(TARGETS)],
    }


@st.composite
def chunks(draw: Any, file: str) -> dict[str, Any]:
    start = draw(st.sampled_from([0, 10, 20]))
    return {
        "file": file,
        "start": start,
        "end": start + 5,
        "startLine": start // 10,
        "endLine": draw(st.integers(1, 2)),
        "kind": draw(st.sampled_from(["function", "class"])),
        "name": draw(NAMES),
        "segment": draw(st.sampled_from([None, {"segmentId": "s1"}])),
        "docmeta": draw(st.sampled_from([None, {"signature": "doc"}])),
        "codeRelations": draw(relations()),
        "metaV2": {
            "signature": draw(st.sampled_from([None, "s()", "t()"])),
            "modifiers": draw(st.sampled_from([None, ["async"]])),
            "params": draw(st.sampled_from([None, {"b": 1, "a": 2}])),
        },
    }


@st.composite
def sides(draw: Any) -> dict[str, Any]:
    paths = draw(st.lists(FILES, unique=True, max_size=5))
    hashes = st.sampled_from(["h1", "h2", "h3", None])
    file_meta = [
        {"id": number, "file": path, "ext": ".js", "size": draw(st.integers(1, 2)), "hash": draw(hashes)}
        for number, path in enumerate(paths)
    ]
    rows = [(number, row) for number, path in enumerate(paths) for row in draw(st.lists(chunks(path), max_size=4))]
    used: set[str] = set()
    for position, (number, row) in enumerate(rows):
        row |= {"id": position, "fileId": number}
        # Ids are unique in a file; which of two rows with one id is which is nobody's business here.
        wanted = f"{row['file']}{draw(st.integers(0, 5))}"
        if draw(st.booleans()) and wanted not in used:
            used.add(wanted)
            row["metaV2"]["chunkId"] = wanted
        if draw(st.integers(0, 4)) == 0:
            row["file"] = None
    file_relations = [{"file": path, "relations": {"imports": draw(TARGETS)}} for path in paths]
    return {"file_meta": file_meta, "chunk_meta": [row for _, row in rows], "file_relations": file_relations}


@settings(max_examples=150, deadline=None)
@given(
    sides(),
    sides(),
    st.sampled_from(sorted(LAYOUTS)),
    st.sampled_from(sorted(LAYOUTS)),
    st.fixed_dictionaries(
        {
            "max_changed_files": st.sampled_from([1, 200]),
            "max_chunks_per_file": st.sampled_from([2, 500]),
            "include_relations": st.booleans(),
            "detect_renames": st.booleans(),
        }
    ),
    st.randoms(use_true_random=False),
)
def test_events_are_the_oracles(
    before: Any, after: Any, old_layout: str, new_layout: str, options: Any, shuffle: random.Random
) -> None:
    expected = oracle_events(before, after, options)
    for side in (before, after):
        for rows in side.values():
            shuffle.shuffle(rows)
    with tempfile.TemporaryDirectory() as folder:
        old = write_index(Path(folder) / "old", {"code": before}, old_layout, manifest="auto")
        new = write_index(Path(folder) / "new", {"code": after}, new_layout)
        result = codeindex.diff(f"path:{old}", f"path:{new}", **options)
    found = [dict(event) for event in result.events]
    for event in found:
        if event["kind"] == "limits.chunkDiffSkipped":
            for name in ("chunksBefore", "chunksAfter", "maxChunksPerFile", "modifiedFiles", "maxChangedFiles"):
                event.pop(name, None)
    assert found == expected
    assert result.summary["totalEvents"] == len(expected)
