"""The base of all packages: atomic files, object stores, locks, canonical JSON, progress, choice of engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core._extras import lazy_exports as lazy_exports

if TYPE_CHECKING:
    from driftline.core._diff import SHOWN_CHANGES as SHOWN_CHANGES, Diff as Diff, DiffMembers as DiffMembers
    from driftline.core._engines import (
        SHARED_FOLDER_VARIABLE as SHARED_FOLDER_VARIABLE,
        EngineChoice as EngineChoice,
        EngineName as EngineName,
        Job as Job,
        Sizes as Sizes,
        check_engine as check_engine,
        choose_engine as choose_engine,
        configured_master as configured_master,
        setting_text as setting_text,
        shared_folder as shared_folder,
        shared_location as shared_location,
        spark_settings as spark_settings,
        use_spark_settings as use_spark_settings,
    )
    from driftline.core._extras import (
        EXTRA_OF as EXTRA_OF,
        keep_old_modules as keep_old_modules,
        load_function as load_function,
        missing_extra as missing_extra,
        without_collection as without_collection,
    )
    from driftline.core._files import (
        COMPRESSION_BYTES as COMPRESSION_BYTES,
        FILE_SUFFIXES as FILE_SUFFIXES,
        SQLITE_MAGIC as SQLITE_MAGIC,
        STANDARD_OUTPUT as STANDARD_OUTPUT,
        AnyPath as AnyPath,
        StrPath as StrPath,
        UnbufferedWriter as UnbufferedWriter,
        atomic_write as atomic_write,
        compression_of as compression_of,
        compression_of_bytes as compression_of_bytes,
        decompressed as decompressed,
        explain_os_error as explain_os_error,
        file_digest as file_digest,
        format_of as format_of,
        io_errors as io_errors,
        is_sqlite_file as is_sqlite_file,
        names_revision as names_revision,
        open_bytes as open_bytes,
        open_output as open_output,
        open_to_read as open_to_read,
        output_place as output_place,
        read_lines as read_lines,
        replace_file as replace_file,
        size_of as size_of,
        standard_output as standard_output,
        sync_directory as sync_directory,
        text_into as text_into,
        write_all as write_all,
        write_atomically as write_atomically,
    )
    from driftline.core._json import (
        Json as Json,
        JsonObject as JsonObject,
        canonical_json as canonical_json,
        decimal_text as decimal_text,
        exact_dumps as exact_dumps,
        exact_loads as exact_loads,
        exact_number as exact_number,
        number_text as number_text,
        sha1_hex as sha1_hex,
        sha256_hex as sha256_hex,
        string_text as string_text,
        utf16_sort_key as utf16_sort_key,
        utf16_sorted as utf16_sorted,
    )
    from driftline.core._locks import (
        exclusive_lock as exclusive_lock,
        file_lock as file_lock,
        process_runs as process_runs,
    )
    from driftline.core._objects import (
        SCHEMES as SCHEMES,
        Location as Location,
        ObjectPath as ObjectPath,
        ObjectVersion as ObjectVersion,
        changed as changed,
        copy_object as copy_object,
        delete_object as delete_object,
        delta_options as delta_options,
        entries_below as entries_below,
        is_url as is_url,
        list_objects as list_objects,
        located as located,
        location as location,
        read_object as read_object,
        sizes_below as sizes_below,
        stat_object as stat_object,
        uploading as uploading,
    )
    from driftline.core._parts import (
        MANIFEST as MANIFEST,
        LineRange as LineRange,
        Part as Part,
        PartWriter as PartWriter,
        commit_parts as commit_parts,
        line_ranges as line_ranges,
        local_files as local_files,
        manifest_version as manifest_version,
        read_manifest as read_manifest,
        read_pieces as read_pieces,
        remove as remove,
        write_part as write_part,
    )
    from driftline.core._processes import (
        block_pandas as block_pandas,
        keep_pages as keep_pages,
        skip_pandas as skip_pandas,
    )
    from driftline.core._progress import Progress as Progress, Tracker as Tracker, no_progress as no_progress
    from driftline.core._thresholds import (
        AGE as AGE,
        INDEX_COUNTS as INDEX_COUNTS,
        PAYLOAD_COUNTS as PAYLOAD_COUNTS,
        TABLE_COUNTS as TABLE_COUNTS,
        Threshold as Threshold,
        parse_threshold as parse_threshold,
    )
    from driftline.core._workers import WorkerContext as WorkerContext
    from driftline.core._workspace import ArrowCodec as ArrowCodec, SpillStore as SpillStore, Workspace as Workspace
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
