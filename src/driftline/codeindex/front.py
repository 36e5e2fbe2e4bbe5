"""Building and judging a code base from Python, in one call each."""

from __future__ import annotations

import os

from driftline.codeindex import building
from driftline.codeindex.api_report import ApiReport, report
from driftline.codeindex.building import Built, default_cache_root, open_cache
from driftline.codeindex.diffing import prepare
from driftline.codeindex.git_objects import GitRepository
from driftline.codeindex.options import DiffOptions, kind_of
from driftline.core._progress import Tracker


def build(
    repo: str | os.PathLike[str] = ".",
    revision: str = "HEAD",
    cache_root: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    tracker: Tracker | None = None,
) -> Built:
    """Index a git revision and make it the latest build; only blobs that no earlier build knows are parsed."""
    source = GitRepository(repo)
    cache = open_cache(cache_root or default_cache_root(source))
    return building.build(source, revision, cache, current=True, force=force, tracker=tracker)


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
