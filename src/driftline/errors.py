"""One tree of errors; each has a stable `code` and its context as attributes.

    DriftlineError
    ├── OptionError             options that make no sense, alone or together
    ├── MissingExtraError       an optional package that is not installed (an ImportError too)
    ├── InputError              what was given cannot be read or is not what it claims to be
    │   ├── NotFoundError       no such file: a `FileNotFoundError` too
    │   ├── TableError          strict parsing and key rules of the table diff
    │   │   └── PatchConflict           a patch that does not fit the table
    │   ├── PayloadError        payloads, schemas and limits of the payload comparison
    │   ├── IndexRefError       index references, artifacts and registries of index diffs
    │   ├── ChangesetError      changesets and patchsets
    │   │   ├── CorruptChangesetError   malformed bytes, with their offset
    │   │   └── ConflictError           a change that cannot be applied, and was not to be passed over
    │   ├── DeltaError          a malformed row delta, clock value or schema
    │   │   └── ClockDriftError         a remote clock too far ahead
    │   └── PipelineError       a pipeline file that does not hold together
    ├── StorageError            files, locks and disks
    │   ├── LockedError         another process has the lock
    │   └── LakeError           a lake that cannot be read or committed to
    ├── EngineError             Spark, Java or a worker failed
    ├── GatewayError            a request that the sync gateway refuses or cannot serve
    └── Cancelled               the user cancelled it (exit code 130)

>>> raise_code = InputError("A file is empty", code="empty_file", side="A")
>>> raise_code.code, raise_code.side
('empty_file', 'A')
"""

from __future__ import annotations

from typing import Any


class Code(str):
    """The code of an error in the one spelling of driftline: `schema_error`.

    HTTP protocols and stored records of payloads and indexes spell theirs in capitals; `wire` is that spelling. Both
    are equal to the code, so that programs which were written for either are right.

    >>> Code("SCHEMA_ERROR"), Code("SCHEMA_ERROR").wire, Code("SCHEMA_ERROR") == "SCHEMA_ERROR"
    ('schema_error', 'SCHEMA_ERROR', True)
    """

    wire: str

    def __new__(cls, spelled: str) -> Code:
        """The code of either spelling."""
        code = super().__new__(cls, spelled.lower())
        code.wire = spelled.wire if isinstance(spelled, Code) else spelled
        return code

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str.__eq__(self, other.lower())

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        return Code, (self.wire,)


class DriftlineError(Exception):
    """Base of all errors that driftline raises on purpose; `code` is also an argument of their classes."""

    code = Code("error")
    exit_code: int = 2

    def __init_subclass__(cls, code: str | None = None) -> None:
        if code is not None:
            cls.code = Code(code)

    def __init__(self, message: str, *, code: str | None = None, **context: object) -> None:
        super().__init__(message)
        self.message = message
        self.context: dict[str, Any] = context
        if code is not None:
            self.code = Code(code)

    def __getattr__(self, name: str) -> Any:
        # Only reached when the attribute is not there: look it up in the context.
        context = self.__dict__.get("context", {})
        if name in context:
            return context[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders (worker processes, Spark tasks): keep code and context.
        return _rebuild, (type(self), self.message, self.code.wire, self.context)

    def to_dict(self) -> dict[str, Any]:
        """The error as plain data, as `--error-format json` prints it."""
        return {"code": str(self.code), "message": self.message, **self.context}


def _rebuild(kind: type[DriftlineError], message: str, code: str, context: dict[str, Any]) -> DriftlineError:
    error = kind.__new__(kind)
    DriftlineError.__init__(error, message, code=code, **context)
    return error


class OptionError(DriftlineError, code="invalid_option"):
    """Options that make no sense, alone or together."""


class MissingExtraError(DriftlineError, ImportError, code="missing_extra"):
    """An optional package that is not installed, with the extra that brings it."""


class InputError(DriftlineError, code="invalid_input"):
    """What was given cannot be read or is not what it claims to be."""


class NotFoundError(InputError, FileNotFoundError, code="not_found"):
    """There is no such file; Python code may catch it as it catches its own."""


class TableError(InputError, code="table_error"):
    """A table breaks the rules of the table diff; the code is the specification's."""


class PatchConflict(TableError, code="patch_conflict"):  # noqa: N818 - a result: table and patch disagree
    """A patch does not fit the table: nothing was written (exit code 1)."""

    exit_code = 1


class PayloadError(InputError, code="VALIDATION_ERROR"):
    """A payload, schema or limit of the payload comparison; the code is the specification's."""


class IndexRefError(InputError, code="INVALID_REQUEST"):
    """An index reference, artifact or registry; the code is the specification's."""


class ChangesetError(InputError, code="changeset_error"):
    """A changeset or patchset that cannot be built, combined or applied."""


class CorruptChangesetError(ChangesetError, code="corrupt_changeset"):
    """Malformed changeset bytes; `offset` is where reading stopped."""

    def __init__(self, message: str, *, offset: int, code: str | None = None, **context: object) -> None:
        super().__init__(f"{message} (at byte {offset})", code=code, offset=offset, **context)


class ConflictError(ChangesetError, code="conflict"):
    """A change met a conflict and nothing was applied; `reason` is SQLite's word for it."""


class DeltaError(InputError, code="VALIDATION_ERROR"):
    """A malformed row delta, clock value or table schema."""


class ClockDriftError(DeltaError, code="CLOCK_DRIFT"):
    """A remote clock is too far ahead of physical time."""


class PipelineError(InputError, code="invalid_pipeline"):
    """A pipeline file that does not hold together; `line` says where."""


class StorageError(DriftlineError, code="storage_error"):
    """Files, locks and disks."""


class LockedError(StorageError, code="locked"):
    """Another process has the lock."""


class LakeError(StorageError, code="lake_error"):
    """A lake that cannot be read or committed to."""


class EngineError(DriftlineError, code="engine_error"):
    """Spark, Java or a worker process failed."""


class GatewayError(DriftlineError, code="VALIDATION_ERROR"):
    """The sync gateway refuses a request or cannot serve it; the code is the wire protocol's."""


class Cancelled(DriftlineError, code="cancelled"):  # noqa: N818 - it is a wish, not a fault
    """The user cancelled it."""

    exit_code = 130
