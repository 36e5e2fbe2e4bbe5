from __future__ import annotations

import inspect
import pickle

import pytest

from driftline import errors

CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.DriftlineError)]


def make(kind: type[errors.DriftlineError]) -> errors.DriftlineError:
    extra = {"offset": 7} if issubclass(kind, errors.CorruptChangesetError) else {}
    return kind("what went wrong", row=3, **extra)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code_is_drawn_and_crosses_processes(kind: type[errors.DriftlineError]) -> None:
    error = make(kind)
    assert isinstance(error.code, str)
    assert kind.__name__ in (errors.__doc__ or "")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (again.code, again.message, again.context) == (error.code, error.message, error.context)
    assert again.row == 3


def test_context_is_readable_as_attributes_and_unknown_ones_are_not() -> None:
    error = errors.InputError("no", code="empty_file", side="A")
    assert (error.code, error.side, str(error)) == ("empty_file", "A", "no")
    with pytest.raises(AttributeError):
        _ = error.nothing


def test_offset_is_part_of_the_message() -> None:
    error = errors.CorruptChangesetError("truncated varint", offset=12)
    assert str(error) == "truncated varint (at byte 12)"
    assert error.offset == 12
