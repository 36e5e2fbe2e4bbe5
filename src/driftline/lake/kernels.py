"""Steps of `lake` that a scheduler runs; only the Spark engine imports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.lake._fold.fold import fold as fold, needs_fold as needs_fold
    from driftline.lake._fold.local import (
        RangeJob as RangeJob,
        Result as Result,
        load_range as load_range,
        split_work as split_work,
    )
    from driftline.lake._fold.plan import (
        DeltaWork as DeltaWork,
        FoldPlan as FoldPlan,
        bounded_rows as bounded_rows,
        delta_work as delta_work,
        lower_bounds as lower_bounds,
    )
    from driftline.lake._load.ingest import (
        IngestedFile as IngestedFile,
        IngestPlan as IngestPlan,
        Survey as Survey,
        survey as survey,
        write_range as write_range,
    )
    from driftline.lake._store.rows import (
        ROW_ID as ROW_ID,
        encode_deltas as encode_deltas,
        escape_columns as escape_columns,
        state_file_schema as state_file_schema,
    )
    from driftline.lake._store.stamps import stamp_deltas as stamp_deltas
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
