"""The languages that are indexed: the tables of `languages.toml`, which tells what its captures mark."""

from __future__ import annotations

import importlib
import tomllib
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING

import msgspec

from driftline.core import JsonObject

if TYPE_CHECKING:
    from tree_sitter import Parser, Query


class Language(msgspec.Struct, frozen=True):
    """How one language is indexed."""

    name: str
    query: str
    grammar: str = ""
    endings: tuple[str, ...] = ()
    function: str = "language"
    mode: str = "code"
    wrappers: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
    equal_quotes: bool = False
    docstrings: bool = False
    declarators: bool = False
    attributes: frozenset[str] = frozenset()
    file_names: tuple[str, ...] = ()
    extended_by: str | None = None

    def to_dict(self) -> JsonObject:
        """Everything that decides what is extracted, the version of the grammar included."""
        members = msgspec.structs.asdict(self)
        plain = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in members.items()}
        return {**plain, "grammar": [self.grammar, version(self.grammar.replace("_", "-")) if self.grammar else ""]}


def _read_tables() -> dict[str, Language]:
    content = tomllib.loads(files("driftline.codeindex").joinpath("languages.toml").read_text("utf-8"))
    found = {}
    for name, table in content["languages"].items():
        query = "".join(content["queries"][part] for part in table.pop("queries", [name]))
        found[name] = msgspec.convert({"name": name, "query": query, **table}, Language)
    return found


LANGUAGES = _read_tables()
# Formats whose definitions are entries: keys of a document.
ENTRY_LANGUAGES = frozenset(("json", "yaml", "toml", "markdown"))

_BY_ENDING = {ending: language for language in LANGUAGES.values() for ending in language.endings}
_BY_FILE_NAME = {name: language for language in LANGUAGES.values() for name in language.file_names}


def language_of(path: str) -> Language | None:
    """The language of a file, by its name.

    >>> language_of("src/a.PY").name, language_of("README") is None
    ('python', True)
    """
    name = path.rpartition("/")[2]
    dot = name.rfind(".")
    return _BY_FILE_NAME.get(name) or _BY_ENDING.get(name[dot:].lower() if dot > 0 else "")


@cache
def loaded(name: str) -> tuple[Parser, Query]:
    """The parser and the compiled query of a language; the grammars are an extra."""
    from tree_sitter import Language as Grammar
    from tree_sitter import Parser, Query

    language = LANGUAGES[name]
    grammar = Grammar(getattr(importlib.import_module(language.grammar), language.function)())
    return Parser(grammar), Query(grammar, language.query)
