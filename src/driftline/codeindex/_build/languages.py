"""One table a language: its file endings, its grammar and one query that names what an index is made of.

| capture | what it marks |
|---|---|
| `@function @class @value` | a definition, whose name is the first `@n` inside of it |
| `@scope` | a container that only gives names: a namespace, an `impl` |
| `@around` | the name of such a container around the whole file |
| `@default` | the value of `export default`, named `default` |
| `@c @t` | comments, which are dropped, and strings, which are kept to the byte |
| `@s @b` | statements and blocks where line breaks or indentation carry meaning |
| `@m` | a node that differs from another only by a comma or by nothing, such as a tuple of one |
| `@k` | a last comma that means something |
| `@j` | literals that stand side by side and mean one |
| `@call @imp @import` | called names, imported names, and statements that only import |
| `@load` | calls that import if the called name is `require`, `load` or `source` |
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Parser, Query
from driftline.core import JsonObject


@dataclass(frozen=True, slots=True)
class Language:
    """How one language is indexed."""

    name: str
    grammar: str
    endings: tuple[str, ...]
    query: str
    function: str = "language"
    mode: str = "code"
    wrappers: frozenset[str] = frozenset()
    # Node types that hold one definition as well as several; only where it is one do they belong to it.
    lists: frozenset[str] = frozenset()
    equal_quotes: bool = False
    docstrings: bool = False
    declarators: bool = False
    attributes: frozenset[str] = frozenset()
    file_names: tuple[str, ...] = field(default=())
    # The language of files under the same endings that this grammar cannot read: a header may be C or C++.
    extended_by: str | None = None

    def to_dict(self) -> JsonObject:
        """Everything that decides what is extracted, the version of the grammar included."""
        members = {name: getattr(self, name) for name in self.__slots__}
        plain = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in members.items()}
        return {**plain, "grammar": [self.grammar, version(self.grammar.replace("_", "-")) if self.grammar else ""]}


_PYTHON = Language(
    "python",
    "tree_sitter_python",
    (".py", ".pyi"),
    """
    (function_definition name: (_) @n) @function
    (class_definition name: (_) @n) @class
    (module (expression_statement (assignment left: (identifier) @n) @value))
    (class_definition body: (block (expression_statement (assignment left: (identifier) @n) @value)))
    (module (type_alias_statement left: (_) @n) @value)
    (comment) @c (string) @t (concatenated_string) @j (module ";" @d) (block ";" @d)
    (block) @b (block (_) @s) (module (_) @s)
    (tuple) @m (tuple_pattern) @m (subscript "," @k . "]")
    (call function: (_) @call)
    (import_statement) @imp (import_from_statement) @imp (future_import_statement) @imp
    """,
    wrappers=frozenset(("decorated_definition", "expression_statement")),
    equal_quotes=True,
    docstrings=True,
)

_SCRIPT_WRAPPERS = frozenset(
    ("export_statement", "lexical_declaration", "variable_declaration", "expression_statement", "ambient_declaration")
)
_SCRIPT_LISTS = frozenset(("lexical_declaration", "variable_declaration"))
_SCRIPT_QUERY = """
    (function_declaration name: (_) @n) @function
    (generator_function_declaration name: (_) @n) @function
    (class_declaration name: (_) @n) @class
    (method_definition name: (_) @n) @function
    (program (lexical_declaration (variable_declarator name: (identifier) @n) @value))
    (program (variable_declaration (variable_declarator name: (identifier) @n) @value))
    (program (export_statement declaration: (_ (variable_declarator name: (identifier) @n) @value)))
    (program (export_statement value: (_) @default))
    (program (expression_statement (assignment_expression left: (member_expression) @n) @value))
    (comment) @c (string) @t (template_string) @t (regex) @t
    (program (_) @s) (statement_block (_) @s) (class_body (_) @s) (switch_case (_) @s)
    (expression_statement ";" @d) (lexical_declaration ";" @d) (variable_declaration ";" @d) (class_body ";" @d)
    (return_statement ";" @d) (throw_statement ";" @d) (break_statement ";" @d) (continue_statement ";" @d)
    (import_statement ";" @d) (export_statement ";" @d)
    (call_expression function: (_) @call) (new_expression constructor: (_) @call)
    (import_statement) @imp (export_statement source: (_)) @reexport
    (call_expression function: (identifier) arguments: (arguments . (string))) @load
