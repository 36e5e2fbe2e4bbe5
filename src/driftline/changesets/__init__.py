"""SQLite changesets and patchsets, byte for byte: made, read, combined, applied, recorded and compared.

Names are loaded when they are first used: a file can be inverted without NumPy and Arrow, which build from columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.changesets._apply import (
        Applied as Applied,
        Conflict as Conflict,
        TableReport as TableReport,
        apply as apply,
    )
    from driftline.changesets._cdc.convert import (
        Captured as Captured,
        CdcNote as CdcNote,
        CdcOptions as CdcOptions,
        CdcTable as CdcTable,
        PieceFacts as PieceFacts,
        convert as convert,
        deltas_from_cdc as deltas_from_cdc,
        from_cdc as from_cdc,
        survey as survey,
        transactions as transactions,
    )
    from driftline.changesets._format.changeset import (
        ChangeFile as ChangeFile,
        Changeset as Changeset,
        Patchset as Patchset,
        concat as concat,
        invert as invert,
        parse as parse,
        rebase as rebase,
    )
    from driftline.changesets._format.database import (
        Database as Database,
        connect as connect,
        database_from_sql as database_from_sql,
        tables_from_database as tables_from_database,
    )
    from driftline.changesets._format.show import (
        json_array_lines as json_array_lines,
        json_lines as json_lines,
        plain_operation as plain_operation,
        text_lines as text_lines,
        to_sql as to_sql,
    )
    from driftline.changesets._format.streams import (
        concat_to as concat_to,
        content_of as content_of,
        invert_to as invert_to,
        iterate as iterate,
        operations_of as operations_of,
        reopenable as reopenable,
        summary as summary,
    )
    from driftline.changesets._format.table import (
        UNDEFINED as UNDEFINED,
        Column as Column,
        Operation as Operation,
        Table as Table,
    )
    from driftline.changesets._git import (
        diff_lines as diff_lines,
        dump_lines as dump_lines,
        is_empty as is_empty,
        merge as merge,
    )
    from driftline.changesets._make.databases import (
        DatabaseDiff as DatabaseDiff,
        Diff as Diff,
        DiffFindings as DiffFindings,
        DiffSettings as DiffSettings,
        Note as Note,
        Problem as Problem,
        Session as Session,
        diff as diff,
        diff_to as diff_to,
        record as record,
    )
    from driftline.changesets._make.rows import (
        from_deltas as from_deltas,
        from_events as from_events,
        write_changeset as write_changeset,
        write_patchset as write_patchset,
    )
    from driftline.changesets._make.script import script_to as script_to, write_sql as write_sql
    from driftline.changesets._make.sections import write_columns as write_columns
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
