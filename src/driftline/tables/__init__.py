"""Table diffs: columns, keys, rules for cells, events in order and counts; patch and merge; the local engines.

`_reference` is the diff in plain Python: the reference implementation of the tests, and the fastest one for small
files. Larger files go through kernels (`_kernels`, listed for schedulers in `kernels`), which are pure, picklable and
without state, so that any scheduler may run them on any machine in any order. `_vectorized` runs them on one machine:

1. Plan: `Source.lay_out` cuts files into splits at record boundaries, `resolve_columns` matches headers; `DiffPlan`.
2. `hash_split`, for every split: each row as 40 bytes, cut into buckets by key hash. Rows of text may be hashed by the
   text of their records (`hashed_text`). `sound=False`: only the strict parser may decide about a file, so rewrite it
   with `Source.normalized` (which raises the exact error, A before B) and start again.
3. `match_bucket`, for every bucket: counts, positions of the rows that events need, duplicate keys. All problems
   together go to `raise_first_error`. After a `HashCollision` the diff starts again with `new_seeds()`.
4. `fetch_rows`, for every split with selected rows: those rows as a chunk sorted in output order.
5. `range_bounds` and `cut_chunks` cut the chunks into ranges of the output; `encode_cut` gives the event lines of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.tables._api import (
        TableDiff as TableDiff,
        TablesDifferError as TablesDifferError,
        assert_equal as assert_equal,
        diff as diff,
    )
    from driftline.tables._apply import Merged as Merged, merge as merge, patch as patch
    from driftline.tables._engines import (
        TableDiffJob as TableDiffJob,
        TableInput as TableInput,
        Write as Write,
        check_folder as check_folder,
        choose_engine as choose_engine,
        default_limit as default_limit,
        diff_to_folder as diff_to_folder,
        diff_to_table as diff_to_table,
        find_engine as find_engine,
        memory_limit as memory_limit,
    )
    from driftline.tables._events import Stats as Stats, event_line as event_line
    from driftline.tables._explain import (
        as_flags as as_flags,
        explain_plan as explain_plan,
        first_rows as first_rows,
        found_renames as found_renames,
        heading_of as heading_of,
        key_candidates as key_candidates,
        reading_of as reading_of,
        remedy as remedy,
        report_settings as report_settings,
    )
    from driftline.tables._options import (
        ALIASES as ALIASES,
        OPTION_GROUPS as OPTION_GROUPS,
        OPTIONS as OPTIONS,
        DiffRules as DiffRules,
        Option as Option,
        TableOptions as TableOptions,
        check_options as check_options,
        option_names as option_names,
        remedies as remedies,
    )
    from driftline.tables._profile import Profile as Profile
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
