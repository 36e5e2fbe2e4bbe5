"""A real browser that shows pages, where there is one."""

import shutil
from pathlib import Path

from support.processes import run_process

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_QUIET_FLAGS = [
    *["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"],
    *["--disable-component-update", "--disable-sync", "--disable-quic"],
]


def shown_page(page: Path, address: str = "") -> str:
    """The page's elements after its scripts have run; `address` is what follows the file's name."""
    profile = f"--user-data-dir={page.parent / 'profile'}"
    command = [str(CHROMIUM), *_QUIET_FLAGS, profile, "--dump-dom", f"file://{page}{address}"]
    return run_process(command, capture_output=True, text=True, check=True).stdout
