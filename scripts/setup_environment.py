"""Makes `.venv` from the locked requirements; run by `make setup` with any Python 3.11 or newer.

Only the standard library is used, because nothing else is there yet. `uv` (itself locked) installs the packages,
since it is quick and caches what it built; where it cannot reach the packages, pip does it with the same lock.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
OLDEST_PYTHON = (3, 11)


def main() -> None:
    if sys.version_info < OLDEST_PYTHON:
        _try_newer_python()
    python = _make_environment()
    print("setting up .venv (once; about a minute)", file=sys.stderr, flush=True)
    _run([python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", _lock("bootstrap")])
    if not _install_with_uv(python):
        print("uv did not work here, using pip", file=sys.stderr, flush=True)
        _run([python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", _lock("dev")])
    _run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", str(ROOT)])
    _run([python, "-m", "compileall", "-q", str(ROOT / "src")])


def _try_newer_python() -> None:
    for minor in range(14, OLDEST_PYTHON[1] - 1, -1):
        try:
            os.execvp(f"python3.{minor}", [f"python3.{minor}", __file__])
        except FileNotFoundError:
            continue
    sys.exit(f"driftline needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. Set PYTHON=…")


def _make_environment() -> str:
    try:
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
    except (subprocess.CalledProcessError, OSError) as error:
        sys.exit(f"cannot make a virtual environment ({error}); on Debian: apt-get install python3-venv")
    return str(ENVIRONMENT / "bin" / "python")


def _install_with_uv(python: str) -> bool:
    command = [python, "-m", "uv", "pip", "install", "--quiet", "--python", python, "--require-hashes"]
    command.append("--compile-bytecode")  # imports are a third of a short command's time
    return subprocess.run([*command, "-r", _lock("dev")], check=False).returncode == 0


def _lock(name: str) -> str:
    return str(ROOT / "requirements" / f"{name}.lock")


def _run(command: list[str]) -> None:
    code = subprocess.run(command, check=False).returncode
    if code != 0:
        sys.exit(f"set-up stopped: {' '.join(command[:4])} … ended with {code}")


if __name__ == "__main__":
    main()
