"""Shipping driftline to the workers of a cluster: its own files as a zip, which Spark hands to every Python worker.

The packages that driftline needs (polars, pyarrow, …) hold native code and are not shipped this way: the workers'
Python has them, or gets them as an archived environment (`spark.archives`).
"""

from __future__ import annotations

import tempfile
import weakref
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import driftline
from driftline.core._json import sha256_hex
from driftline.spark.runtime.masters import is_local
from driftline.spark.watching import is_connect_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EPOCH = (1980, 1, 1, 0, 0, 0)
_LEFT_OUT = frozenset({".pyc", ".pyo"})
_shipped: weakref.WeakSet[SparkSession] = weakref.WeakSet()


def ship_to_tasks(session: SparkSession) -> None:
    """Ship driftline to the caller's own session, once; the tasks of this very machine see it already."""
    is_here = not is_connect_session(session) and is_local(session.conf.get("spark.master") or "")
    if is_here or session in _shipped:
        return
    with tempfile.TemporaryDirectory(prefix="driftline-ship-") as folder:
        ship_driftline(session, Path(folder))
    _shipped.add(session)


def ship_driftline(session: SparkSession, folder: Path) -> None:
    """Make this driftline importable in the session's tasks."""
    session.addArtifacts(str(package_zip(folder)), pyfile=True)


def package_zip(folder: Path) -> Path:
    """The package as a zip whose name tells its content, so that another version never hides behind an old name."""
    root = Path(driftline.__file__).parent
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.suffix not in _LEFT_OUT)
    content = sha256_hex(b"".join(path.read_bytes() for path in files))[:12]
    target = folder / f"driftline-{content}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
        for path in files:
            name = path.relative_to(root.parent).as_posix()
            out.writestr(zipfile.ZipInfo(name, _EPOCH), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return target