"""
_JAVASCRIPT = Language(
    "javascript",
    "tree_sitter_javascript",
    (".js", ".mjs", ".cjs", ".jsx"),
    _SCRIPT_QUERY + "(field_definition property: (_) @n) @value",
    wrappers=_SCRIPT_WRAPPERS,
    lists=_SCRIPT_LISTS,
    attributes=frozenset(("decorator",)),
    equal_quotes=True,
)
_TYPESCRIPT_QUERY = (
    _SCRIPT_QUERY
    + """
    (abstract_class_declaration name: (_) @n) @class
    (function_signature name: (_) @n) @function
    (method_signature name: (_) @n) @function
    (abstract_method_signature name: (_) @n) @function
    (interface_body (property_signature name: (_) @n) @value)
    (public_field_definition name: (_) @n) @value
    (interface_declaration name: (_) @n) @class
    (type_alias_declaration name: (_) @n) @value
    (enum_declaration name: (_) @n) @class
    (program (ambient_declaration (_ (variable_declarator name: (identifier) @n) @value)))
    (internal_module body: (_ (lexical_declaration (variable_declarator name: (identifier) @n) @value)))
    (internal_module body: (_ (export_statement declaration: (_ (variable_declarator name: (identifier) @n) @value))))
    (module body: (_ (lexical_declaration (variable_declarator name: (identifier) @n) @value)))
    (module body: (_ (export_statement declaration: (_ (variable_declarator name: (identifier) @n) @value))))
    (internal_module name: (_) @n) @scope (module name: (_) @n) @scope
