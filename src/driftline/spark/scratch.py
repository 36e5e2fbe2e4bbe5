"""Storage that the driver and all tasks of a session see while a job runs (storage §5)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from driftline.core._engines import SHARED_FOLDER_VARIABLE, shared_folder
from driftline.core._objects import ObjectPath, Place, place_at
from driftline.core._parts import remove
from driftline.core._workspace import Workspace
from driftline.errors import EngineError
from driftline.spark.runtime.masters import is_local
from driftline.spark.watching import is_connect_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def scratch_place(spark: SparkSession) -> Iterator[Place | None]:
    """A folder of this job's own, gone at the end: on one machine, on a shared disk, or in a store; else None."""
    given = place_at(shared_folder() or "")
    if isinstance(given, ObjectPath):
        place = given / f"driftline-{secrets.token_hex(8)}"
        try:
            yield place
        finally:
            remove(place)
    elif shared_folder() or _is_one_machine(spark):
        with Workspace(shared_folder()) as workspace:
            yield workspace.folder
    else:
        yield None


def workspace_parent() -> str | None:
    """Where the driver's own files go: beside those of the tasks, if that is a disk."""
    given = shared_folder()
    return None if given is None or isinstance(place_at(given), ObjectPath) else given


def shared_folder_needed(reason: str) -> EngineError:
    """The error for work that needs storage which all machines see."""
    return EngineError(
        f"{reason}: name a folder or an address (s3://…) that this machine and all workers share in "
        f"{SHARED_FOLDER_VARIABLE}",
        code="shared_folder_needed",
    )


def _is_one_machine(spark: SparkSession) -> bool:
    return not is_connect_session(spark) and is_local(spark.conf.get("spark.master") or "")
