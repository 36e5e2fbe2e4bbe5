"""The declared pipeline: what flows where, run again and again, resumed after a kill.

from driftline import pipeline
record = pipeline.run_pipeline(pipeline.load("nightly.toml"))
"""

from driftline.pipeline._declare.declaration import Pipeline
from driftline.pipeline._declare.read import load
from driftline.pipeline._run.records import RunRecord, StageRun
from driftline.pipeline._run.run import run_pipeline

__all__ = ["Pipeline", "RunRecord", "StageRun", "load", "run_pipeline"]
