"""A master that cannot be used says so at once: which one, why, and what to do (sources §7.3)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_cluster import StandaloneCluster

from driftline.errors import EngineError
from driftline.spark._runtime import jvm, masters
from driftline.spark._runtime.session import open_session
from support.processes import on_this_machine, run_process, start_process

SETTINGS_CODE = """
from driftline.core._engines import use_spark_settings
from driftline.spark._runtime.session import open_session
use_spark_settings({"spark.driver.memory": "555m", "spark.ui.enabled": "true", "spark.ui.port": "0"})
with open_session("local[1]") as spark:
    print(spark.sparkContext._jsc.hadoopConfiguration().get("driftline.test"))
    print(spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20)
    print(spark.sparkContext.uiWebUrl is not None, spark.conf.get("spark.sql.shuffle.partitions"))
    print(spark.sparkContext._jvm.java.lang.System.getProperty("mark"))
"""


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has no session yet."""
    monkeypatch.setattr("driftline.spark._runtime.session.active_session", lambda: None)


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """Something that takes connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("scheme", ["spark", "sc", "k8s://https"])
def test_a_master_that_is_not_there_is_named_with_reason_and_remedy(scheme: str, no_session: None) -> None:
    master = f"{scheme}://127.0.0.1:{free_port()}"
    before = jvm._running
    with pytest.raises(EngineError) as caught, open_session(master):
        pass
    assert caught.value.code == "spark_unreachable"
    assert master.removeprefix("sc://") in caught.value.message
    assert "Connection refused" in caught.value.message
    assert "--engine local" in caught.value.message
    assert jvm._running is before  # nothing was started for it


def test_the_command_says_so_within_fifteen_seconds(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    began = time.monotonic()
    done = run_process(
        [sys.executable, "-m", "driftline", "diff", "a.csv", "a.csv", "--master", f"spark://127.0.0.1:{free_port()}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("error[spark_unreachable]: no Spark master answers at spark://127")
    # Not a measurement but the promise itself.
    assert time.monotonic() - began < on_this_machine(15)


@pytest.mark.own_session
def test_a_listener_that_is_no_master_is_found_out(deaf_port: int, tmp_path: Path) -> None:
    code = f"""
from driftline.spark._runtime import masters
from driftline.spark._runtime.session import open_session
masters._REGISTRATION_SECONDS = 1
with open_session("spark://127.0.0.1:{deaf_port}"):
    pass
"""
    done = run_process([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert "something listens there, but it is no Spark master" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stdout


@pytest.mark.own_session
@pytest.mark.faults
def test_a_master_without_workers_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    with StandaloneCluster(workers=0) as cluster:
        options = ["--master", cluster.url, "--spark-conf", "spark.starvation.timeout=500ms"]
        command = [sys.executable, "-m", "driftline", "diff", "a.csv", "a.csv", *options]
        with start_process(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as waiting:
            assert waiting.stderr is not None
            told = waiting.stderr.readline()
            waiting.terminate()
    assert told.startswith(f"waiting: no worker of {cluster.url} has taken the job yet; see that workers run there")


def test_one_living_master_of_several_is_enough(deaf_port: int) -> None:
    masters.check_master(f"spark://127.0.0.1:{free_port()},127.0.0.1:{deaf_port}")


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_this_machine_needs_no_answer(master: str) -> None:
    masters.check_master(master)


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(EngineError, match="no address of a Spark master"):
        masters.check_master("spark://host:many")


def test_yarn_without_settings_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in jvm.HADOOP_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(EngineError, match="set HADOOP_CONF_DIR") as caught:
        masters.check_master("yarn")
    assert caught.value.code == "missing_hadoop_conf"
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(EngineError, match="no yarn-site") as caught:
        masters.check_master("yarn")
    assert caught.value.code == "missing_hadoop_conf"


def test_yarn_whose_resource_manager_is_away_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    site = {
        "yarn.resourcemanager.ha.rm-ids": "one,two",
        "rm.host": "127.0.0.1",
        "yarn.resourcemanager.address.one": f"${{rm.host}}:{free_port()}",
        "yarn.resourcemanager.address.two": f"127.0.0.1:{free_port()}",
    }
    write_site(tmp_path / "yarn-site.xml", site)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(EngineError, match="no Spark master answers at yarn: Connection refused"):
        masters.check_master("yarn")


@pytest.mark.own_session
def test_settings_reach_the_jvm(tmp_path: Path) -> None:
    write_site(tmp_path / "core-site.xml", {"driftline.test": "seen"})
    (tmp_path / "config.toml").write_text(
        '[spark]\n"spark.sql.shuffle.partitions" = 3\n"spark.driver.extraJavaOptions" = "-Dmark=set"\n'
    )
    done = run_process(
        [sys.executable, "-c", SETTINGS_CODE],
        env={**os.environ, "HADOOP_CONF_DIR": str(tmp_path), "DRIFTLINE_CONFIG": str(tmp_path / "config.toml")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    seen, heap, interface, mark = done.stdout.splitlines()
    assert seen == "seen"
    assert 500 < int(heap) <= 555
    assert interface == "True 3"
    assert mark == "set"


@pytest.mark.own_session
def test_a_session_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    small = ["--master", "local[1]", "--spark-conf", "spark.driver.memory=99m"]
    done = run_process(
        [sys.executable, "-m", "driftline", "diff", "a.csv", "a.csv", *small],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    told = done.stderr.splitlines()[-1]
    assert told.startswith("error[spark_failed]: Spark did not start on local[1]: ")
    assert "Insufficient driver memory" in told


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("spark.master=local",), "use --master"),
        (("spark.sql.adaptive.enabled=true",), "set by driftline"),
        (("executor.memory=4g",), "begin with spark."),
        (("spark.x",), "KEY=VALUE"),
        (("spark.x=1", "spark.x=2"), "each key once"),
    ],
)
def test_settings_that_cannot_be_taken_are_refused(given: tuple[str, ...], words: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    options = [word for pair in given for word in ("--spark-conf", pair)]
    done = run_process(
        [sys.executable, "-m", "driftline", "diff", "a.csv", "a.csv", "--engine", "spark", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error[invalid_spark_setting]")
    assert words in done.stderr


def write_site(path: Path, properties: dict[str, str]) -> None:
    entries = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in properties.items())
    path.write_text(f"<configuration>{entries}</configuration>")
