"""What equivalence of two JSON payloads means.

>>> from driftline import payloads
>>> plan = payloads.compile({"properties": {"total": {"x-migration-precision": 0.01}}})
>>> plan.compare({"total": 1.00}, {"total": 1.01}).is_match
True
"""

from driftline.payloads._compare.compare import PayloadPlan, assert_equivalent, compare, compile, error_response  # noqa: A004
from driftline.payloads._compare.report import Entry, Report
from driftline.payloads._lint import Finding, lint
from driftline.payloads._values.limits import EngineConfig

__all__ = [
    "EngineConfig",
    "Entry",
    "Finding",
    "PayloadPlan",
    "Report",
    "assert_equivalent",
    "compare",
    "compile",
    "error_response",
    "lint",
]
