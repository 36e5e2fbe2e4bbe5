"""Steps of `changesets` that a scheduler runs; only the Spark engine imports them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.changesets._make.rows import (
        EventCollector as EventCollector,
        Format as Format,
        TypeInference as TypeInference,
        describe_types as describe_types,
    )
    from driftline.changesets._make.sections import (
        SectionPlan as SectionPlan,
        cut_by_range as cut_by_range,
        encode_events as encode_events,
        joined_range as joined_range,
    )
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
