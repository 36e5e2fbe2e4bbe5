"""What equivalence of two JSON payloads means.

>>> from driftline import payloads
>>> plan = payloads.compile({"properties": {"total": {"x-migration-precision": 0.01}}})
>>> plan.compare({"total": 1.00}, {"total": 1.01}).is_match
True
"""

from driftline.payloads.comparison import PayloadPlan, assert_equivalent, compare, compile, error_response  # noqa: A004
from driftline.payloads.config import EngineConfig
from driftline.payloads.lint import Finding, lint
from driftline.payloads.report import Entry, Report

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
