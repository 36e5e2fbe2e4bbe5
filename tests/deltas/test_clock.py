"""The clock's rules, checked against a wordy model, and its life under threads."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, strategies as st

from driftline.deltas import Clock
from driftline.deltas._deltas import MAX_COUNTER, make_hlc, split_hlc
from driftline.errors import ClockDriftError, DeltaError


def at(wall: int, counter: int = 0) -> int:
    return wall << 16 | counter


class Ticking:
    """A wall clock that a test sets."""

    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def test_counter_overflow_steps_the_wall() -> None:
    clock = Clock(wall=lambda: 1000, last=at(1000, MAX_COUNTER))
    assert split_hlc(clock.now()) == (1001, 0)


def test_wall_going_back_keeps_the_order() -> None:
    wall = Ticking(1000)
    clock = Clock(wall=wall)
    first = clock.now()
    wall.now = 500
    assert split_hlc(clock.now()) == (1000, 1)
    assert clock.last > first


@pytest.mark.parametrize(
    ("last", "physical", "remote", "expected"),
    [
        (at(10, 3), 10, at(20, 7), (20, 8)),  # remote ahead
        (at(10, 3), 10, at(10, 7), (10, 8)),  # equal walls, greater counter
        (at(10, 9), 10, at(10, 7), (10, 10)),
        (at(10, 9), 30, at(30, 4), (30, 5)),  # the wall advanced to the remote's
        (at(10, 9), 10, at(5, 7), (10, 10)),  # remote behind, wall stands
        (at(10, 9), 30, at(5, 7), (30, 0)),  # remote behind, wall advanced
        (at(10, 0), 10, at(20, MAX_COUNTER), (21, 0)),
        (at(10, MAX_COUNTER), 10, at(5, 0), (11, 0)),
        (0, 0, 0, (0, 1)),
    ],
)
def test_receiving(last: int, physical: int, remote: int, expected: tuple[int, int]) -> None:
    assert split_hlc(Clock(wall=lambda: physical, last=last).recv(remote)) == expected


@given(st.lists(st.tuples(st.integers(0, 20), st.none() | st.integers(0, at(26))), max_size=30))
def test_every_answer_is_greater_than_all_before_and_the_remote(steps: list[tuple[int, int | None]]) -> None:
    wall = Ticking(0)
    clock = Clock(wall=wall)
    highest = -1
    for now, remote in steps:
        wall.now = now
        before = clock.last
        if remote is not None and (remote >> 16) - now > 5000:
            with pytest.raises(ClockDriftError):
                clock.recv(remote)
            assert clock.last == before
            continue
        found = clock.now() if remote is None else clock.recv(remote)
        assert found > max(highest, remote or 0) or found == highest + 1
        assert split_hlc(found)[0] >= now
        highest = found


@pytest.mark.parametrize("bad", [-1, 1.5, "1", None, True])
def test_not_a_timestamp(bad: object) -> None:
    with pytest.raises(DeltaError, match="timestamp"):
        Clock(wall=lambda: 1).recv(bad)  # type: ignore[arg-type]


def test_walls_beyond_signed_64_bits_are_refused() -> None:
    with pytest.raises(DeltaError, match="2\\^47"):
        Clock(wall=lambda: 1 << 47).now()
    with pytest.raises(DeltaError):
        make_hlc((1 << 47) - 1, MAX_COUNTER + 1)
    with pytest.raises(DeltaError):
        Clock(wall=lambda: (1 << 47) - 1).recv(1 << 63)
    assert make_hlc((1 << 47) - 1, MAX_COUNTER) == (1 << 63) - 1


def test_several_timestamps_at_once_are_what_counting_gives() -> None:
    counting, taking = (Clock(wall=lambda: 1000, last=at(1000, MAX_COUNTER - 2)) for _ in range(2))
    assert list(taking.take(6)) == [counting.now() for _ in range(6)]
    assert list(taking.take(0)) == []
    assert taking.now() == counting.now()


def test_threads_never_get_the_same_timestamp() -> None:
    clock = Clock(wall=lambda: 1000)
    found: list[list[int]] = [[] for _ in range(8)]

    def work(mine: list[int]) -> None:
        for turn in range(2000):
            mine.append(clock.now() if turn % 2 else clock.recv(at(1000, turn)))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [hlc for mine in found for hlc in mine]
    assert len(set(everything)) == len(everything) == 16000
    assert all(mine == sorted(mine) for mine in found)
    assert clock.last == max(everything)
