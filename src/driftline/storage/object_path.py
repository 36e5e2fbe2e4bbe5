"""A path in an object store, with the part of `pathlib`'s words that driftline uses.

It is no `os.PathLike`: whatever only knows the local disk refuses it, instead of making a folder called `s3:`.

>>> ObjectPath("s3://shop/out") / "orders.jsonl"
ObjectPath('s3://shop/out/orders.jsonl')
>>> ObjectPath("s3://shop/out/orders.jsonl").parents
(ObjectPath('s3://shop/out'), ObjectPath('s3://shop'))
>>> place_at("out/orders.jsonl")
PosixPath('out/orders.jsonl')
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from driftline.errors import NotFoundError
from driftline.storage import objects


@dataclass(frozen=True, slots=True, order=True, repr=False)
class ObjectPath:
    """One name in a store; `/` at the end plays no part."""

    url: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", self.url.rstrip("/"))

    def __repr__(self) -> str:
        return f"ObjectPath({self.url!r})"

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The last part without its ending."""
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        """The ending."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> ObjectPath:
        """What it lies in."""
        return ObjectPath(self.url.rpartition("/")[0])

    @property
    def parents(self) -> tuple[ObjectPath, ...]:
        """All that it lies in, the nearest first."""
        bucket = "/".join(self.url.split("/")[:3])
        found, at = [], self
        while at.url != bucket:
            at = at.parent
            found.append(at)
        return tuple(found)

    def with_name(self, name: str) -> ObjectPath:
        """A neighbour."""
        return self.parent / name

    def open(self) -> BinaryIO:
        """A seekable stream of the object as it is now."""
        return objects.look_at(self.url).open()

    def read_bytes(self) -> bytes:
        """The whole object."""
        return objects.read(self.url)[0]

    def write_bytes(self, data: bytes) -> int:
        """Write the whole object."""
        objects.put(self.url, data)
        return len(data)

    def exists(self) -> bool:
        """Whether there is an object of just this name."""
        return self.version() is not None

    def is_dir(self) -> bool:
        """Whether objects lie below it."""
        return bool(objects.list_below(self.url + "/"))

    def version(self) -> objects.ObjectVersion | None:
        """The object as it is now, if there is one."""
        try:
            return objects.look_at(self.url)
        except NotFoundError:
            return None

    def below(self) -> list[ObjectPath]:
        """All objects below it, in the order of their names."""
        return [ObjectPath(url) for url in objects.list_below(self.url + "/")]

    def unlink(self, missing_ok: bool = True) -> None:
        """Remove the object; a store does not tell whether there was one."""
        objects.delete(self.url)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing: a store has no folders, only names."""


Place = Path | ObjectPath


def place_at(text: str) -> Place:
    """The place that an address or a path names."""
    return ObjectPath(text) if objects.is_url(text) else Path(text.removeprefix("file://"))
