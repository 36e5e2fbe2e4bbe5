"""C, C++, Ruby and Bash: names that came and went; what else changed needs a compiler or a run (index diffs §8.2)."""

from __future__ import annotations

import re
from collections.abc import Callable

from driftline.codeindex._api.model import Files, Surface, Thing

_HEADERS = (".h", ".hpp", ".hh", ".hxx", ".ipp")
_NOT_API = re.compile(r"(^|/)(tests?|testing|specs?|docs?|examples?|benchmarks?|scripts?|tools?|vendor|third_party)/")


def headers(files: Files) -> Surface:
    """C and C++: headers below `include/`, else all outside of `src/`."""
    listed = [path for path in files if path.endswith(_HEADERS) and not _NOT_API.search(path)]
    inside = [path for path in listed if path.startswith("include/") or "/include/" in path]
    chosen = set(inside or (path for path in listed if "/src/" not in f"/{path}"))
    return _surface(files, chosen.__contains__)


def scripts(files: Files) -> Surface:
    """Ruby and Bash: all files that are not tests or tools."""
    return _surface(files, lambda path: _NOT_API.search(path) is None and not path.endswith(("_test.rb", "_spec.rb")))


def _surface(files: Files, is_api: Callable[[str], bool]) -> Surface:
    found = Surface()
    for path, file in sorted(files.items()):
        if is_api(path):
            found.files.add(path)
            for fact in file.facts.names:
                found.names.setdefault(fact.name, Thing.of(fact, path, fact.name))
    return found
