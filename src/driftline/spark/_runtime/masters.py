"""Addresses of Spark masters, and checks that they are reachable before Spark is started (sources §7.3).

Spark itself waits long and reports little: 99 s for a master that does not exist, without limit on a YARN without
settings.
"""

from __future__ import annotations

import logging
import queue
import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

from driftline.core import configured_master
from driftline.errors import EngineError
from driftline.spark._runtime.jvm import Jvm, hadoop_folders

LOCAL_MASTER = "local[*]"

_ANSWER_SECONDS = 8  # for a connection
_REGISTRATION_SECONDS = 30  # until a standalone master takes the application; a busy one may need many seconds
_LOOK_SECONDS = 0.1
_PORTS = {"sc": 15002, "spark": 7077, "https": 443, "http": 80}
_YARN_PORT = 8032
_REGISTERING, _REGISTERED = "Connecting to master", "Connected to Spark cluster"  # words of Spark's standalone client
_SERVED, _STARVING = "Executor added", "Initial job has not accepted any resources"

Address = tuple[str, int]


def chosen_master(master: str | None = None) -> str:
    """Where Spark runs: the argument, else what the environment or the config file names, else this machine."""
    configured = configured_master()
    return master or (configured[0] if configured else LOCAL_MASTER)


def is_connect(master: str) -> bool:
    """Whether the address is a Spark Connect server."""
    return master.startswith("sc://")


def is_local(master: str) -> bool:
    """Whether Spark runs inside this machine's one JVM."""
    return master == "local" or master.startswith("local[")


def is_loopback(master: str) -> bool:
    """Whether a cluster is reached through this machine's own loopback address."""
    return urlsplit(master).hostname in ("127.0.0.1", "localhost")


def check_master(master: str) -> None:
    """Raise if the address of a master is not valid or not reachable."""
    addresses = _addresses(master)
    reasons = _refusals(addresses) if addresses else None
    if reasons is not None:
        raise unreachable(master, reasons)


def unreachable(master: str, reason: str) -> EngineError:
    """The error for a master that does not answer."""
    kind = "Spark Connect server" if is_connect(master) else "Spark master"
    return EngineError(
        f"no {kind} answers at {master.removeprefix('sc://')}: {reason}: check the address and that it runs, "
        f"or use --master '{LOCAL_MASTER}' (this machine) or --engine local",
        code="spark_unreachable",
        master=master,
    )


@contextmanager
def giving_up_on_silence(master: str, jvm: Jvm) -> Iterator[None]:
    """End the JVM when something listens at a standalone master's address but never accepts the application."""
    if not master.startswith("spark://"):
        yield
        return
    over, gave_up = threading.Event(), threading.Event()
    threading.Thread(target=_await_registration, args=(jvm, over, gave_up), daemon=True).start()
    try:
        yield
    except Exception as error:
        if gave_up.is_set():
            raise unreachable(master, "something listens there, but it is no Spark master") from error
        raise
    finally:
        over.set()


def _await_registration(jvm: Jvm, over: threading.Event, gave_up: threading.Event) -> None:
    registering_since: float | None = None
    while not over.wait(_LOOK_SECONDS):
        said = jvm.log_text()
        if _REGISTERED in said:
            return
        if registering_since is None and _REGISTERING in said:
            registering_since = time.monotonic()
        if registering_since is not None and time.monotonic() - registering_since > _REGISTRATION_SECONDS:
            gave_up.set()
            jvm.process.kill()
            return


def tell_of_missing_workers(master: str, jvm: Jvm) -> None:
    """Warn once when a job waits because no worker of a standalone master has taken it; one may still do so."""
    if master.startswith("spark://"):
        threading.Thread(target=_await_executor, args=(master, jvm), daemon=True).start()


