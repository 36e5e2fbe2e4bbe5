"""Readers of tables: files in all formats, object stores, databases, Python objects; as splits for parallel reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.sources._addresses import (
        InputFile as InputFile,
        StoredFile as StoredFile,
        is_delta_folder as is_delta_folder,
        is_of_catalog as is_of_catalog,
        list_urls as list_urls,
        parse_address as parse_address,
        stored_copy as stored_copy,
        without_password as without_password,
    )
    from driftline.sources._cells import (
        arrow_column as arrow_column,
        column_kinds as column_kinds,
        is_of_polars as is_of_polars,
        json_cells as json_cells,
        json_columns as json_columns,
        json_frame as json_frame,
        plain_values as plain_values,
        take_rows as take_rows,
        value_kind as value_kind,
    )
    from driftline.sources._csv.parse import RecordTexts as RecordTexts, record_texts as record_texts
    from driftline.sources._csv.strict import (
        TextTable as TextTable,
        decoded as decoded,
        exact_encoding as exact_encoding,
    )
    from driftline.sources._formats.csv import CsvSource as CsvSource
    from driftline.sources._in_memory import is_in_memory as is_in_memory
    from driftline.sources._open import (
        cell_lines as cell_lines,
        check_inputs as check_inputs,
        copied_rows as copied_rows,
        declared_numbers as declared_numbers,
        fingerprint as fingerprint,
        has_text_cells as has_text_cells,
        header_of as header_of,
        input_size as input_size,
        is_stream as is_stream,
        json_lines as json_lines,
        open_source as open_source,
        rows_digest as rows_digest,
        tables_beside as tables_beside,
        write_empty_like as write_empty_like,
    )
    from driftline.sources._source import (
        Counted as Counted,
        ParsedRange as ParsedRange,
        ReadOptions as ReadOptions,
        RecordIndex as RecordIndex,
        RowLengthError as RowLengthError,
        RowPart as RowPart,
        Source as Source,
        Split as Split,
        SplitSide as SplitSide,
        TypedRows as TypedRows,
        known_size as known_size,
        polars_column as polars_column,
    )
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
