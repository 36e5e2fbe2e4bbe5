"""A kill after every durable step of flush, registration, envelopes and claims: nothing lost, nothing doubled."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from driftline.lake._read.state import state_rows
from driftline.lake._store.flush import count_waiting
from support.gateway_kills import SCHEMAS, Killed, Steps, World, counted, misfitting, until_done

pytestmark = pytest.mark.kills


def schemas_come_between(world: World) -> None:
    """Flushes of misfits while the schema comes and widens."""
    world.push(*misfitting(1))
    until_done(world.flush)
    until_done(lambda: world.register(SCHEMAS[0]))
    world.push(*misfitting(2))
    until_done(world.flush)
    until_done(lambda: world.register(SCHEMAS[2]))
    world.push(*misfitting(3))
    until_done(world.flush)


def log_is_restored(world: World) -> None:
    """A log that is set back twice, once with deltas that arrived before anybody looked."""
    until_done(lambda: world.register(SCHEMAS[2]))
    world.push(*misfitting(1))
    until_done(world.flush)
    world.back_up()
    world.push(*misfitting(2))
    until_done(world.flush)
    world.restore()
    world.push(*misfitting(3))
    until_done(world.flush)
    world.restore()
    until_done(world.flush)


@pytest.mark.parametrize("story", [schemas_come_between, log_is_restored])
def test_a_kill_after_any_durable_step(tmp_path: Path, story: Callable[[World], None]) -> None:
    steps = Steps()
    with counted(steps):
        story(_made(tmp_path / "whole"))
    assert len(steps.taken) > 20
    for number in range(1, len(steps.taken) + 1):
        world = _made(tmp_path / str(number))
        with counted(Steps(number)):
            story(world)
        assert world.problems() == [], (number, steps.taken[number - 1])
        assert count_waiting(world.lake, "todos") == 0
        assert len(dict(state_rows(world.lake, "todos"))) == 9


@pytest.mark.parametrize("kill", range(1, 9))
def test_readers_never_miss_a_row_while_a_schema_comes(tmp_path: Path, kill: int) -> None:
    world = _made(tmp_path)
    world.push(*misfitting(1))
    world.flush()
    steps = Steps(kill)
    with counted(steps), contextlib.suppress(Killed):
        world.register(SCHEMAS[1])
    if "set_table_properties" in steps.taken:
        assert sorted(dict(state_rows(world.lake, "todos"))) == ["1a", "1b"]
        assert count_waiting(world.lake, "todos") == 1
    world.register(SCHEMAS[1])
    assert sorted(dict(state_rows(world.lake, "todos"))) == ["1a", "1b"]
    assert world.problems() == []


def _made(root: Path) -> World:
    root.mkdir(exist_ok=True)
    return World(root)
