"""The declared pipeline: what flows where, run again and again, resumed after a kill.

from driftline import pipeline
record = pipeline.run_pipeline(pipeline.load("nightly.toml"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.pipeline._check import (
        CheckReport as CheckReport,
        PairResult as PairResult,
        check_html as check_html,
        check_json as check_json,
        check_junit as check_junit,
        check_pairs as check_pairs,
        read_pairs as read_pairs,
    )
    from driftline.pipeline._declare.declaration import (
        Pipeline as Pipeline,
        load as load,
        state_directory as state_directory,
        template_for as template_for,
    )
    from driftline.pipeline._run.notify import notify as notify
    from driftline.pipeline._run.records import RecordStore as RecordStore, RunRecord as RunRecord, StageRun as StageRun
    from driftline.pipeline._run.report import (
        PastRun as PastRun,
        ReportStage as ReportStage,
        RunReport as RunReport,
        counts_text as counts_text,
        report_of as report_of,
        report_page as report_page,
        run_history as run_history,
        run_report as run_report,
    )
    from driftline.pipeline._run.run import (
        PlannedStage as PlannedStage,
        Selection as Selection,
        dry_run as dry_run,
        failed_before_start as failed_before_start,
        failed_stages as failed_stages,
        plan_lines as plan_lines,
        run_pipeline as run_pipeline,
    )
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
