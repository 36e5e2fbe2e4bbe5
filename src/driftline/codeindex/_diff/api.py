"""What happened to the public surface between two versions: what breaks callers, and what does not (index diffs §8)."""

from __future__ import annotations

import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from driftline.codeindex._build.definitions import path_is_public
from driftline.codeindex._diff.chunks import file_imports
from driftline.codeindex._diff.diff import DiffRequest, prepare
from driftline.codeindex._diff.symbols import Symbol, symbol_from_row
from driftline.codeindex._options import DiffOptions, kind_of
from driftline.codeindex._read.artifacts import CHUNK_META, FILE_META, FILE_RELATIONS, read_pieces, require_artifact
from driftline.codeindex._read.resolve import IndexDir
from driftline.codeindex._read.rows import all_rows
from driftline.codeindex._storage import member
from driftline.codeindex._view import code
from driftline.core import JsonObject, Tracker, utf16_sort_key

Key = tuple[str, str]

BREAKING, COMPATIBLE = "breaking", "compatible"
_LOOSELY_TYPED = frozenset(("python", "javascript", "ruby", "bash"))
_IMPORTED = re.compile(r"from (\S+) import (\S+)(?: as (\S+))?")
_EXPORTED = re.compile(r"export (?:type )?(\S+)(?: as (\S+))? from (.+)")
_SCRIPT_ENDINGS = ("", *(f"{folder}.{ending}" for folder in ("", "/index") for ending in (
    "js", "mjs", "cjs", "jsx", "ts", "mts", "cts", "tsx", "d.ts",
)))  # fmt: skip
_MAX_DEPTH = 20
_PARAMETER = re.compile(r"(\*{0,2}|\.\.\.|&)\s*([\w$]+)(:)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ApiChange:
    """One change of the public surface."""

    verdict: str
    change: str
    file: str
    name: str
    kind: str
    reasons: tuple[str, ...] = ()
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class ApiReport:
    """All changes, the breaking ones first, and the size of the surface on both sides."""

    changes: tuple[ApiChange, ...]
    surface: tuple[int, int]
    labels: tuple[str, str]

    @property
    def breaking(self) -> tuple[ApiChange, ...]:
        """What may break a caller."""
        return tuple(change for change in self.changes if change.verdict == BREAKING)

    def only_breaking(self) -> ApiReport:
        """The report without compatible changes."""
        return ApiReport(self.breaking, self.surface, self.labels)

    def to_dict(self) -> JsonObject:
        """The report as plain data."""
        return {
            "from": self.labels[0],
            "to": self.labels[1],
            "surface": {"from": self.surface[0], "to": self.surface[1]},
            "breaking": len(self.breaking),
            "compatible": len(self.changes) - len(self.breaking),
            "changes": [{**asdict(change), "reasons": list(change.reasons)} for change in self.changes],
        }

    def to_frame(self) -> Any:
        """The changes as a Polars frame."""
        import polars as pl

        columns = ("verdict", "change", "file", "name", "kind", "reasons", "before", "after")
        types = {name: pl.List(pl.String) if name == "reasons" else pl.String for name in columns}
        rows = [{**asdict(change), "reasons": list(change.reasons)} for change in self.changes]
        return pl.DataFrame(rows, schema=types)


def api(
    from_ref: str,
    to_ref: str,
    cache_root: str | os.PathLike[str] | None = None,
    *,
    repo: str | os.PathLike[str] | None = None,
    tracker: Tracker | None = None,
) -> ApiReport:
    """What happened to the public surface between two versions."""
    options = DiffOptions.of(kind=kind_of(None, (from_ref, to_ref)))
    return report(prepare(from_ref, to_ref, cache_root, options, repo=repo, tracker=tracker))


@dataclass
class _Surface:
    """The definitions of one side, by module and name."""

    symbols: dict[Key, list[Symbol]] = field(default_factory=lambda: defaultdict(list))
    params: dict[int, list[str] | None] = field(default_factory=dict)
    languages: dict[str, str | None] = field(default_factory=dict)
    imports: dict[str, list[str]] = field(default_factory=dict)

    @cached_property
    def modules(self) -> frozenset[str]:
        """All modules that define or import something."""
        return frozenset({module for module, _ in self.symbols} | set(self.imports))

    @cached_property
    def classes(self) -> dict[str, list[Key]]:
        """Classes by name."""
        found: dict[str, list[Key]] = defaultdict(list)
        for key, symbols in sorted(self.symbols.items()):
            if symbols[0].kind == "class":
                found[key[1]].append(key)
        return found

    def reexports(self) -> dict[Key, str]:
        """Names that public modules export from others, one by one, and how they are written."""
        found: dict[Key, str] = {}
        for module, texts in self.imports.items():
            for text in texts if path_is_public(self.languages.get(module), module) else ():
                match = _EXPORTED.fullmatch(text)
                if match is not None and (match[2] or match[1]) != "*":
                    found[module, match[2] or match[1]] = text
        return found

    def public(self) -> set[Key]:
        """The keys of everything public."""
        return {key for key, found in self.symbols.items() if any(item.public for item in found)}


def report(request: DiffRequest) -> ApiReport:
    """Compare the public surfaces of both sides."""
    old, new = (_surface(side.indexes["code"]) for side in (request.before, request.after))
    changes = sorted(_changes(old, new), key=_order)
    labels = tuple(side.label or side.ref.shown for side in (request.before, request.after))
    return ApiReport(tuple(changes), (len(old.public()), len(new.public())), (labels[0], labels[1]))


def _order(change: ApiChange) -> tuple[object, ...]:
    return change.verdict != BREAKING, utf16_sort_key(change.file), utf16_sort_key(change.name), change.change


def _module_of(path: str) -> str:
    """The module that a file is: a Python package and its `__init__.py` are one.

    >>> _module_of("pkg/a/__init__.py") == _module_of("pkg/a.py"), _module_of("a.go")
    (True, 'a.go')
    """
    if not path.endswith(".py"):
        return path
    plain = path.removesuffix(".py")
    return plain.removesuffix("/__init__") if plain.endswith("/__init__") else plain


def _surface(index: IndexDir) -> _Surface:
    pieces = read_pieces(index)
    surface = _Surface()
    for row in all_rows(require_artifact(index, FILE_META, pieces)):
        surface.languages[row["file"]] = row.get("language")
    for row in all_rows(require_artifact(index, CHUNK_META, pieces)):
        symbol = symbol_from_row(row, str(row.get("file")))
        if symbol.kind != "module":
            surface.symbols[_module_of(symbol.file), symbol.name].append(symbol)
            surface.params[id(symbol)] = member(row["metaV2"], "params")
    for row in all_rows(require_artifact(index, FILE_RELATIONS, pieces)):
        surface.imports[_module_of(row["file"])] = file_imports(row)
    return surface


def _changes(old: _Surface, new: _Surface) -> Iterator[ApiChange]:
    before, after = old.public(), new.public()
    for key in before - after:
        symbol = old.symbols[key][-1]
        container = (key[0], symbol.parent)
        if not (symbol.parent and container in before and container not in after):
            yield _removed(old, new, key, symbol)
    for key in after - before - old.reexports().keys():
        symbol = new.symbols[key][-1]
        container = (key[0], symbol.parent)
        if not (symbol.parent and container in after and container not in before):
            yield _change(COMPATIBLE, "added", None, symbol)
    for key in before & after:
        yield from _changed(old, new, key)
    yield from _changed_reexports(old, new)


def _changed_reexports(old: _Surface, new: _Surface) -> Iterator[ApiChange]:
    """Names that a module of JavaScript or TypeScript has, or had, only as re-exports of another module's."""
    before, after = old.reexports(), new.reexports()
    for key in before.keys() - after.keys():
        if not any(item.public for item in new.symbols.get(key, ())) and not _is_reexported(new, *key):
            yield ApiChange(BREAKING, "removed", *key, "re-export", (), before[key], None)
    for key in after.keys() - before.keys():
        if not any(item.public for item in old.symbols.get(key, ())) and not _is_reexported(old, *key):
            yield ApiChange(COMPATIBLE, "added", *key, "re-export", (), None, after[key])


def _change(verdict: str, what: str, before: Symbol | None, after: Symbol | None, *reasons: str) -> ApiChange:
    shown = after or before
    assert shown is not None
    texts = (before.signature if before else None, after.signature if after else None)
    return ApiChange(verdict, what, shown.file, shown.name, shown.kind, reasons, *texts)


def _removed(old: _Surface, new: _Surface, key: Key, symbol: Symbol) -> ApiChange:
    if not symbol.parent and _is_reexported(new, *key):
        return _change(COMPATIBLE, "re-exported", symbol, None, "the module still imports the name")
    base = _inherited_from(new, (key[0], symbol.parent), symbol.leaf) if symbol.parent else None
    if base is not None:
        return _change(COMPATIBLE, "inherited", symbol, None, f"{base} has it")
    hidden = "it is no longer public" if key in new.symbols else ""
    return _change(BREAKING, "removed", symbol, None, *filter(None, (hidden,)))


def _is_reexported(side: _Surface, module: str, name: str, depth: int = 0) -> bool:
    """Whether a module still binds a name by an import, also through a star."""
    for text in side.imports.get(module, ()):
        source, bound = _binding(text)
        if bound == name:
            return True
        target = _import_target(side, module, source) if bound == "*" and depth < _MAX_DEPTH else None
        if target is not None and ((target, name) in side.symbols or _is_reexported(side, target, name, depth + 1)):
            return True
    return False


def _binding(text: str) -> tuple[str, str]:
    """Where an import or a re-export takes something from, and the name it binds it to; blank where it binds none."""
    if found := _IMPORTED.fullmatch(text):
        source, imported, alias = found.groups()
    elif found := _EXPORTED.fullmatch(text):
        imported, alias, source = found.groups()
    else:
        return "", ""
    return source, alias or imported


def _import_target(side: _Surface, module: str, source: str) -> str | None:
    """The module of this index that an import names."""
    if source.startswith(("./", "../")):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(module), source))
        return next((path + ending for ending in _SCRIPT_ENDINGS if path + ending in side.modules), None)
    dots = len(source) - len(source.lstrip("."))
    rest = source.lstrip(".").replace(".", "/")
    known = side.modules
    if not dots:
        return next((found for found in sorted(known) if found == rest or found.endswith(f"/{rest}")), None)
    for parent in (module, module.rpartition("/")[0]):
        # A package is its own `__init__`, so one dot may mean the module itself or the folder it is in.
        folder = "/".join(parent.split("/")[: len(parent.split("/")) - dots + 1])
        candidate = f"{folder}/{rest}".strip("/") if rest else folder
        if candidate in known:
            return candidate
    return None


