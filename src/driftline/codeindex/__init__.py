"""What changed between two versions of a code base: files, definitions and relations, ordered and bounded.

`build` indexes a git revision, `diff` compares two, and `api` says what happened to the public surface.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.codeindex._api.report import (
        ACCEPTED_FILE as ACCEPTED_FILE,
        ApiReport as ApiReport,
        accepted_toml as accepted_toml,
        api as api,
        report_github as report_github,
        report_lines as report_lines,
        report_markdown as report_markdown,
    )
    from driftline.codeindex._build.build import (
        Built as Built,
        build as build,
        build_index as build_index,
        default_cache_root as default_cache_root,
        open_cache as open_cache,
    )
    from driftline.codeindex._diff.chunks import IndexEvent as IndexEvent
    from driftline.codeindex._diff.diff import (
        DiffRequest as DiffRequest,
        IndexDiff as IndexDiff,
        ModeScheduler as ModeScheduler,
        diff as diff,
        prepare as prepare,
    )
    from driftline.codeindex._diff.modes import diff_mode as diff_mode
    from driftline.codeindex._git import GitRepository as GitRepository
    from driftline.codeindex._read.artifacts import fingerprints as fingerprints
    from driftline.codeindex._read.resolve import (
        V2 as V2,
        DiffOptions as DiffOptions,
        IndexRef as IndexRef,
        diff_id as diff_id,
        parse_modes as parse_modes,
        parse_ref as parse_ref,
        whole_number as whole_number,
    )
    from driftline.codeindex._registry.contracts import schema as schema
    from driftline.codeindex._registry.keep import (
        IndexDiffJob as IndexDiffJob,
        Keeping as Keeping,
        KeptDiff as KeptDiff,
        choose_engine as choose_engine,
        compute as compute,
        name_repositories as name_repositories,
        prune as prune,
        run_many as run_many,
    )
    from driftline.codeindex._registry.registry import Registry as Registry
    from driftline.codeindex._review import (
        BodyRow as BodyRow,
        Review as Review,
        ReviewFile as ReviewFile,
        ReviewSource as ReviewSource,
        Section as Section,
        diff_markdown as diff_markdown,
        diff_page as diff_page,
        entries_markdown as entries_markdown,
        entry_lines as entry_lines,
        json_line as json_line,
        pruned_lines as pruned_lines,
        review as review,
        summary_lines as summary_lines,
    )
    from driftline.codeindex._storage import CacheRoot as CacheRoot
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
