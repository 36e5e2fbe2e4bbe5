"""Every folder of tests/conformance/payloads is a case: schema.yaml, old.json, new.json, config.json?, expect.json."""

import json
from pathlib import Path

import pytest

import driftline as dl
from driftline.errors import PayloadError
from support.payload_expectations import assert_expected

FOLDER = Path(__file__).parents[1] / "conformance" / "payloads"
CASES = sorted(folder for folder in FOLDER.iterdir() if (folder / "expect.json").exists())


def read(folder: Path) -> tuple:
    config = folder / "config.json"
    return (
        (folder / "old.json").read_bytes(),
        (folder / "new.json").read_bytes(),
        (folder / "schema.yaml").read_text(),
        json.loads(config.read_text()) if config.exists() else None,
    )


@pytest.mark.parametrize("folder", CASES, ids=[folder.name for folder in CASES])
def test_case(folder):
    expect = json.loads((folder / "expect.json").read_text())
    arguments = read(folder)
    if "error" in expect:
        with pytest.raises(PayloadError) as caught:
            dl.compare(*arguments)
        assert caught.value.code == expect["error"]
        assert expect.get("details", {}).items() <= caught.value.details.items()
        is_processing = caught.value.code in ("MAX_DEPTH_EXCEEDED", "TIMEOUT")
        assert (caught.value.context.get("partial_result") is not None) == is_processing
        return
    report = dl.compare(*arguments)
    assert_expected(report.to_dict(), expect)
    if expect.get("diffs_in_order"):
        assert [entry.path for entry in report.diffs] == [entry["path"] for entry in expect["diffs"]]
    for name in expect.get("absent", []):
        assert name not in report.to_dict()
    assert dl.compare(*arguments).to_json(execution=False) == report.to_json(execution=False)


def test_every_extension_has_a_case():
    from driftline.payloads._rules.extensions import EXTENSIONS

    schemas = "\n".join((folder / "schema.yaml").read_text() for folder in CASES)
    assert [name for name in EXTENSIONS if name not in schemas] == []
