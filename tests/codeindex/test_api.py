"""Verdicts about the API: the vectors, and what each language's callers can write."""

# ruff: noqa: E501 - one line a case, as far as it goes

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tree_sitter")

from driftline import codeindex
from driftline.codeindex import ACCEPTED_FILE, ApiReport, accepted_toml, report_github
from driftline.codeindex._api import SURFACE_RULES, FileFacts, SourceFile
from driftline.codeindex._api.report import compare_files
from driftline.codeindex._build.extract import extract
from driftline.codeindex._build.languages import language_of
from driftline.errors import IndexRefError

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/api-verdicts.json").read_text())["cases"]


def side(files: dict[str, str]) -> dict[str, SourceFile]:
    found = {}
    for path, source in files.items():
        language = language_of(path)
        name = language.name if language else ""
        extracted = extract(name, source.encode()) if name else None
        facts = (extracted.facts if extracted else None) or FileFacts()
        broken = "unparsed" if extracted and extracted.parse_error else None
        found[path] = SourceFile(path, name, hashlib.sha1(source.encode()).hexdigest(), facts, broken)
    return found


def compared(before: dict[str, str], after: dict[str, str], *only: str) -> ApiReport:
    return compare_files(side(before), side(after), ("a", "b"), only)


def told(report: ApiReport) -> list[str]:
    return sorted({f"{change.rule} {change.name}" for change in report.changes if change.level != "patch"})


def expected(case: dict[str, Any]) -> list[str]:
    return sorted(f"{change['rule']} {change['name']}" for change in case["expect"])


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["id"])
def test_vectors(case: dict[str, Any]) -> None:
    report = compared(case["before"], case["after"])
    assert told(report) == expected(case)
    assert bool(report.breaking) == case["breaks"]


def test_the_vectors_have_a_direction() -> None:
    right = [told(compared(case["after"], case["before"])) == expected(case) for case in VECTORS]
    assert sum(right) < len(VECTORS) / 2


Cases = list[tuple[str, dict[str, str], dict[str, str], list[str]]]


def one(path: str, before: str, after: str) -> tuple[dict[str, str], dict[str, str]]:
    more = {"go.mod": "module m\n"} if path.endswith(".go") else {}
    return {path: before, **more}, {path: after, **more}


