"""Writers of events: JSONL, JSON, CSV, Markdown, HTML, text tables, Parquet and Delta; the templates of all pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.sinks._formats import (
        FIRST as FIRST,
        EventFormat as EventFormat,
        FirstEvents as FirstEvents,
        Title as Title,
        cell_text as cell_text,
        event_formats as event_formats,
        find_format as find_format,
        format_for as format_for,
        formats_text as formats_text,
        packed as packed,
        plain_formats as plain_formats,
        settings_for as settings_for,
        write_events as write_events,
    )
    from driftline.sinks._formats.html import column_rates as column_rates
    from driftline.sinks._formats.table import (
        commit_delta as commit_delta,
        known_version as known_version,
        write_table as write_table,
    )
    from driftline.sinks._pages import (
        Part as Part,
        environment as environment,
        highlight as highlight,
        number as number,
        page_bytes as page_bytes,
        size_text as size_text,
    )
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
