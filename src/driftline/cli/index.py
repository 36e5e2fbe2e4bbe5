"""`driftline index`: what changed between two versions of a code base, and the registry of such diffs."""

from __future__ import annotations

import click

from driftline.cli.index_api import api
from driftline.cli.index_build import build_index
from driftline.cli.index_diff import index_diff
from driftline.cli.index_registry import list_diffs, prune_diffs, show


@click.group()
def index() -> None:
    """Compare two versions of a code base, definition by definition."""


index.add_command(build_index)
index.add_command(index_diff)
index.add_command(api)
for _command in (list_diffs, show, prune_diffs):
    index.add_command(_command)
    index_diff.add_command(_command)
