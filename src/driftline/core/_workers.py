"""Worker processes that can be started from any program.

A process that Python spawns runs the main program again, to find functions in it. The functions of driftline's workers
are in its own modules, so this is left out: a script needs no `if __name__ == "__main__"`, and workers start sooner.
"""

from __future__ import annotations

import sys
from multiprocessing.context import SpawnContext, SpawnProcess
from threading import Lock

_hiding = Lock()


class _Worker(SpawnProcess):
    def start(self) -> None:
        members = vars(sys.modules["__main__"])
        names = ("__spec__", "__file__")
        with _hiding:  # of the main program
            kept: dict[str, object] = {name: members[name] for name in names if name in members}
            members.update(dict.fromkeys(names))
            try:
                super().start()
            finally:
                for name in names:
                    del members[name]
                members.update(kept)


class WorkerContext(SpawnContext):
    """The `mp_context` of a pool of workers."""

    Process = _Worker
