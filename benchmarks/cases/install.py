"""What an install costs: megabytes to download and on disk, seconds with pip and no cache, in clean environments."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.contest import ROOT, Contender, Row, hold


def run(full: bool) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
        wheel = next(Path(folder).glob("*.whl"))
        contenders = [
            Contender("driftline (core)", call=partial(install, str(wheel))),
            Contender("datacompy + deepdiff", call=partial(install, "datacompy", "deepdiff")),
            Contender("driftline[all]", call=partial(install, f"driftline[all] @ {wheel.as_uri()}")),
        ]
        return hold("pip install", contenders if full else contenders[:2], rounds=1)


def install(*packages: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "env")
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        pip = [str(home / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
        subprocess.run([*pip, "download", "-d", f"{folder}/wheels", *packages], check=True)
        before = megabytes(home)  # pip itself
        began = time.monotonic()
        subprocess.run([*pip, "install", *packages], check=True)
        wall = time.monotonic() - began
        installed = megabytes(home) - before
        return {"download_mb": megabytes(Path(folder, "wheels")), "installed_mb": installed, "wall_s": wall}


def megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
