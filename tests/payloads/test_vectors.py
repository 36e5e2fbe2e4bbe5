import json
from pathlib import Path

import pytest

import driftline as dl
from driftline.errors import PayloadError
from driftline.payloads import error_response
from support.payload_expectations import assert_expected

CASES = json.loads((Path(__file__).parents[1] / "vectors" / "payload-cases.json").read_text())["cases"]


@pytest.mark.parametrize("as_text", [False, True], ids=["objects", "text"])
@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_public_case(case, as_text):
    pair = [json.dumps(case[side]) if as_text else case[side] for side in ("old", "new")]
    schema = json.dumps(case["schema"]) if as_text else case["schema"]
    expect = case["expect"]
    if expect.get("error"):
        with pytest.raises(PayloadError) as caught:
            dl.compare(*pair, schema, case["config"])
        assert error_response(caught.value)["success"] is False
    else:
        assert_expected(dl.compare(*pair, schema, case["config"]).to_dict(), expect)
