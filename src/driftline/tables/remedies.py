"""Which option takes a file that a diff refuses: a half sentence behind the error, for whoever can type it."""

from __future__ import annotations

from driftline.errors import DriftlineError
from driftline.tables.options import DiffOptions


def remedy(error: DriftlineError, options: DiffOptions) -> str | None:
    """What to type, or None where no option helps or the right one was given already.

    >>> from driftline.errors import TableError
    >>> from driftline.tables.options import check_options
    >>> wrong = TableError("Missing key value in A at row 3", code="missing_key_value")
    >>> remedy(wrong, check_options(key="id"))
    '--empty-key allow takes rows without a key'
    >>> remedy(wrong, check_options(key="id", empty_key="allow"))
    """
    if error.code == "row_width_mismatch" and options.ragged == "error":
        blank = "" if options.skip_blank_lines else "; --skip-blank-lines leaves blank lines out"
        return f"--ragged pad fills short rows, --ragged skip leaves rows of another width out{blank}"
    if error.code == "duplicate_column_name" and options.duplicate_columns == "error" and not options.no_header:
        return "--duplicate-columns rename tells them apart, --no-header takes files without a header line"
    if error.code == "missing_key_value" and options.empty_key == "error":
        return "--empty-key allow takes rows without a key"
    if error.code == "duplicate_key" and options.duplicates == "error":
        return (
            "--duplicates match pairs the rows of a key, --duplicates first or last keeps one; or name more key columns"
        )
    return None
