from __future__ import annotations

import threading

import pytest

from driftline.core._progress import Progress, Throughput, Tracker
from driftline.errors import Cancelled


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_rate_and_eta_follow_a_moving_average() -> None:
    clock, seen = Clock(), []
    tracker = Tracker(seen.append, interval=0, clock=clock)
    with tracker.phase("read", total=1000, unit="bytes"):
        for _ in range(5):
            clock.now += 1
            tracker.advance(100)
        assert seen[-1].rate == pytest.approx(100)
        assert seen[-1].eta == pytest.approx(5)
        clock.now += 1
        tracker.advance(200)
        # 0.3 of the newest second (200) and 0.7 of what was (100)
        assert seen[-1].rate == pytest.approx(130)
        assert seen[-1].fraction == pytest.approx(0.7)
    assert seen[-1].finished


def test_reports_are_spaced_by_the_interval() -> None:
    clock, seen = Clock(), []
    tracker = Tracker(seen.append, interval=1, clock=clock)
    with tracker.phase("read", unit="rows"):
        for _ in range(100):
            clock.now += 0.1
            tracker.advance()
    assert len(seen) <= 12
    assert seen[-1] == Progress("read", 100, None, "rows", pytest.approx(10), pytest.approx(10), None, True)


def advance_for_ever(tracker: Tracker) -> None:
    while True:
        tracker.advance(1)


def test_cancel_stops_the_next_step_and_later_phases() -> None:
    tracker = Tracker()
    with tracker.phase("read"):
        tracker.advance(1)
        threading.Thread(target=tracker.cancel).start()
        with pytest.raises(Cancelled):
            advance_for_ever(tracker)
    with pytest.raises(Cancelled), tracker.phase("write"):
        raise AssertionError("a cancelled tracker starts no phase")


def test_inner_phase_hands_back_to_the_outer_one() -> None:
    seen: list[Progress] = []
    tracker = Tracker(seen.append, interval=0)
    with tracker.phase("outer", total=2, unit="items"):
        tracker.advance()
        with tracker.phase("inner"):
            tracker.advance(50)
        tracker.advance()
    assert [(p.phase, p.done) for p in seen if p.finished] == [("inner", 50), ("outer", 2)]


def test_threads_count_together() -> None:
    seen: list[Progress] = []
    tracker = Tracker(seen.append, interval=0)
    with tracker.phase("count", total=4000, unit="items"):
        threads = [threading.Thread(target=lambda: [tracker.advance() for _ in range(1000)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen[-1].done == 4000


def test_nothing_is_known_before_the_second_sample() -> None:
    throughput = Throughput()
    assert throughput.sample(0, 0.0) is None
    assert throughput.sample(10, 0.01) is None
    assert throughput.sample(10, 1.0) == pytest.approx(10)
