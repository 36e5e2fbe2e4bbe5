"""Python's own parser as the judge of semantic-v2."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Key = tuple[str, str]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Truth:
    """One definition as the parser sees it."""

    kind: str
    signature: str
    body: str


SEVERAL = Truth("several", "", "")


def definitions(files: Mapping[str, str]) -> dict[Key, Truth]:
    """Functions and classes that are not inside of a function; of several with one name only that there are several."""
    found: dict[Key, list[Truth]] = {}
    for path, text in files.items():
        if path.endswith(".py"):
            for name, truth in _walk(ast.parse(text), ""):
                found.setdefault((path, name), []).append(truth)
    return {key: truths[0] if len(truths) == 1 else SEVERAL for key, truths in found.items()}


def _walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, Truth]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _FUNCTIONS):
            yield prefix + child.name, _function(child)
        elif isinstance(child, ast.ClassDef):
            yield prefix + child.name, _class(child)
            yield from _walk(child, f"{prefix}{child.name}.")
        elif not isinstance(child, ast.expr):
            yield from _walk(child, prefix)


def _function(node: Any) -> Truth:
    head = [ast.dump(part) if part else "" for part in (node.args, node.returns, *node.decorator_list)]
    return Truth("function", f"{type(node).__name__} {head}", _dump(_without_docstring(node.body)))


def _class(node: ast.ClassDef) -> Truth:
    head = [ast.dump(part) for part in (*node.bases, *node.keywords, *node.decorator_list)]
    return Truth("class", str(head), "")


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0]
    is_doc = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return body[1:] if is_doc else body


def _dump(body: list[ast.stmt]) -> str:
    return "\n".join(ast.dump(statement) for statement in body)


@dataclass
class Score:
    """How well a set was told: what was told and is true, told and not true, true and not told."""

    right: set[Any]
    wrong: set[Any]
    missed: set[Any]

    @property
    def precision(self) -> float:
        return len(self.right) / max(len(self.right) + len(self.wrong), 1) if self.right or self.wrong else 1.0

    @property
    def recall(self) -> float:
        return len(self.right) / max(len(self.right) + len(self.missed), 1) if self.right or self.missed else 1.0


def scored(told: set[Any], true: set[Any]) -> Score:
    return Score(told & true, told - true, true - told)


def judge(old: Mapping[Key, Truth], new: Mapping[Key, Truth], events: list[dict[str, Any]]) -> dict[str, Score]:
    """Scores for removed, added, signature and body; what moved or was renamed is gone here and new there."""
    renamed_files = {event["beforeFile"]: event["afterFile"] for event in events if event["kind"] == "file.renamed"}
    here = {key: (renamed_files.get(key[0], key[0]), key[1]) for key in old}
    chunks = [event for event in events if event["kind"].startswith("chunk.") and event["chunkKind"] in _KINDS]
    moves = [event for event in chunks if event["kind"] in ("chunk.moved", "chunk.renamed")]
    went = {_key(event["before"]): _key(event["after"]) for event in moves}
    single = {key for key in (*old, *new) if SEVERAL not in (old.get(key), new.get(key))}
    gone = {_key(event["before"]) for event in chunks if event["kind"] == "chunk.removed"} | set(went)
    came = {_key(event["after"]) for event in chunks if event["kind"] == "chunk.added"} | set(went.values())
    truly_gone = {key for key in old if here[key] not in new and not _explained(key, went)}
    truly_new = {
        key for key in new if key not in here.values() and not _explained(key, {v: k for k, v in went.items()})
    }
    known = set(old)
    both = {key for key in old if here[key] in new and SEVERAL not in (old[key], new[here[key]])}
    modified = [event for event in chunks if event["kind"] == "chunk.modified"]
    told = {
        what: {_key(event["before"]) for event in modified if what in event["changes"]} & both
        for what in ("signature", "body")
    }
    truth = {
        "signature": {key for key in both if _head(old[key]) != _head(new[here[key]])},
        "body": {key for key in both if old[key].body != new[here[key]].body},
    }
    functions = {key for key in both if old[key].kind == new[here[key]].kind == "function"}
    return {
        "removed": scored(gone & known & single, (truly_gone | (set(went) & known)) & single),
        "added": scored(came & set(new) & single, (truly_new | (set(went.values()) & set(new))) & single),
        "signature": scored(told["signature"], truth["signature"]),
        "body": scored(told["body"] & functions, truth["body"] & functions),
    }


def moved_bodies(old: Mapping[Key, Truth], new: Mapping[Key, Truth], events: list[dict[str, Any]]) -> Score:
    """Of functions that were moved or renamed: whose body is told as changed, and whose is."""
    told, true = set(), set()
    for event in events:
        if event["kind"] in ("chunk.moved", "chunk.renamed") and event["chunkKind"] == "function":
            key, now = _key(event["before"]), _key(event["after"])
            before, after = old.get(key), new.get(now)
            if before is not None and after is not None and SEVERAL not in (before, after):
                told |= {key} if "body" in event["changes"] else set()
                true |= {key} if before.body != after.body else set()
    return scored(told, true)


_KINDS = ("function", "class")


def _head(truth: Truth) -> tuple[str, str]:
    return truth.kind, truth.signature


def _key(side: dict[str, Any]) -> Key:
    return side["file"], side["name"]


def _explained(key: Key, went: Mapping[Key, Key]) -> bool:
    """Whether an enclosing class moved, so that its members went along without a word."""
    path, name = key
    while "." in name:
        name = name.rpartition(".")[0]
        if (path, name) in went:
            return True
    return False
