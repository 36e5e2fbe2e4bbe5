"""`make pictures`: the pictures of README and docs, made from real runs so that they cannot lie.

A terminal picture is what the command printed on a pseudo-terminal, drawn as SVG without web fonts. A page picture is
a screenshot of Chromium, where there is one.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DIFF = ["diff", "monday.csv", "tuesday.csv", "--key", "id"]
# rich's own template links fonts from the network; this one takes what the reader's machine has.
SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    folder = ROOT / "examples" / "customers"
    write_terminal("diff-terminal.svg", "driftline diff monday.csv tuesday.csv --key id", DIFF, folder, columns=86)
    if CHROMIUM is None:
        print("Chromium is not installed: the pictures of pages stay as they are", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as scratch:
        page = Path(scratch, "report.html")
        command = [sys.executable, "-m", "driftline", *DIFF, "-o", str(page)]
        subprocess.run(command, cwd=folder, check=False)
        screenshot(page.as_uri(), PICTURES / "report.png", scratch)
        screenshot(review(Path(scratch)).as_uri(), PICTURES / "review.png", scratch)
        with console_result(Path(scratch, "console"), folder) as address:
            screenshot(address, PICTURES / "console.png", scratch)
        screenshot(nights(Path(scratch, "retail")).as_uri(), PICTURES / "pipeline.png", scratch, 900)


def nights(folder: Path) -> Path:
    """The page of the retail example's pipeline, after three nights."""
    retail = ROOT / "examples" / "retail"
    subprocess.run([sys.executable, str(retail / "make_data.py"), str(folder), "--rows", "3000"], check=True)
    shutil.copy(retail / "retail.toml", folder)
    shutil.copy(retail / "api" / "schema.yaml", folder / "api")
    later = [
        path for part in ("data", "cdc") for path in sorted((folder / part).iterdir()) if "2026-03-03" in path.name
    ]
    command = [sys.executable, "-m", "driftline", "pipeline"]
    for path in later:  # the third night comes later, as it does in life
        path.rename(path.with_name(f".{path.name}"))
    subprocess.run([*command, "run", "retail.toml"], cwd=folder, check=True, capture_output=True)
    for path in later:
        path.with_name(f".{path.name}").rename(path)
    subprocess.run([*command, "run", "retail.toml"], cwd=folder, check=True, capture_output=True)
    subprocess.run([*command, "report", "retail.toml", "-o", "report.html"], cwd=folder, check=True)
    return folder / "report.html"


def review(scratch: Path) -> Path:
    """The review page of the story docs/stories/code-review.md, made by that page's own commands."""
    story = (ROOT / "docs" / "stories" / "code-review.md").read_text(encoding="utf-8")
    setup = re.findall(r"^\$ (.*)$", story.split("## 2.")[0], re.MULTILINE)
    page = scratch / "review.html"
    make = f'"{sys.executable}" -m driftline index diff git:main git:change --repo shop -o {page}'
    for command in [*setup, make]:
        subprocess.run(command, shell=True, cwd=scratch, check=True)
    return page


def write_terminal(name: str, shown: str, arguments: list[str], folder: Path, *, columns: int) -> None:
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold cyan"), shown))
    console.print(Text.from_ansi(on_terminal(arguments, folder, columns)), soft_wrap=True)
    svg = console.export_svg(title="driftline", code_format=SVG, unique_id="terminal")
    (PICTURES / name).write_text(svg, encoding="utf-8")


def on_terminal(arguments: list[str], folder: Path, columns: int) -> str:
    main_end, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    command = [sys.executable, "-m", "driftline", "--color", "always", *arguments]
    with subprocess.Popen(command, cwd=folder, stdout=side, stderr=subprocess.DEVNULL) as process:
        os.close(side)
        screen = b""
        while process.poll() is None or screen == b"":
            try:
                screen += os.read(main_end, 65536)
            except OSError:
                break
    os.close(main_end)
    return screen.decode().replace("\r\n", "\n")


@contextmanager
def console_result(place: Path, tables: Path) -> Iterator[str]:
    """The address of a diff in a running console, made there by its own form."""
    place.mkdir()
    for name in ("monday.csv", "tuesday.csv"):
        shutil.copy(tables / name, place)
    command = [sys.executable, "-m", "driftline", "ui", str(place), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        root = server.stderr.readline().split()[2].rstrip("/")
        start = urlopen(root, timeout=60).read().decode()
        token = start.partition('name="form-token" content="')[2].partition('"')[0]
        form = {"form_token": token, "a": "monday.csv", "b": "tuesday.csv", "key": "id"}
        for _ in range(2):  # the first one also waits for imports
            shown = urlopen(Request(f"{root}/compare", urlencode(form).encode(), {"Origin": root}), timeout=60)
            while "/results/" not in shown.url:
                time.sleep(0.2)
                shown = urlopen(shown.url, timeout=60)
        time.sleep(1)  # until columns are counted
        yield shown.url
        server.terminate()


def screenshot(address: str, target: Path, scratch: str, height: int = 640) -> None:
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={scratch}/profile"]
    flags += [f"--window-size=1280,{height}", f"--screenshot={target}"]
    subprocess.run([str(CHROMIUM), *flags, address], check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    main()
