"""Steps of `codeindex` that a scheduler runs; only the Spark engine imports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.codeindex._diff.chunks import FileChange as FileChange, file_event as file_event
    from driftline.codeindex._diff.modes import (
        AFTER as AFTER,
        BEFORE as BEFORE,
        IndexSide as IndexSide,
        ModeDiff as ModeDiff,
        PathRecords as PathRecords,
        Record as Record,
        SelectedRows as SelectedRows,
        Split as Split,
        change_from_payload as change_from_payload,
        change_payload as change_payload,
        classify_file as classify_file,
        different_sides as different_sides,
        note_file_counts as note_file_counts,
        pair_renames as pair_renames,
        parse_payload as parse_payload,
        path_of as path_of,
        plan_splits as plan_splits,
        scan_chunks as scan_chunks,
        scan_cold as scan_cold,
        scan_files as scan_files,
        scan_imports as scan_imports,
    )
    from driftline.codeindex._read.resolve import IndexDir as IndexDir
    from driftline.codeindex._registry.keep import run_job as run_job
    from driftline.codeindex._storage import compact_json as compact_json
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