def _bases(signature: str) -> list[str]:
    """The names behind `class X(...)`, without keywords and type arguments."""
    found = re.search(r"\bclass [^(:\[]+(?:\[.*?\])?\s*\((.*)\)", signature)
    plain = re.sub(r"\[.*?\]", "", found[1]) if found else ""
    return [part.strip() for part in plain.split(",") if part.strip() and "=" not in part]


def _inherited_from(side: _Surface, container: Key, leaf: str, depth: int = 0) -> str | None:
    """The base, also of a base, that has a member."""
    for symbol in side.symbols.get(container, ()) if depth < _MAX_DEPTH else ():
        for base in _bases(symbol.signature):
            for module, name in _classes_named(side, container[0], base.rpartition(".")[2]):
                if (module, f"{name}.{leaf}") in side.symbols:
                    return name
                deeper = _inherited_from(side, (module, name), leaf, depth + 1)
                if deeper is not None:
                    return deeper
    return None


def _classes_named(side: _Surface, module: str, name: str) -> Iterable[Key]:
    """Classes of a name, those of the same module first."""
    if (module, name) in side.symbols:
        return [(module, name)]
    return side.classes.get(name, [])


def _changed(old: _Surface, new: _Surface, key: Key) -> Iterator[ApiChange]:
    before, after = old.symbols[key], new.symbols[key]
    if _heads(before) == _heads(after):
        return
    first, last = before[-1], after[-1]
    if {item.kind for item in before} != {item.kind for item in after}:
        yield _change(BREAKING, "kind", first, last, f"{first.kind} -> {last.kind}")
        return
    if old.languages.get(first.file) not in _LOOSELY_TYPED:
        gone = {item.signature_hash for item in before} - {item.signature_hash for item in after}
        yield _change(BREAKING if gone else COMPATIBLE, "signature", first, last)
        return
    reasons = _reasons(old, new, first, last)
    yield _change(BREAKING if reasons else COMPATIBLE, "signature", first, last, *reasons)


