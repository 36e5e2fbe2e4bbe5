"""A shelf for prints: a file that takes part in several comparisons of one run is parsed for the first one only.

The prints of each split wait in a folder that all tasks see, under a name made from everything they depend on. They
are good for one run: its seeds, its files as they were, its versions of everything.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from driftline.canonical import sha256_hex
from driftline.files import naming_the_file
from driftline.sources.port import KeptSplit, Split
from driftline.tables.columns import Comparison
from driftline.tables.prints import Prints, Seeds, new_seeds


@dataclass(frozen=True, slots=True)
class PrintShelf:
    """Where prints wait, the seeds that all comparisons of the run share, and the files that are wanted again."""

    folder: str
    files: frozenset[str]
    seeds: Seeds = field(default_factory=new_seeds)

    def place_for(self, split: Split, number: int, compared: tuple[str, Comparison]) -> Path | None:
        """Where the prints of a split wait; None for a split of a file that nobody else compares."""
        plain = split.split if isinstance(split, KeptSplit) else split
        if not self.holds(plain):
            return None
        return Path(self.folder, sha256_hex(repr((plain, number, compared)))[:40])

    def holds(self, split: Split) -> bool:
        """Whether a split belongs to files that are wanted again."""
        return all(os.path.abspath(file.path) in self.files for file in split.files)


def take_prints(place: Path, kind: np.dtype[Any]) -> Prints | None:
    """The prints that wait at a place, in the order of their rows."""
    try:
        return np.fromfile(place, kind)
    except FileNotFoundError:
        return None


def leave_prints(place: Path, prints: Prints) -> None:
    """Put prints on the shelf; several tasks may do so at once, each whole."""
    temporary = place.with_name(f"{place.name}-{secrets.token_hex(6)}")
    with naming_the_file(place.name):
        prints.tofile(temporary)
        temporary.replace(place)