def _await_executor(master: str, jvm: Jvm) -> None:
    while jvm.process.poll() is None:
        said = jvm.log_text()
        if _SERVED in said:
            return
        if _STARVING in said:
            logging.getLogger("driftline").warning(
                f"waiting: no worker of {master} has taken the job yet; see that workers run there, with free cores "
                f"and enough memory, or use --master '{LOCAL_MASTER}'"
            )
            return
        time.sleep(_LOOK_SECONDS * 5)


def _addresses(master: str) -> list[Address]:
    """The hosts and ports behind a master; none where there is nothing to try."""
    if master == "yarn":
        return _yarn_addresses()
    scheme, mark, rest = master.removeprefix("k8s://").partition("://")
    if not mark:
        return _parsed([scheme], _PORTS["https"]) if master.startswith("k8s://") else []
    return _parsed(rest.partition("/")[0].partition(";")[0].split(","), _PORTS.get(scheme, 0))


def _parsed(places: Iterable[str], default_port: int) -> list[Address]:
    found = []
    for place in places:
        parts = urlsplit(f"//{place}")
        try:
            port = parts.port or default_port
        except ValueError:
            port = 0
        if not parts.hostname or not port:
            raise EngineError(f"{place!r} is no address of a Spark master: write host:port", code="spark_unreachable")
        found.append((parts.hostname, port))
    return found


def _refusals(addresses: list[Address]) -> str | None:
    """Why no address is reachable, as text; None as soon as one is.

    In threads, because a name server may take longer than the time limit.
    """
    answers: queue.Queue[str | None] = queue.Queue()

    def ask(address: Address) -> None:
        try:
            socket.create_connection(address, _ANSWER_SECONDS).close()
            answers.put(None)
        except OSError as error:
            answers.put(error.strerror or str(error))

    for address in addresses:
        threading.Thread(target=ask, args=(address,), daemon=True).start()
    deadline = time.monotonic() + _ANSWER_SECONDS
    reasons: list[str] = []
    while len(reasons) < len(addresses):
        try:
            reason = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return f"no answer within {_ANSWER_SECONDS} s"
        if reason is None:
            return None
        reasons.append(reason)
    return ", ".join(dict.fromkeys(reasons))


def _yarn_addresses() -> list[Address]:
    """The resource managers that yarn-site.xml names."""
    folders = hadoop_folders()
    if not folders:
        raise EngineError(
            "--master yarn needs to know the cluster: set HADOOP_CONF_DIR to the folder that holds its core-site.xml "
            "and yarn-site.xml",
            code="missing_hadoop_conf",
        )
    files = [path for path in (Path(folder, "yarn-site.xml") for folder in folders) if path.is_file()]
    if not files:
        raise EngineError(
            f"--master yarn: there is no yarn-site.xml in {' or '.join(folders)}: correct HADOOP_CONF_DIR",
            code="missing_hadoop_conf",
        )
    return _resource_managers(_properties(files[0]))


def _properties(path: Path) -> dict[str, str]:
    try:
        root = ElementTree.fromstring(path.read_bytes())  # noqa: S314 - the cluster's own settings
    except (OSError, ElementTree.ParseError) as error:
        raise EngineError(f"{path} cannot be read: {error}", code="missing_hadoop_conf") from error
    found = {one.findtext("name", ""): one.findtext("value", "").strip() for one in root.iter("property")}
    return {name: re.sub(r"\$\{([^}]+)\}", lambda m: found.get(m[1], m[0]), value) for name, value in found.items()}


def _resource_managers(properties: dict[str, str]) -> list[Address]:
    base = "yarn.resourcemanager"
    ids = [one.strip() for one in properties.get(f"{base}.ha.rm-ids", "").split(",") if one.strip()]
    endings = [f".{one}" for one in ids] or [""]
    hosts = [properties.get(f"{base}.hostname{ending}", "") for ending in endings]
    named = [properties.get(f"{base}.address{ending}") or host for ending, host in zip(endings, hosts, strict=True)]
    # What is written with variables of the cluster's own cannot be tried from here.
    return _parsed([place for place in named if place and "$" not in place], _YARN_PORT)
