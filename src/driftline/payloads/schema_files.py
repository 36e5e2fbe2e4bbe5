"""The files that a schema's references may name: those in the folder of the schema, and nowhere else (payloads §2.3).

A pointer into another file is written `name#/pointer`, with the name relative to the folder; pointers into the schema
itself begin with `/` or are empty.

>>> split_pointer("parts/pet.yaml#/Pet"), split_pointer("/a#b")
(('parts/pet.yaml', '/Pet'), ('', '/a#b'))
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote

from driftline.core._files import explain_io_errors


class FileReader(Protocol):
    """Reads a file beside the schema by its name; raises `ValueError` where the name is not allowed."""

    def read(self, name: str) -> bytes:
        """The content of a file."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of a folder on this machine."""

    path: Path

    def read(self, name: str) -> bytes:
        """The content of a file inside the folder; a link that leads out of it is not followed."""
        target = (self.path / name).resolve()
        if not target.is_relative_to(self.path.resolve()):
            raise ValueError("it lies outside the folder of the schema")
        with explain_io_errors(self.path / name):
            return target.read_bytes()


@dataclass(frozen=True, slots=True)
class Bundle:
    """A schema with the files it refers to, as bytes that can travel to other machines."""

    main: bytes
    files: Mapping[str, bytes] = field(default_factory=dict)

    def read(self, name: str) -> bytes:
        """The content of a file of the bundle."""
        if name not in self.files:
            raise ValueError("it is not among the files of the schema")
        return self.files[name]


def opened(schema: object) -> tuple[Any, FileReader | None]:
    """The content of a schema and where the files beside it are read; only a schema given as a path has any."""
    if isinstance(schema, Bundle):
        return schema.main, schema
    if isinstance(schema, os.PathLike):
        path = Path(schema)
        with explain_io_errors(path):
            return path.read_bytes(), Folder(path.parent)
    return schema, None


def split_pointer(pointer: str) -> tuple[str, str]:
    """The file (empty for the schema itself) and the pointer inside it."""
    if pointer == "" or pointer.startswith("/"):
        return "", pointer
    name, _, inner = pointer.partition("#")
    return name, inner


def joined_pointer(name: str, inner: str) -> str:
    """The pointer into a file."""
    return f"{name}#{inner}" if name else inner


def joined_reference(pointer: str) -> str:
    """The `$ref` that leads to a pointer from the schema itself."""
    name, inner = split_pointer(pointer)
    return f"{quote(name)}#{quote(inner)}"


def file_of_reference(reference: str, base: str) -> tuple[str, str]:
    """The file and the fragment that a `$ref` in the file `base` names; raises `ValueError` for what is no file."""
    given, _, fragment = reference.partition("#")
    if "://" in given or given.startswith(("//", "/")) or "\\" in given:
        raise ValueError("only files in the folder of the schema can be referred to")
    if not given:
        return base, unquote(fragment)
    name = posixpath.normpath(posixpath.join(posixpath.dirname(base), unquote(given)))
    if name.startswith("../") or name == "..":
        raise ValueError("it lies outside the folder of the schema")
    return name, unquote(fragment)