"""
)
_TYPESCRIPT = Language(
    "typescript",
    "tree_sitter_typescript",
    (".ts", ".mts", ".cts"),
    _TYPESCRIPT_QUERY,
    function="language_typescript",
    wrappers=_SCRIPT_WRAPPERS,
    lists=_SCRIPT_LISTS,
    attributes=frozenset(("decorator",)),
    equal_quotes=True,
)
_TSX = Language(
    "tsx",
    "tree_sitter_typescript",
    (".tsx",),
    _TYPESCRIPT_QUERY,
    function="language_tsx",
    wrappers=_SCRIPT_WRAPPERS,
    lists=_SCRIPT_LISTS,
    attributes=frozenset(("decorator",)),
    equal_quotes=True,
)

_GO = Language(
    "go",
    "tree_sitter_go",
    (".go",),
    """
    (function_declaration name: (_) @n) @function
    (method_declaration name: (_) @n) @function
    (source_file (type_declaration (type_spec name: (_) @n) @class))
    (source_file (type_declaration (type_alias name: (_) @n) @class))
    (source_file (const_declaration (const_spec name: (_) @n) @value))
    (source_file (var_declaration (var_spec name: (_) @n) @value))
    (source_file (var_declaration (var_spec_list (var_spec name: (_) @n) @value)))
    (method_elem name: (_) @n) @function
    (comment) @c (interpreted_string_literal) @t (raw_string_literal) @t
    (statement_list (_) @s) (field_declaration_list (_) @s)
    (call_expression function: (_) @call) (import_spec path: (_) @imp) (import_declaration) @import
    """,
    wrappers=frozenset(("type_declaration", "const_declaration", "var_declaration")),
    lists=frozenset(("type_declaration", "const_declaration", "var_declaration")),
)

_RUST = Language(
    "rust",
    "tree_sitter_rust",
    (".rs",),
    """
    (function_item name: (_) @n) @function (function_signature_item name: (_) @n) @function
    (struct_item name: (_) @n) @class (enum_item name: (_) @n) @class (union_item name: (_) @n) @class
    (trait_item name: (_) @n) @class (type_item name: (_) @n) @value (associated_type name: (_) @n) @value
    (const_item name: (_) @n) @value (static_item name: (_) @n) @value
    (macro_definition name: (_) @n) @function
    (impl_item type: (_) @n) @scope (mod_item name: (_) @n body: (_)) @scope
    (line_comment) @c (block_comment) @c (string_literal) @t (raw_string_literal) @t (char_literal) @t
    (tuple_expression) @m (tuple_type) @m (tuple_pattern) @m
    (tuple_type "(" . (_) . "," @k . ")") (tuple_pattern "(" . (_) . "," @k . ")")
    (call_expression function: (_) @call) (macro_invocation macro: (_) @call)
    (use_declaration argument: (_) @imp) (use_declaration) @import
    """,
    attributes=frozenset(("attribute_item",)),
)

_JAVA = Language(
    "java",
    "tree_sitter_java",
    (".java",),
    """
    (class_declaration name: (_) @n) @class (interface_declaration name: (_) @n) @class
    (enum_declaration name: (_) @n) @class (record_declaration name: (_) @n) @class
    (annotation_type_declaration name: (_) @n) @class
    (method_declaration name: (_) @n) @function (constructor_declaration name: (_) @n) @function
    (compact_constructor_declaration name: (_) @n) @function
    (annotation_type_element_declaration name: (_) @n) @function
    (field_declaration declarator: (variable_declarator name: (_) @n) @value)
    (constant_declaration declarator: (variable_declarator name: (_) @n) @value)
    (enum_constant name: (_) @n) @value
    (line_comment) @c (block_comment) @c (string_literal) @t (character_literal) @t
    (method_invocation name: (_) @call) (object_creation_expression type: (_) @call)
    (import_declaration (_) @imp) (import_declaration) @import
    """,
    wrappers=frozenset(("field_declaration", "constant_declaration")),
    lists=frozenset(("field_declaration", "constant_declaration")),
)

_C_QUERY = """
    (function_definition declarator: (_) @n) @function
    (declaration declarator: (function_declarator) @n) @prototype
    (declaration declarator: (pointer_declarator declarator: (function_declarator) @n)) @prototype
    (struct_specifier name: (_) @n body: (_)) @class (union_specifier name: (_) @n body: (_)) @class
    (enum_specifier name: (_) @n body: (_)) @class
    (type_definition declarator: (_) @n) @value
    (preproc_def name: (_) @n) @value (preproc_function_def name: (_) @n) @function
    (translation_unit (declaration declarator: (init_declarator declarator: (_) @n)) @value)
    (translation_unit (declaration declarator: (identifier) @n) @value)
    (preproc_ifdef (declaration declarator: (init_declarator declarator: (_) @n)) @value)
    (comment) @c (string_literal) @t (char_literal) @t
    (call_expression function: (_) @call) (preproc_include path: (_) @imp) (preproc_include) @import
