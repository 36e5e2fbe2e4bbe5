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
    │   ├── LockedError         somebody else holds the lock
    │   └── LakeError           a lake that cannot be read or committed to
    ├── EngineError             Spark, Java or a worker failed
    ├── GatewayError            a request that the sync gateway refuses or cannot serve
    └── Cancelled               the user asked to stop (exit code 130)

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
    """Base of all errors that driftline raises on purpose."""

    code = Code("error")
    exit_code: int = 2

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


class OptionError(DriftlineError):
    """Options that make no sense, alone or together."""

    code = Code("invalid_option")


class MissingExtraError(DriftlineError, ImportError):
    """An optional package that is not installed, with the extra that brings it."""

    code = Code("missing_extra")


class InputError(DriftlineError):
    """What was given cannot be read or is not what it claims to be."""

    code = Code("invalid_input")


class NotFoundError(InputError, FileNotFoundError):
    """There is no such file; Python code may catch it as it catches its own."""

    code = Code("not_found")


class TableError(InputError):
    """A table breaks the rules of the table diff; the code is the specification's."""

    code = Code("table_error")


class PatchConflict(TableError):  # noqa: N818 - the table and the patch disagree, which is an answer
    """A patch does not fit the table: nothing was written (exit code 1)."""

    code = Code("patch_conflict")
    exit_code = 1


class PayloadError(InputError):
    """A payload, schema or limit of the payload comparison; the code is the specification's."""

    code = Code("VALIDATION_ERROR")


class IndexRefError(InputError):
    """An index reference, artifact or registry; the code is the specification's."""

    code = Code("INVALID_REQUEST")


class ChangesetError(InputError):
    """A changeset or patchset that cannot be built, combined or applied."""

    code = Code("changeset_error")


class CorruptChangesetError(ChangesetError):
    """Malformed changeset bytes; `offset` is where reading stopped."""

    code = Code("corrupt_changeset")

    def __init__(self, message: str, *, offset: int, code: str | None = None, **context: object) -> None:
        super().__init__(f"{message} (at byte {offset})", code=code, offset=offset, **context)


class ConflictError(ChangesetError):
    """A change met a conflict and nothing was applied; `reason` is SQLite's word for it."""

    code = Code("conflict")


class DeltaError(InputError):
    """A malformed row delta, clock value or table schema."""

    code = Code("VALIDATION_ERROR")


class ClockDriftError(DeltaError):
    """A remote clock is too far ahead of physical time."""

    code = Code("CLOCK_DRIFT")


class PipelineError(InputError):
    """A pipeline file that does not hold together; `line` says where."""

    code = Code("invalid_pipeline")


class StorageError(DriftlineError):
    """Files, locks and disks."""

    code = Code("storage_error")


class LockedError(StorageError):
    """Somebody else holds the lock."""

    code = Code("locked")


class LakeError(StorageError):
    """A lake that cannot be read or committed to."""

    code = Code("lake_error")


class EngineError(DriftlineError):
    """Spark, Java or a worker process failed."""

    code = Code("engine_error")


class GatewayError(DriftlineError):
    """The sync gateway refuses a request or cannot serve it; the code is the wire protocol's."""

    code = Code("VALIDATION_ERROR")


class Cancelled(DriftlineError):  # noqa: N818 - it is a wish, not a fault
    """The user asked to stop."""

    code = Code("cancelled")
    exit_code = 130
