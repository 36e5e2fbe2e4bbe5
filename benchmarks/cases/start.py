"""How quickly things start: the help page, and a first Spark session with a trivial job against stock PySpark."""

from __future__ import annotations

import sys

from benchmarks.contest import ROOT, Contender, Row, driftline_command, hold

PEERS = ROOT / "benchmarks" / "peers"


def run(full: bool) -> list[Row]:
    rounds = 5 if full else 3
    session = [
        Contender("driftline", [sys.executable, str(PEERS / "session_driftline.py")]),
        Contender("stock pyspark", [sys.executable, str(PEERS / "session_stock.py")]),
    ]
    # A run that does not count: it leaves the class archive behind, as any earlier use would.
    hold("warm up", session[:1], rounds=1)
    return [
        *hold("driftline --help", [Contender("driftline", driftline_command("--help"))], rounds=rounds),
        *hold("Spark session, one trivial job, exit", session, rounds=rounds),
    ]