"""
_C = Language("c", "tree_sitter_c", (".c", ".h"), _C_QUERY, declarators=True, extended_by="cpp")
_CPP = Language(
    "cpp",
    "tree_sitter_cpp",
    (".cc", ".cpp", ".cxx", ".hpp", ".hh", ".hxx", ".ipp"),
    _C_QUERY
    + """
    (class_specifier name: (_) @n body: (_)) @class
    (field_declaration declarator: (function_declarator) @n) @function
    (field_declaration declarator: (pointer_declarator declarator: (function_declarator) @n)) @function
    (field_declaration declarator: (reference_declarator (function_declarator) @n)) @function
    (declaration declarator: (reference_declarator (function_declarator) @n)) @prototype
    (namespace_definition name: (_) @n) @scope (alias_declaration name: (_) @n) @value (raw_string_literal) @t
    """,
    wrappers=frozenset(("template_declaration",)),
    declarators=True,
)

_CSHARP = Language(
    "csharp",
    "tree_sitter_c_sharp",
    (".cs",),
    """
    (class_declaration name: (_) @n) @class (struct_declaration name: (_) @n) @class
    (interface_declaration name: (_) @n) @class (enum_declaration name: (_) @n) @class
    (record_declaration name: (_) @n) @class (delegate_declaration name: (_) @n) @function
    (method_declaration name: (_) @n) @function (constructor_declaration name: (_) @n) @function
    (property_declaration name: (_) @n) @value (enum_member_declaration name: (_) @n) @value
    (event_field_declaration (variable_declaration (variable_declarator name: (_) @n) @value))
    (field_declaration (variable_declaration (variable_declarator name: (_) @n) @value))
    (namespace_declaration name: (_) @n) @scope (file_scoped_namespace_declaration name: (_) @around)
    (comment) @c (string_literal) @t (verbatim_string_literal) @t (character_literal) @t
    (interpolated_string_expression) @t (raw_string_literal) @t
    (invocation_expression function: (_) @call) (object_creation_expression type: (_) @call)
    (using_directive) @imp
    """,
    wrappers=frozenset(("field_declaration", "event_field_declaration", "variable_declaration")),
    lists=frozenset(("variable_declaration",)),
)

_RUBY = Language(
    "ruby",
    "tree_sitter_ruby",
    (".rb", ".rake", ".gemspec"),
    """
    (method name: (_) @n) @function (singleton_method name: (_) @n) @function
    (class name: (_) @n) @class (module name: (_) @n) @class
    (assignment left: (constant) @n) @value
    (comment) @c (string) @t (regex) @t (heredoc_body) @t
    (body_statement (_) @s) (program (_) @s) (then (_) @s) (else (_) @s) (do (_) @s)
    (call method: (_) @call)
    (call method: (identifier) arguments: (argument_list . (string))) @load
    """,
    file_names=("Rakefile", "Gemfile"),
)

_BASH = Language(
    "bash",
    "tree_sitter_bash",
    (".sh", ".bash"),
    """
    (function_definition name: (_) @n) @function
    (program (variable_assignment name: (_) @n) @value)
    (program (declaration_command (variable_assignment name: (_) @n) @value))
    (comment) @c (string) @t (raw_string) @t (ansi_c_string) @t (heredoc_body) @t
    (program (_) @s) (compound_statement (_) @s) (do_group (_) @s) (if_statement (_) @s) (elif_clause (_) @s)
    (else_clause (_) @s) (case_item (_) @s) (subshell (_) @s)
    (command name: (_) @call)
    (command name: (command_name) argument: (_)) @load
    """,
    wrappers=frozenset(("declaration_command",)),
)

_JSON = Language(
    "json",
    "tree_sitter_json",
    (".json",),
    """
    (document (object (pair key: (_) @n) @value))
    (document (object (pair value: (object (pair key: (_) @n) @value))))
    (string) @t (comment) @c
    """,
)
_YAML = Language(
    "yaml",
    "tree_sitter_yaml",
    (".yaml", ".yml"),
    """
    (document (block_node (block_mapping (block_mapping_pair key: (_) @n) @value)))
    (document (block_node (block_mapping (block_mapping_pair
      value: (block_node (block_mapping (block_mapping_pair key: (_) @n) @value))))))
    (document (flow_node (flow_mapping (flow_pair key: (_) @n) @value)))
    (comment) @c (double_quote_scalar) @t (single_quote_scalar) @t (block_scalar) @t
    (block_mapping) @b (block_sequence) @b (block_mapping_pair) @s (block_sequence_item) @s
    """,
)
_TOML = Language(
    "toml",
    "tree_sitter_toml",
    (".toml",),
    """
    (document (pair . (_) @n) @value)
    (document (table . "[" . (_) @n) @value)
    (document (table (pair . (_) @n) @value))
    (document (table_array_element . "[[" . (_) @n) @value)
    (comment) @c (string) @t (pair) @s
    """,
)
_MARKDOWN = Language(
    "markdown",
    "tree_sitter_markdown",
    (".md", ".markdown"),
    """
    (section (atx_heading heading_content: (_) @n)) @value
    (section (setext_heading heading_content: (_) @n)) @value
    (fenced_code_block) @t
    (section (_) @s)
    """,
    mode="prose",
)

# The file that names a Go module: read for the API alone, so it needs no grammar.
_GO_MODULE = Language("gomod", "", (), "", file_names=("go.mod",))

LANGUAGES: dict[str, Language] = {
    language.name: language
    for language in (
        _PYTHON, _JAVASCRIPT, _TYPESCRIPT, _TSX, _GO, _RUST, _JAVA, _C, _CPP, _CSHARP, _RUBY, _BASH, _JSON, _YAML,
        _TOML, _MARKDOWN, _GO_MODULE,
    )
}  # fmt: skip
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
