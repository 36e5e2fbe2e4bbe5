"""A signal ends a server whenever it comes."""

from __future__ import annotations

import subprocess
import sys

from support.processes import start_process

# The signal comes inside a callback, as those of the import system are: Python drops an exception that is raised there.
_SERVER = """
import logging, os, signal, weakref
from driftline.http import ServerOptions, Service, serve

class Thing:
    pass

class EndsInACallback(logging.Handler):
    def emit(self, record):
        if record.getMessage() == "listening":
            thing = Thing()
            self.kept = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
            del thing

async def app(scope, receive, send):
    pass

def service():
    logging.getLogger("driftline").addHandler(EndsInACallback())
    return Service(app)

signal.signal(signal.SIGTERM, signal.default_int_handler)
serve(service, ServerOptions(port=0))
"""


def test_a_signal_that_comes_before_the_event_loop_ends_the_server() -> None:
    server = start_process([sys.executable, "-c", _SERVER], stderr=subprocess.PIPE)
    try:
        stderr = server.communicate(timeout=30)[1]
        assert (server.returncode, b'"closed"' in stderr) == (0, True), stderr
    finally:
        server.kill()
        server.wait()
