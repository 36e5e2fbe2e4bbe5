"""What a table diff means: headers, keys, events, order, statistics.

Meaning, one function each: column selection, key building, cell equality (`rules`), headers (`header`), error
choice and wording (`problems`), event shapes (`events`), counts (`stats`). `reference` is the whole diff in plain
Python: the oracle of the tests, and the quickest way for small files.

Kernels, for schedulers. They are pure, picklable, keep no state, and are run on any machine in any order:

1. plan (driver): `Source.lay_out` cuts each file into splits at record boundaries (quote parity, multi-line
   cells included). `TablePlan` carries options, headers, hash seeds and the number of buckets to every step;
   `TablePlan.check` raises header errors.
2. `stages.hash_split(split, side, number, plan)`, for every split of both sides: parse strictly, 40 bytes of hashes a
   row, cut into buckets by key hash. Rows of text may be hashed by the text of their records (`columns.hashed_text`);
   then `encode_range` takes back pairs that are only written otherwise. `sound=False` means: only the exact way may
   decide about this file, so rewrite it with `Source.normalized` (which raises the exact error, A before B) and start
   again. Width and missing-key problems come back with row numbers inside the split; row counts of the splits give the
   numbers in the file.
3. `stages.match_bucket(parts of A, parts of B, plan)`, for every bucket: counts, places (split, row) of the rows
   that events need, duplicate keys. All problems together go through `problems.raise_first`, which picks by the ruled
   order. `HashCollision` means: start again with `hashes.new_seeds()`. A positional diff has no key: its hashes
   are cut into runs of rows instead (the first row number of a split is the sum of the row counts before it).
4. `stages.pick_rows(split, wanted, rows_before, plan)`, for every split with wanted rows: fetch just those rows, as a
   chunk sorted in output order.
5. `ordering.choose_bounds(sampled order values, ranges)` and `ordering.cut_points(order, bounds)` cut the chunks
   into ranges of the output; `stages.encode_range(chunks of A, chunks of B, plan)` gives the event lines of one
   range. The file is the schema line, the ranges in order, and the stats line.

`local` and `local_run` are the scheduler for one machine and show the steps in order.
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
    from driftline.tables._engines import (
        TableDiffJob as TableDiffJob,
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
        explain_plan as explain_plan,
        heading_of as heading_of,
        hint_for as hint_for,
        key_candidates as key_candidates,
    )
    from driftline.tables._options import (
        OPTIONS as OPTIONS,
        HeaderMode as HeaderMode,
        Option as Option,
        TableOptions as TableOptions,
        check_options as check_options,
        option_names as option_names,
    )
    from driftline.tables._patch import (
        CsvStyle as CsvStyle,
        header_row as header_row,
        merge_tables as merge_tables,
        open_text as open_text,
        patch_table as patch_table,
    )
    from driftline.tables._rules.cells import EXACT as EXACT
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
