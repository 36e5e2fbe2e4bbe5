"""Fixtures that all rooms share: one Spark session per test process, and hypothesis profiles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from support.s3 import s3_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Deadlines would time things in tests; machines are noisy.
settings.register_profile(
    "default", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=2000)
# A change must pass or fail for its own sake: in CI the examples are the same in every run.
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local Spark session for the whole test process."""
    from driftline.spark._runtime.session import open_session

    with open_session("local[2]") as session:
        yield session


@pytest.fixture(scope="session")
def s3_process() -> Iterator[tuple[Any, dict[str, str]]]:
    """One S3 emulator for the whole test process, with a bucket `data`: a client, and how to reach it."""
    with s3_server("data") as (client, settings):
        yield client, settings


@pytest.fixture(scope="module")
def s3(s3_process: tuple[Any, dict[str, str]]) -> Iterator[tuple[Any, dict[str, str]]]:
    """The emulator, reached through the environment for as long as a module's tests run."""
    from driftline.core import _objects as objects

    client, settings = s3_process
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        objects._store.cache_clear()
        yield client, settings
    objects._store.cache_clear()
