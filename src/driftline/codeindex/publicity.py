"""What is public by the rules of a language, from the source alone; the path has its say later (index diffs §6.5)."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

from driftline.codeindex.definitions import Definition
from driftline.codeindex.languages import Language

_SCRIPT_EXPORTS = re.compile(
    rb"export\s*(?:default\s+(\w+)\s*;?|\{([^}]*)\})|(?:module\.)?exports\.\w+\s*=\s*(\w+)\s*;"
    rb"|module\.exports\s*=\s*(?:\{([^}]*)\}|(\w+)\s*;)"
)
_RUBY_ACCESS = re.compile(rb"^[ \t]*(private|protected|public)[ \t]*(?:#.*)?$", re.MULTILINE)
_CPP_ACCESS = re.compile(rb"\b(public|private|protected)\s*:(?!:)")
_HIDDEN_PATH = re.compile(
    r"(^|/)(tests?|testing|__tests__|spec|docs?|examples?|benchmarks?|scripts?|\.github)(/|$)"
    r"|(^|/)(conftest|setup)\.py$|(^|/)test_[^/]*$|_test\.\w+$|\.(test|spec)\.\w+$"
)
_HEADERS = (".h", ".hpp", ".hh", ".hxx", ".ipp")


def mark_public(language: Language, source: bytes, found: Sequence[Definition]) -> None:
    """Say of each definition whether it is public; members only where their container is."""
    rule = _RULES.get(language.name, _not_underscored)
    listed = _listed(language, source, found)
    for item in found:
        above = item.container
        hidden = above is not None and above.kind != "scope" and not above.public
        item.public = item.kind == "scope" or (not hidden and rule(source, item, listed))


def path_is_public(language: str | None, path: str) -> bool:
    """Whether definitions of a file can be public at all: tests, docs and examples never are.

    >>> path_is_public("python", "pkg/_impl.py"), path_is_public("go", "internal/a.go"), path_is_public("c", "a.h")
    (False, False, True)
    """
    if _HIDDEN_PATH.search(path):
        return False
    if language == "python":
        modules = path.rpartition(".")[0].split("/")
        return not any(part.startswith("_") and not part.startswith("__") for part in modules)
    if language == "go":
        return "/internal/" not in f"/{path}"
    return path.endswith(_HEADERS) if language in ("c", "cpp") else True


def _listed(language: Language, source: bytes, found: Sequence[Definition]) -> frozenset[str] | None:
    """Names that the module itself declares public; None where it does not say."""
    if language.name == "python":
        return _all_of(source, found)
    if language.name in ("javascript", "typescript", "tsx"):
        groups = [group for match in _SCRIPT_EXPORTS.finditer(source) for group in match.groups() if group]
        return frozenset(word.decode("utf-8", "replace") for group in groups for word in re.findall(rb"[\w$]+", group))
    return None


def _all_of(source: bytes, found: Sequence[Definition]) -> frozenset[str] | None:
    """A literal `__all__`."""
    for item in found:
        if item.name == "__all__" and item.body is not None:
            try:
                value = ast.literal_eval(source[item.body_start : item.body_end].decode())
            except (ValueError, SyntaxError, UnicodeDecodeError, RecursionError, MemoryError):
                return None
            return (
                frozenset(name for name in value if isinstance(name, str)) if isinstance(value, list | tuple) else None
            )
    return None


_Rule = Callable[[bytes, Definition, "frozenset[str] | None"], bool]


def _header(source: bytes, item: Definition) -> str:
    return " ".join(source[item.start : item.body_start].decode("utf-8", "replace").split())


def _not_underscored(source: bytes, item: Definition, listed: frozenset[str] | None) -> bool:
    leaf = item.leaf.rpartition(".")[2]
    return not leaf.startswith("_") or (leaf.startswith("__") and leaf.endswith("__"))


def _python(source: bytes, item: Definition, listed: frozenset[str] | None) -> bool:
    if listed is not None and item.container is None:
        return item.name in listed
    return _not_underscored(source, item, listed)


def _script(source: bytes, item: Definition, listed: frozenset[str] | None) -> bool:
    leaf = item.leaf.rpartition(".")[2]
    header = _header(source, item)
    if leaf.startswith(("_", "#")) or re.search(r"\bprivate\b", header.partition("(")[0]):
        return False
    if item.container is not None and item.container.kind != "scope":
        return True
    named = item.name.startswith(("module.exports", "exports.")) or item.name == "default"
    return named or header.startswith(("export ", "declare ")) or item.name in (listed or ())


def _go(source: bytes, item: Definition, listed: frozenset[str] | None) -> bool:
    return all(part[:1].isupper() for part in item.name.split("."))


def _rust(source: bytes, item: Definition, listed: frozenset[str] | None) -> bool:
    header = re.sub(r"^(#\[.*?\]\s*)+", "", _header(source, item))
    in_trait = item.container is not None and " as " in item.container.name
    of_trait = item.container is not None and re.match(r"pub (unsafe )?trait\b", _header(source, item.container))
    exported_macro = item.node.type == "macro_definition" and "#[macro_export]" in _header(source, item)
    return bool(re.match(r"pub (?!\()", header) or in_trait or of_trait) or bool(exported_macro)


def _modified(source: bytes, item: Definition, listed: frozenset[str] | None) -> bool:
    """Java and C#: by a modifier, or as a member of an interface or enum."""
    above = item.container
    if above is not None and re.search(r"\b(interface|enum|@interface)\b", _header(source, above)):
        return "private " not in _header(source, item)
    return re.search(r"\b(public|protected)\b", _header(source, item).partition("(")[0]) is not None


def _c(source: bytes, item: Definition, listed: frozenset[str] | None) -> bool:
    if not _not_underscored(source, item, listed) or _header(source, item).startswith("static "):
        return False
    above = item.container
    if above is None or above.kind != "class" or above.body is None:
        return True
    labels = _CPP_ACCESS.findall(source, above.body_start, item.start)
    return labels[-1] != b"private" if labels else above.node.type != "class_specifier"


def _ruby(source: bytes, item: Definition, listed: frozenset[str] | None) -> bool:
    above = item.container
    if above is None or item.kind != "function":
        return True
    if re.search(rb"\bprivate[ \t]+$", source[max(0, item.start - 20) : item.start]):
        return False
    labels = _RUBY_ACCESS.findall(source, above.start, item.start)
    return not labels or labels[-1] != b"private"


_RULES: dict[str, _Rule] = {
    "python": _python,
    "javascript": _script,
    "typescript": _script,
    "tsx": _script,
    "go": _go,
    "rust": _rust,
    "java": _modified,
    "csharp": _modified,
    "c": _c,
    "cpp": _c,
    "ruby": _ruby,
}