JAVA, TS, RUST = "src/main/java/p/A.java", "index.ts", "src/lib.rs"
CASES: Cases = [
    # Names that a caller can write.
    ("py private module", {"pkg/__init__.py": "from ._core import fetch\n__all__ = ['fetch']\n",
                           "pkg/_core.py": "def fetch(url, proxies=None): ...\n"},
     {"pkg/__init__.py": "from ._core import fetch\n__all__ = ['fetch']\n", "pkg/_core.py": "def fetch(url): ...\n"},
     ["parameter-removed pkg.fetch"]),
    ("py all +=", *one("m.py", "__all__ = ['a']\n__all__ += ['_b']\ndef a(): ...\ndef _b(x): ...\n",
                       "__all__ = ['a']\n__all__ += ['_b']\ndef a(): ...\ndef _b(): ...\n"), ["parameter-removed m._b"]),
    ("py all computed", *one("m.py", "def a(): ...\n__all__ = names()\n", "__all__ = names()\n"), ["removed m.a"]),
    ("py all becomes computed", *one("m.py", "def a(): ...\n__all__ = ['a']\n", "__all__ = names()\n"), ["unresolved m.a"]),
    ("py star from outside", *one("m.py", "def a(): ...\n", "from os import *\n"), ["unresolved m.a"]),
    ("py outside base", *one("m.py", "from x import B\nclass A(B):\n    def f(self): ...\n",
                             "from x import B\nclass A(B): ...\n"), ["base-unresolved m.A.f"]),
    ("py attrs", *one("m.py", "import attr\n@attr.s\nclass A:\n    _x = attr.ib()\n",
                      "import attr\n@attr.s\nclass A:\n    _x = attr.ib()\n    y = attr.ib()\n"),
     ["added m.A.y", "parameter-added-required m.A.__init__"]),
    ("py in try", *one("m.py", "try:\n    from x import f\nexcept ImportError:\n    def f(a): ...\n",
                       "try:\n    from x import f\nexcept ImportError:\n    def f(a, b): ...\n"), []),
    ("data", {"tsconfig.json": '{"a": 1}', ".golangci.yml": "a: 1\n", "Cargo.lock": "", "x.toml": "[a]\nb = 1\n"},
     {"tsconfig.json": '{"b": 1}', ".golangci.yml": "b: 1\n", "Cargo.lock": "", "x.toml": "[b]\n"}, []),
    ("java annotation with argument", *one(JAVA, 'package p;\npublic class A { public int f() { return 1; } }\n',
     'package p;\npublic class A { @Deprecated(since = "2") public int f() { return 1; } }\n'), ["deprecated p.A.f"]),
    ("java annotated removed", *one(JAVA, 'package p;\npublic class A { @SuppressWarnings("x") public int gone() { return 1; } }\n',
     "package p;\npublic class A { }\n"), ["removed p.A.gone"]),
    ("java annotated class", *one(JAVA, 'package p;\n@Ann(x = "(") public class A { public int f() { return 1; } }\n',
     'package p;\n@Ann(x = "(") public class A { }\n'), ["removed p.A.f"]),
    ("cs attribute", *one("A.cs", 'namespace N;\npublic class A { [Obsolete("x (y)")] public int F() => 1; }\n',
                          "namespace N;\npublic class A { }\n"), ["removed N.A.F"]),
    ("go moved to another file", {"a.go": "package m\n\nfunc F() {}\nfunc G() {}\n", "go.mod": "module m\n"},
     {"a.go": "package m\n\nfunc F() {}\n", "b.go": "package m\n\nfunc G() {}\n", "go.mod": "module m\n"}, []),
    ("rust pub in a private mod", *one(RUST, "mod a { pub fn f() {} }\n", "mod a { }\n"), []),
    ("rust pub use", *one(RUST, "mod a { pub fn f() {} }\npub use a::f;\n", "mod a { pub fn f() {} }\n"), ["removed crate.f"]),
    # Tokens that break nobody.
    ("go names", *one("a.go", "package m\n\nfunc F(a int) (int, error) { return 1, nil }\n",
                      "package m\n\nfunc F(b int) (n int, err error) { return 1, nil }\n"), []),
    ("go any", *one("a.go", "package m\n\nfunc F(a interface{}, b byte) {}\n", "package m\n\nfunc F(a any, b uint8) {}\n"), []),
    ("go tag", *one("a.go", 'package m\n\ntype T struct { A int `json:"a"` }\n', "package m\n\ntype T struct { A int }\n"), []),
    ("rust names", *one(RUST, "pub fn f<'a, T: Clone>(x: &'a T) -> &'a T { x }\n", "pub fn f<'b, U: Clone>(y: &'b U) -> &'b U { y }\n"), []),
    ("rust derive added", *one(RUST, "pub struct P;\n", "#[derive(Clone)]\npub struct P;\n"), []),
    ("java words", *one(JAVA, "package p;\npublic interface A { void f(int a); }\n",
                        "package p;\npublic interface A { public void f(final int b); }\n"), []),
    ("ts optional parameter", *one(TS, "export function f(a: number): void {}\n", "export function f(b?: number): void {}\n"), []),
    ("ts union order", *one(TS, "export function f(a: A | B): Array<A> {}\n", "export function f(a: B | A): A[] {}\n"), []),
    # Fields, variants and members.
    ("go field", *one("a.go", "package m\n\ntype T struct { A, B int }\n", "package m\n\ntype T struct { A int }\n"), ["removed m.T.B"]),
    ("go interface method", *one("a.go", "package m\n\ntype I interface { F() }\n", "package m\n\ntype I interface { F(); G() }\n"),
     ["member-added-required m.I.G"]),
    ("go build tag", *one("a.go", "//go:build windows || !linux\n\npackage m\n\nfunc F() {}\n",
                          "//go:build windows || !linux\n\npackage m\n"), []),
    ("go major version", {"go.mod": "module x.io/m\n", "a/a.go": "package a\n\ntype T struct{}\n\nfunc F() {}\n",
                          "b.go": "package m\n\nimport \"x.io/m/a\"\n\nfunc G(t a.T) {}\n"},
     {"go.mod": "module x.io/m/v2\n", "a/a.go": "package a\n\ntype T struct{}\n",
      "b.go": "package m\n\nimport \"x.io/m/v2/a\"\n\nfunc G(t a.T) {}\n"}, ["module-renamed x.io/m", "removed x.io/m/a.F"]),
    ("rust field", *one(RUST, "pub struct P { pub a: i32, pub b: i32 }\n", "pub struct P { pub a: i32 }\n"), ["removed crate.P.b"]),
    ("rust variant", *one(RUST, "pub enum E { A, B(u8) }\n", "pub enum E { A }\n"), ["removed crate.E.B"]),
    ("rust trait method", *one(RUST, "pub trait T {}\n", "pub trait T { fn g(&self); }\n"), ["member-added-required crate.T.g"]),
    ("rust macro", *one(RUST, "pub fn f() {}\n", "make!(f);\n"), ["unresolved crate.f"]),
    ("java record", *one(JAVA, "package p;\npublic record A(int x) { }\n", "package p;\npublic record A(int x, int y) { }\n"),
     ["added p.A.y", "parameter-added-required p.A.<init>"]),
    ("java inherited", *one(JAVA, "package p;\npublic class A extends B { public void f() { } }\nclass B { }\n",
                            "package p;\npublic class A extends C { }\nclass B { }\n"),
     ["base-added p.A", "base-unresolved p.A", "base-unresolved p.A.f"]),
    ("java base of the repository", *one(JAVA, "package p;\npublic class A extends B { }\npublic class B { }\n",
                                         "package p;\npublic class A extends C { }\npublic class B { }\n"),
     ["base-added p.A", "base-removed p.A"]),
    ("java renamed type parameter", *one(JAVA, "package p;\npublic class A<O> { public <R> R f(B<? super O> b, R r) { } }\n",
                                         "package p;\npublic class A<T> { public <U> U f(B<? super T> b, U r) { } }\n"), []),
    ("java overload by itself", *one(JAVA, "package p;\npublic class A { public void f() { } public static <T> void f(T a) { } }\n",
                                     "package p;\npublic class A { public static <T> void f(T a) { } public final void f() { } }\n"),
     ["final-added p.A.f"]),
    ("java nested abstract class", *one(JAVA, "package p;\npublic abstract class A { }\n",
                                        "package p;\npublic abstract class A { public abstract static class B { } }\n"),
     ["added p.A.B"]),
    ("cs property", *one("A.cs", "namespace N { public class A { public int P { get; } internal int Q { get; } } }\n",
                         "namespace N { public class A { } }\n"), ["removed N.A.P"]),
    ("ts namespace", *one(TS, "export namespace N { export const f = (a: A): B => a; export const g = (): A => 1; }\n",
                          "export namespace N { export const f = (a: A, b: A): B => a; }\n"),
     ["parameter-added-required N.f", "removed N.g"]),
    ("ts inferred field", *one(TS, "export class C { static s = 1; t = 'a'; u = -1; v = 1 }\n",
                               "export class C { static s = ''; t = `b`; u = 2; v }\n"), ["unresolved C.s", "unresolved C.v"]),
    ("ts inferred value", *one(TS, "export const a = { x: 1, 'y': [1, 2] }, b = f(1), c = 'x' as const, d = [1], e = { g() { return 1 } }\n",
                               "export const a = { 'x': 2, y: [3], }, b = g(1), c = 'y' as const, d = [1, ''], e = { g() { return 2 } }\n"),
     ["unresolved b", "unresolved c", "unresolved d"]),
    ("ts inferred and written", *one(TS, "export class C { s = 1 }\n", "export class C { s: string = '' }\n"), ["unresolved C.s"]),
    ("java import of a package", *one(JAVA, "package p;\nimport q.T;\npublic class A { public T f() { return null; } public T g; }\n",
     "package p;\nimport q.*;\npublic class A { public T f() { return null; } public r.T g; }\n"), ["type-changed p.A.g", "unresolved p.A.f"]),
    ("java concrete class", {JAVA: "package p;\npublic class A extends q.B { }\n", "src/main/java/p/I.java": "package p;\npublic interface I { void f(); }\n"},
     {JAVA: "package p;\npublic class A extends q.B implements I { }\n", "src/main/java/p/I.java": "package p;\npublic interface I { void f(); }\n"},
     ["added p.A.f", "base-added p.A"]),
    ("ts internal", *one(TS, "/** @internal */\nexport function f(): void {}\n", "export const x: A = 1\n"), ["added x"]),
    ("js", *one("index.js", "exports.f = function (a) {}\nmodule.exports.g = (a, b) => 1\n", "exports.f = function (a, b) {}\n"),
     ["parameter-added f", "removed g"]),
    ("ts entry pattern", {"package.json": '{"name": "x", "exports": {"./*": "./dist/*.js"}}', "src/a.ts": "export const k: A = 1\n"},
     {"package.json": '{"name": "x", "exports": {"./*": "./dist/*.js"}}', "src/a.ts": "export const l: A = 1\n"},
     ["added x/a.l", "removed x/a.k"]),
    ("base added", *one("m.py", "class A: ...\nclass B: ...\n", "class A: ...\nclass B(A): ...\n"), ["base-added m.B"]),
    # What is not known.
    ("ts broken", *one(TS, "export const K: A = 1\nexport function two(): void {}\n",
                       "export function one(a: number) { if (a {\nexport const K: A = 1\n"), ["unparsed K"]),
    ("broken alike", *one("m.py", "def f(:\n", "def f(:\n"), []),
    ("re-export of a broken file", {"p/__init__.py": "from ._a import f\n", "p/_a.py": "def f(): ...\n"},
     {"p/__init__.py": "from ._a import f\n", "p/_a.py": "def f(:\n"}, ["unparsed p.f"]),
    ("other languages", {"a.kt": "fun a() {}", "b.kt": ""}, {"a.kt": "fun b() {}", "b.kt": "x"}, ["out-of-scope .kt"]),
    ("c", *one("m.h", "int f(int a);\nstatic int g(void);\nint h(int a);\n", "int h(long a);\n"), ["removed f", "unresolved h"]),
    ("cpp", *one("m.hpp", "class A { int p(); public: int q(); private: int r(); };\n", "class A { };\n"), ["removed A.q"]),
    ("ruby", *one("m.rb", "class A\n  def f(a)\n  end\n  def h\n  end\n  private\n  def g\n  end\nend\n",
                  "class A\n  def f(a, b)\n  end\nend\n"), ["removed A.h", "unresolved A.f"]),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_cases(case: Any) -> None:
    _, before, after, names = case
    assert told(compared(before, after)) == names


READERS = (
    "compare.py",
    "go.py",
    "__init__.py",
    "namespaced.py",
    "python.py",
    "readers.py",
    "rust.py",
    "script.py",
    "../rules.toml",
)
# A change of these files asks whether builds that are there still tell the truth: if facts change, raise the number.
KNOWN = (4, "c1df2bc01dc5")


def test_a_changed_reader_asks_for_a_look_at_the_number() -> None:
    folder = Path(codeindex.__file__).parent / "_api"
    sources = b"".join((folder / name).read_bytes() for name in READERS)
    digest = hashlib.sha1(sources).hexdigest()[:12]
    assert (SURFACE_RULES, digest) == KNOWN


SCRIPT_TYPES = [
    ("export declare function f(a: A): void;", "export declare function f(a: B): void;", "unresolved"),
    ("export declare function f(a: string): void;", "export declare function f(a: number): void;", "parameter-type"),
    ("export declare function f(a: 'x' | 1): void;", "export declare function f(a: 'x' | 2 | 1): void;", "annotation-changed"),
    ("export declare function f(a: A<B>): void;", "export declare function f(a: A<B> | null): void;", "annotation-changed"),
    ("export declare function f(a: A | null): void;", "export declare function f(a: A): void;", "parameter-type"),
    ("export declare function f(a: {b?: X}): void;", "export declare function f(a: {b?: X; c: Y}): void;", "unresolved"),
    ("export declare function f(): A[];", "export declare function f(): ReadonlyArray<A>;", "result-changed"),
    ("export declare function f<T>(a: T): T;", "export declare function f<T, U>(a: T): T;", "unresolved"),
    ("export interface I { readonly a: A | null }", "export interface I { readonly a: A }", "annotation-changed"),
    ("export interface I { a: A | null }", "export interface I { a: A }", "type-changed"),
    ("export interface I { a: any }", "export interface I { a: unknown }", "unresolved"),
    ("export interface I<T> { a: I<T> }", "export interface I<T, U = T> { a: I<T, U> }", "unresolved"),
    ("export declare function f(a: A, b?: B): void;",
     "export declare function f(a: A, b: B): void;\nexport declare function f(a: A): void;", "unresolved"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "rule"), SCRIPT_TYPES)
def test_types_of_typescript(before: str, after: str, rule: str) -> None:
    told = {change.rule for change in compared({"index.d.ts": before}, {"index.d.ts": after}).changes}
    assert rule in told
    assert told <= {rule, "added"}


def test_lists_inside_of_a_namespace_that_is_the_module() -> None:
    before = {"index.d.ts": "import {B} from './b';\nexport function f(): void;\nexport type A = 1;\nexport {B};\n"}
    space = (
        "import {B} from './b';\ndeclare namespace f { export type A = 1; export type {B}; export {f as default, f} }\n"
    )
    after = {"index.d.ts": f"{space}declare function f(): void;\nexport = f;\n"}
    other = {"b.d.ts": "export interface B { c: string }\n"}
    told = compared(before | other, after | other).changes
    assert {(change.level, change.name) for change in told} == {("minor", "default")}
    gone = {"index.d.ts": after["index.d.ts"].replace("export type {B};", "")}
    assert [change.name for change in compared(before | other, gone | other).changes if change.level == "major"] == [
        "B"
    ]


def test_an_entry_without_a_source_is_not_known() -> None:
    package = {"package.json": '{"name": "p", "exports": {".": {"import": "./dist/p.mjs"}}}'}
    code = {"code.ts": "export const a: string = '';\n"}
    assert not compared(package | code, package | code).changes
    report = compared(package | code, package | {"code.ts": "export const a: number = 1;\n"})
    assert [(change.level, change.rule, change.name) for change in report.changes] == [("unknown", "unresolved", "p")]
    assert report.verdict == "not known"
    typed = {"package.json": '{"name": "p", "exports": {".": "./dist/p.mjs"}, "types": "./code.ts"}'}
    assert {change.level for change in compared(package | code, typed | code).changes} == {"unknown"}
    other = {"code.ts": "export const a: number = 1;\n"}
    assert [change.rule for change in compared(typed | code, typed | other).changes] == ["type-changed"]


def test_a_parameter_of_java_that_is_called_params() -> None:
    source = "package p;\npublic class A { public void f(String params) {} }\n"
    told = compared({"p/A.java": source}, {"p/A.java": source.replace("params", "words")}).changes
    assert [change.rule for change in told] == ["parameter-name"]


def test_accepted_breaks_and_versions() -> None:
    before, after = {"m.py": "def f(a, b): ...\ndef g(): ...\n"}, {"m.py": "def f(a): ...\n"}
    project = {"pyproject.toml": "[project]\nversion = '0.3.1'\n"}
    report = compared(before | project, after)
    assert (report.verdict, report.bump, report.fails()) == ("major", "0.4.0", True)
    assert report.verdict_line.endswith("suggested: 0.3.1 → 0.4.0")
    entries = '[[accepted]]\nrule = "removed"\nname = "m.*"\n\n[[accepted]]\nrule = "parameter-removed"\nname = "m.f"\nwhat = "b"\n'
    accepted = compared(before | project, after | {ACCEPTED_FILE: entries})
    assert (accepted.fails(), accepted.bump, [change.accepted for change in accepted.changes]) == (
        False,
        "0.4.0",
        [True, True],
    )
    again = compared(before, after | {ACCEPTED_FILE: accepted_toml(report)})
    assert (again.fails(strict=True), again.stale) == (False, ())
    stale = compared(after, after | {ACCEPTED_FILE: entries})
    assert ([entry["name"] for entry in stale.stale], stale.fails(), stale.fails(strict=True)) == (
        ["m.*", "m.f"],
        False,
        True,
    )
    levels = compared(before, after | {ACCEPTED_FILE: '[levels]\nremoved = "minor"\nparameter-removed = "patch"\n'})
    assert (levels.verdict, levels.fails()) == ("minor", False)
    with pytest.raises(IndexRefError, match="no such rule or level"):
        compared(before, after | {ACCEPTED_FILE: '[levels]\nremove = "minor"\n'})


def test_only_a_part() -> None:
    before = {"a/__init__.py": "def f(): ...\n", "b/__init__.py": "def g(): ...\n"}
    after = {"a/__init__.py": "", "b/__init__.py": ""}
    assert told(compared(before, after, "a")) == ["removed a.f"]
    assert told(compared(before, after, "b/__init__.py", "a.f")) == ["removed a.f", "removed b.g"]


def test_nothing_but_unknown_changes_are_not_compatible() -> None:
    report = compared({"m.py": "def f(): ...\n"}, {"m.py": "def f(:\n"})
    assert (report.verdict, report.fails(), report.fails(strict=True)) == ("not known", False, True)
    annotations = "\n".join(report_github(report))
    assert annotations.startswith("::warning file=m.py,line=1,title=unparsed::m m.py does not parse")


DEEP = 5000


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("python", "class A:\n    def __init__(self):\n        x(" + "(" * DEEP + ")" * DEEP + ")\n"),
        ("go", "package m\n\nconst A = " + "(" * DEEP + "1" + ")" * DEEP + "\n"),
        ("rust", "pub fn f(a: " + "Box<" * DEEP + "u8" + ">" * DEEP + ") {}\n"),
        ("typescript", "export const a: " + "Array<" * DEEP + "A" + ">" * DEEP + " = 1\n"),
        ("java", "public class A { public " + "B<" * DEEP + "C" + ">" * DEEP + " f() { return null; } }\n"),
    ],
)
def test_what_is_nested_too_deep_is_not_understood(language: str, source: str) -> None:
    found = extract(language, source.encode())
    assert found.facts is not None or found.parse_error


@pytest.mark.parametrize("case", VECTORS[::3], ids=lambda case: case["id"])
def test_readers_survive_what_is_cut_off(case: dict[str, Any]) -> None:
    for path, source in case["before"].items():
        language = language_of(path)
        for end in range(len(source)) if language is not None else ():
            assert extract(language.name, source[:end].encode()) is not None