def _heads(symbols: Sequence[Symbol]) -> list[tuple[str, str]]:
    return sorted((symbol.kind, symbol.signature_hash) for symbol in symbols)


def _reasons(old: _Surface, new: _Surface, before: Symbol, after: Symbol) -> list[str]:
    if before.kind == "class":
        gone = [base for base in _bases(before.signature) if base not in _bases(after.signature)]
        return [f"base {base} removed" for base in gone]
    if before.kind != "function":
        return []
    language = old.languages.get(before.file)
    return _broken_parameters(language, old.params.get(id(before)) or [], new.params.get(id(after)) or [])


# Parameters of loosely typed languages: whether a valid call is still valid (index diffs §8.2).


@dataclass(frozen=True, slots=True)
class _Parameter:
    """One parameter: how it is given (`both`, `positional`, `keyword`, `rest`, `keywords`) and whether it must be."""

    name: str
    how: str
    required: bool


def _broken_parameters(language: str | None, before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The reasons why a caller of the old parameters may fail with the new ones.

    >>> _broken_parameters("python", ["a", "b=1"], ["a", "c=2", "*", "b=1"])
    ['b is keyword-only']
    >>> _broken_parameters("python", ["self", "a"], ["self", "a: int", "b=None"])
    []
    """
    old, new = _parse(language, before), _parse(language, after)
    found = {parameter.name: parameter for parameter in new if parameter.how not in ("rest", "keywords")}
    kinds = {parameter.how for parameter in new}
    reasons: list[str] = []
    for parameter in old:
        reasons += _lost(parameter, old, new, found, kinds)
    known = {parameter.name for parameter in old}
    if not any("removed" in reason for reason in reasons):
        added = [parameter for parameter in found.values() if parameter.name not in known and parameter.required]
        reasons += [f"{parameter.name} is new and required" for parameter in added if language != "javascript"]
    return reasons


def _lost(
    parameter: _Parameter,
    old: Sequence[_Parameter],
    new: Sequence[_Parameter],
    found: dict[str, _Parameter],
    kinds: set[str],
) -> list[str]:
    name, how = parameter.name, parameter.how
    if how in ("rest", "keywords"):
        return [] if how in kinds else [f"{'*' if how == 'rest' else '**'}{name} removed"]
    if name not in found:
        swallowed = {"keyword": "keywords" in kinds, "positional": "rest" in kinds or _has_place(name, old, new)}
        return [] if swallowed.get(how, {"rest", "keywords"} <= kinds) else [f"{name} removed"]
    match = found[name]
    if match.required and not parameter.required:
        return [f"{name} is now required"]
    if how != "keyword" and match.how == "keyword":
        return [f"{name} is keyword-only"]
    if how == "both" and match.how == "positional":
        return [f"{name} is positional-only"]
    places = _places(old), _places(new)
    moved = how != "keyword" and places[0].index(name) != places[1].index(name)
    return [f"{name} moved"] if moved else []


def _places(parameters: Sequence[_Parameter]) -> list[str]:
    return [parameter.name for parameter in parameters if parameter.how in ("both", "positional")]


def _has_place(name: str, old: Sequence[_Parameter], new: Sequence[_Parameter]) -> bool:
    """A positional-only parameter may change its name as long as its place is there."""
    return _places(old).index(name) < len(_places(new))


def _parse(language: str | None, texts: Sequence[str]) -> list[_Parameter]:
    parameters: list[_Parameter] = []
    how = "both"
    slash = texts.index("/") if language == "python" and "/" in texts else -1
    for place, text in enumerate(texts):
        if text == "/":
            continue
        if text == "*":
            how = "keyword"
            continue
        found = _PARAMETER.match(text)
        stars, name = (found[1], found[2]) if found else ("", text)
        if stars in ("*", "..."):
            parameters.append(_Parameter(name, "rest", False))
            how = "keyword"
        elif stars == "**":
            parameters.append(_Parameter(name, "keywords", False))
        else:
            given = "positional" if place < slash else _ruby_how(language, text) or how
            parameters.append(_Parameter(name, given, _is_required(language, text)))
    return parameters


def _ruby_how(language: str | None, text: str) -> str | None:
    return "keyword" if language == "ruby" and re.match(r"\w+:", text) else None


def _is_required(language: str | None, text: str) -> bool:
    if text.startswith("&"):
        return False
    return text.endswith(":") if language == "ruby" and re.match(r"\w+:", text) else "=" not in text


# Reports as lines of text, and as Markdown for a pull request.


def report_lines(report: ApiReport) -> Iterator[str]:
    """One line for each change, the breaking ones first."""
    compatible = len(report.changes) - len(report.breaking)
    yield f"{report.labels[0]} -> {report.labels[1]}: {len(report.breaking)} breaking, {compatible} compatible"
    for change in report.changes:
        reasons = f" ({'; '.join(change.reasons)})" if change.reasons else ""
        yield f"{change.verdict} {change.change}: {change.file}: {change.name}{reasons}"


def report_markdown(report: ApiReport) -> str:
    """The report as a page."""
    compatible = [change for change in report.changes if change not in report.breaking]
    lines = [f"## API {code(report.labels[0])} → {code(report.labels[1])}", ""]
    lines.append(f"**{len(report.breaking)} breaking**, {len(compatible)} compatible changes.")
    for title, changes in (("Breaking", report.breaking), ("Compatible", compatible)):
        if changes:
            lines += ["", f"### {title}", "", *_items(changes)]
    return "\n".join(lines)


def _items(changes: Sequence[ApiChange]) -> Iterator[str]:
    for change in changes:
        reasons = f": {'; '.join(change.reasons)}" if change.reasons else ""
        yield f"- {change.change} {code(change.name)} in {code(change.file)}{reasons}"
        if change.before and change.after and change.before != change.after:
            yield f"  - {code(change.before)}"
            yield f"  - {code(change.after)}"
