"""Which reader and which surface belong to a language, and what the files say that describe a package."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from driftline.codeindex._api import Fact, FileFacts, Files, Surface, Thing, go, namespaced, python, rust, script
from driftline.codeindex._api.compare import Reading

if TYPE_CHECKING:
    from tree_sitter import Node

MANIFEST_LANGUAGES = frozenset(("json", "toml", "gomod"))
_PACKAGE_JSON = ("name", "version", "private", "exports", "types", "typings", "module", "main")
_HEADERS = (".h", ".hpp", ".hh", ".hxx", ".ipp")
_NOT_API = re.compile(r"(^|/)(tests?|testing|specs?|docs?|examples?|benchmarks?|scripts?|tools?|vendor|third_party)/")
_SHOWING_WORDS = frozenset(("pub", "export", "default", "ambient"))
_TABLES = ("package", "lib", "project", "accepted", "levels")


# C, C++, Ruby and Bash: names that came and went; what else changed needs a compiler or a run.


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


@dataclass(frozen=True, slots=True)
class Family:
    """Languages whose files make one surface."""

    languages: tuple[str, ...]
    surface: Callable[[Files], Surface]
    reading: Reading
    separator: str = "."


FAMILIES = (
    Family(("python",), python.surface, Reading("python", by_keyword=True)),
    Family(("go", "gomod"), go.surface, Reading("go")),
    Family(("rust", "toml"), rust.surface, Reading("rust"), "::"),
    Family(("javascript", "typescript", "tsx", "json"), script.surface, Reading("script", overloads=True)),
    Family(("java",), namespaced.surface, Reading("java", overloads=True)),
    Family(("csharp",), namespaced.surface, Reading("csharp", by_keyword=True, overloads=True)),
    Family(("c", "cpp"), headers, Reading("plain")),
    Family(("ruby", "bash"), scripts, Reading("plain")),
)


_READERS: dict[str, Callable[[Node], FileFacts]] = {
    "python": python.read, "go": go.read, "rust": rust.read, "java": namespaced.read, "csharp": namespaced.read,
    "javascript": lambda root: script.read(root, typed=False), "typescript": script.read, "tsx": script.read,
}  # fmt: skip


def facts_of(language: str, source: bytes, root: Node | None) -> FileFacts | None:
    """The facts of a file; None where a language has none."""
    if language in MANIFEST_LANGUAGES:
        return _manifest(language, source)
    reader = _READERS.get(language)
    return reader(root) if reader is not None and root is not None else None


def _manifest(language: str, source: bytes) -> FileFacts | None:
    """What the file of a package says; None for any other data."""
    kept: dict[str, Any] = {}
    try:
        if language == "gomod":
            lines = (line.split() for line in source.decode().splitlines())
            kept = dict(words[:2] for words in lines if len(words) > 1 and words[0] == "module")
        elif language == "json" and b'"name"' in source:
            value = json.loads(source)
            kept = {name: value[name] for name in _PACKAGE_JSON if name in value} if isinstance(value, dict) else {}
        elif language == "toml":
            tables = tomllib.loads(source.decode())
            kept = {name: tables[name] for name in _TABLES if name in tables}
        return FileFacts(manifest=json.loads(json.dumps(kept, default=str))) if kept else None
    except (ValueError, RecursionError):
        return None  # reported as a parse error of the file itself


# What a file on its own makes visible: the mark that definitions carry in a diff.


def exported_names(language: str, facts: FileFacts) -> set[str]:
    """The names of definitions that their file lets others see."""
    declared = facts.declared if facts.declared is not None and "?" not in facts.declared else None
    listed = {fact.value for fact in facts.names if fact.kind == "export"}
    around = facts.unit if language == "csharp" else ""
    found: set[str] = set()
    for fact in facts.names:
        if fact.kind == "impl":
            found |= {f"{fact.name}.{member.name}" for member in fact.members}
        elif fact.kind == "method":
            found |= {f"{fact.value}.{fact.name}"} if _is_upper(fact.value, fact.name) else set()
        elif declared is None and fact.name in listed:
            found.add(fact.name)
            for member in fact.members:
                _add_visible(found, language, member, fact.name)
        elif declared is None or fact.name in declared:
            _add_visible(found, language, fact, "")
    return {f"{around}.{name}" for name in found} if around else found


def _is_upper(*names: str) -> bool:
    return all(name[:1].isupper() for name in names)


def _is_hidden(language: str, fact: Fact, above: str) -> bool:
    if language == "python":
        return fact.name.startswith("_") and not (fact.name.startswith("__") and fact.name.endswith("__"))
    if language == "go":
        return not _is_upper(fact.name)
    if language in ("java", "csharp"):
        return "public" not in fact.flags and "protected" not in fact.flags
    return not above and _SHOWING_WORDS.isdisjoint(fact.flags)


def _add_visible(found: set[str], language: str, fact: Fact, above: str) -> None:
    name, kind = fact.name, fact.kind
    if kind in ("import", "export", "use") or (kind != "mod" and _is_hidden(language, fact, above)):
        return
    full = f"{above}.{name}" if above else name
    found.add(full.replace("<init>", above.rpartition(".")[2]) if "<" in name else full)
    for member in fact.members:
        if kind != "namespace" or not _SHOWING_WORDS.isdisjoint([*fact.flags, *member.flags]):
            _add_visible(found, language, member, full)
