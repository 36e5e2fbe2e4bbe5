"""The declared pipeline: what flows where, run again and again, resumed after a kill.

from driftline import pipeline
record = pipeline.run_pipeline(pipeline.load("nightly.toml"))
"""

from driftline.pipeline.declaration import Pipeline
from driftline.pipeline.reading import load
from driftline.pipeline.records import RunRecord, StageRun
from driftline.pipeline.running import run_pipeline

__all__ = ["Pipeline", "RunRecord", "StageRun", "load", "run_pipeline"]
