"""Which process of a parallel run gets which tests."""

from __future__ import annotations

from xdist.scheduler.loadscope import LoadScopeScheduling


class FilesAndGroups(LoadScopeScheduling):
    """Tests of one file run in one process, and so do those of a group, whatever their files are."""

    def _split_scope(self, nodeid: str) -> str:
        name, _, group = nodeid.rpartition("@")
        return group if name and "]" not in group else nodeid.partition("::")[0]
