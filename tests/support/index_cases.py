"""The golden cases of code indexes: the published vectors and the folders of `tests/conformance/codeindex`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.index_layouts import write_index

TESTS = Path(__file__).parent.parent
VECTORS = json.loads((TESTS / "vectors" / "index-cases.json").read_text())
FOLDERS = sorted((TESTS / "conformance" / "codeindex").glob("*/case.json"))
CASES = VECTORS["cases"] + [json.loads(path.read_text()) for path in FOLDERS]

OPTION_NAMES = {
    "modes": "modes",
    "detectRenames": "detect_renames",
    "includeRelations": "include_relations",
    "maxChangedFiles": "max_changed_files",
    "maxChunksPerFile": "max_chunks_per_file",
    "maxEvents": "max_events",
}


def write_case(case: dict[str, Any], layout: str, folder: Path) -> None:
    """Both indexes of a case, as `from` and `to`."""
    for side in ("from", "to"):
        write_index(folder / side, case[side], layout)


def options_of(case: dict[str, Any]) -> dict[str, Any]:
    """The options of a case by their names in Python."""
    return {OPTION_NAMES[name]: value for name, value in {**VECTORS["defaults"], **case["options"]}.items()}
