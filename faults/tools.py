"""What every room's fault tests share: a tally, one run of a command, and ways to damage bytes."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

TIMEOUT_SECONDS = 60.0


@dataclass
class Tally:
    """What happened to one kind of fault; `details` holds the first few failures, ready to be repeated."""

    name: str
    tried: int = 0
    tracebacks: int = 0
    hangs: int = 0
    losses: int = 0
    details: list[str] = field(default_factory=list)

    @property
    def faults(self) -> int:
        """Everything that should have been nought."""
        return self.tracebacks + self.hangs + self.losses

    def traceback(self, detail: str) -> None:
        """Count an unexplained error: a traceback, or the product blaming itself."""
        self.tracebacks += 1
        self._remember(f"traceback: {detail}")

    def hang(self, detail: str) -> None:
        """Count something that did not end in time."""
        self.hangs += 1
        self._remember(f"hang: {detail}")

    def loss(self, detail: str) -> None:
        """Count data that was lost, doubled or wrong although success was reported."""
        self.losses += 1
        self._remember(f"loss: {detail}")

    def _remember(self, detail: str) -> None:
        if len(self.details) < 5:
            self.details.append(" ".join(detail.split())[:500])


@dataclass(frozen=True)
class Outcome:
    """How one command ended; `code` is None when it had to be killed."""

    code: int | None
    stdout: bytes
    stderr: str


def driftline(
    tally: Tally, arguments: Sequence[str], *, stdin: bytes = b"", what: str = "", **options: object
) -> Outcome:
    """Run the real command once, count it, and count it as a fault if it hangs or shows a traceback."""
    command = [sys.executable, "-m", "driftline", *arguments]
    tally.tried += 1
    detail = what or " ".join(arguments)
    try:
        done = subprocess.run(  # type: ignore[call-overload]
            command, input=stdin, capture_output=True, timeout=TIMEOUT_SECONDS, check=False, **options
        )
    except subprocess.TimeoutExpired as expired:
        tally.hang(detail)
        return Outcome(None, expired.stdout or b"", (expired.stderr or b"").decode(errors="replace"))
    outcome = Outcome(done.returncode, done.stdout, done.stderr.decode(errors="replace"))
    if is_traceback(outcome.stderr):
        tally.traceback(f"{detail}: {outcome.stderr[-300:]}")
    return outcome


def is_traceback(text: str) -> bool:
    """Whether an error text shows Python's inside instead of one clear line."""
    return "Traceback (most recent call last)" in text or "error[internal]" in text


def attempt(tally: Tally, work: Callable[[], object], expected: type[BaseException], what: str) -> object | None:
    """Call a library function on damaged input, count it; only `expected` errors are good errors."""
    tally.tried += 1
    try:
        return work()
    except expected:
        return None
    except Exception as error:
        tally.traceback(f"{what}: {type(error).__name__}: {error}")
        return None


def mutate(data: bytes, dice: random.Random) -> bytes:
    """The bytes with one to three random damages: flips, cuts, repeats, insertions, noughts."""
    damaged = bytearray(data)
    for _ in range(dice.randint(1, 3)):
        dice.choice(_DAMAGES)(damaged, dice)
    return bytes(damaged)


def _flip(data: bytearray, dice: random.Random) -> None:
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _truncate(data: bytearray, dice: random.Random) -> None:
    del data[dice.randint(0, len(data)) :]


def _cut_out(data: bytearray, dice: random.Random) -> None:
    start = dice.randint(0, len(data))
    del data[start : start + dice.randint(1, 16)]


def _repeat(data: bytearray, dice: random.Random) -> None:
    start = dice.randint(0, len(data))
    data[start:start] = data[start : start + dice.randint(1, 64)]


def _insert(data: bytearray, dice: random.Random) -> None:
    start = dice.randint(0, len(data))
    data[start:start] = dice.choice(
        [b"\x00", b"\xff", b'"', b"\r", b"\n", b",", b"{", b"[", b"\xed\xa0\x80", b"9" * 40]
    )


def _noughts(data: bytearray, dice: random.Random) -> None:
    start = dice.randint(0, len(data))
    length = min(dice.randint(1, 32), len(data) - start)
    data[start : start + length] = bytes(length)


_DAMAGES = (_flip, _flip, _truncate, _cut_out, _repeat, _insert, _noughts)
