"""Fault tests: kills, full disks, closed pipes, slow clients and mutated files, against the real thing.

`make faults` runs them all (minutes; not part of `make test`) and prints what `docs/reliability.md` promises: how much
was tried, and how often a traceback was shown, something hung, or data was lost or wrong without a word.

Each room has one module here with `run(seed, rounds) -> Iterator[Tally]`, one tally a kind. The same seed gives
the same faults, so that a failure can be looked at again: `python -m faults tables --seed 7 --rounds 50`.
"""
