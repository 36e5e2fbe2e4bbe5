"""`make docs`: the documentation as a site in out/site that needs no network: open out/site/index.html.

Zensical builds the pages and the search from mkdocs.yml. Two scripts that it would load from the network, one for
diagrams and one for the search of pages opened from disk, are put beside the pages, where npm is there to get them.
Where node is installed, the search of the site itself must find the page of each word in `SEARCHES` first.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "out" / "site"
BUILDER = ROOT / ".docs" / "bin" / "zensical"
# package, file in it, the address that the theme would load it from
SCRIPTS = {
    "mermaid@12.3.0": ("package/dist/mermaid.min.js", None),
    "iframe-worker@1.0.4": ("package/shim/index.js", "https://unpkg.com/iframe-worker/shim"),
}
# what a reader types -> the page that must be found first
SEARCHES = {
    "tolerance": "guides/tables.html",
    "merge": "cli/driftline-merge.html",
    "exit code": "reliability.html",
    "token": "guides/gateway.html",
}


def main() -> None:
    shutil.rmtree(SITE, ignore_errors=True)
    subprocess.run([BUILDER, "build", "--clean", "-f", "mkdocs.yml"], cwd=ROOT, check=True)
    if shutil.which("npm") is None:
        print("npm is not installed: diagrams stay text, and search needs the pages served by HTTP", file=sys.stderr)
    else:
        for package, (member, address) in SCRIPTS.items():
            put_beside(package, member, address)
    check_searches()
    print(f"the site is in {SITE.relative_to(ROOT)}: open index.html")


def check_searches() -> None:
    """Exit with 1 where a search answers with another page."""
    if shutil.which("node") is None:
        print("node is not installed: searches are not checked", file=sys.stderr)
        return
    for words, wanted in SEARCHES.items():
        found = search(words)
        if not found or found[0].partition("#")[0] != wanted:
            sys.exit(f"a search for {words!r} finds {', '.join(found[:3]) or 'nothing'}: {wanted} must be first")


def search(words: str) -> list[str]:
    """The pages that the site's own search finds, in its order."""
    command = ["node", str(Path(__file__).with_name("search_site.js")), str(SITE), words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def put_beside(package: str, member: str, address: str | None) -> None:
    """Fetch one script and let the pages that want it load it from the site itself."""
    name = f"{package.partition('@')[0]}.js"
    (SITE / "assets" / name).write_bytes(packed(package, member))
    for page in SITE.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        here = f"{os.path.relpath(SITE / 'assets', page.parent)}/{name}"
        if address is not None:
            text = text.replace(address, here)
        elif 'class="mermaid"' in text:
            text = text.replace("</head>", f'<script src="{here}"></script></head>')
        page.write_text(text, encoding="utf-8")


def packed(package: str, member: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, capture_output=True)
        archive = next(Path(folder).glob("*.tgz")).read_bytes()
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        file = opened.extractfile(member)
        assert file is not None, f"{package} has no {member}"
        return file.read()


if __name__ == "__main__":
    main()
