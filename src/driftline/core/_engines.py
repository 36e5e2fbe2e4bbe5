"""The choice of engine, local or Spark, with its reason, and the settings of Spark; the same for every command.

The master comes from the option, else from SPARK_REMOTE, SPARK_MASTER or the user's config file
(`driftline/config.toml` in the config directory, or the file that DRIFTLINE_CONFIG names):

    [spark]
    master = "spark://host:7077"
    "spark.executor.memory" = "4g"

>>> choose_engine("tables", "auto", sizes=lambda: [5_000_000]).name
'local'
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from driftline.core._files import io_errors
from driftline.errors import OptionError

EngineName = Literal["auto", "local", "spark"]
Job = Literal["tables", "lake", "payloads", "index"]

# Bytes of input up to which one machine is enough; above them `auto` chooses Spark.
LOCAL_LIMITS: dict[Job, int] = {"tables": 50 << 30, "lake": 8 << 30, "payloads": 4 << 30, "index": 32 << 30}

SHARED_FOLDER_VARIABLE = "DRIFTLINE_SHARED_DIR"  # a folder that this machine and all workers see under one path
_VARIABLES = ("SPARK_REMOTE", "SPARK_MASTER")
_CONFIG_VARIABLE = "DRIFTLINE_CONFIG"


class EngineChoice(NamedTuple):
    """The engine to use, and the reason as text."""

    name: str
    reason: str


Sizes = Callable[[], Iterable[int | None]]  # bytes of every input, looked up when they matter; None: not known


def choose_engine(job: Job, requested: str, *, sizes: Sizes, master: str | None = None) -> EngineChoice:
    """The engine for a job.

    `auto` is local, unless a Spark master is given or configured, or the inputs are together above the limit.
    """
    check_engine(requested, master)
    if requested != "auto":
        return EngineChoice(requested, "as asked")
    if master is not None:
        return EngineChoice("spark", "a master was given")
    place = configured_master()
    if place is not None:
        return EngineChoice("spark", f"{place[1]} names a Spark master")
    found, limit = list(sizes()), LOCAL_LIMITS[job]
    known = sum(size for size in found if size is not None)
    if known > limit:
        return EngineChoice("spark", f"{known / 1e9:,.1f} GB are above the local limit of {limit / 1e9:,.1f} GB")
    if None in found:
        return EngineChoice("local", "the size of the input is not known")
    return EngineChoice("local", f"{known / 1e6:,.0f} MB fit this machine well")


def check_engine(requested: str, master: str | None) -> None:
    """Raise for an unknown engine, or for one that has no use for a master."""
    names = get_args(EngineName)
    if requested not in names:
        raise OptionError(f'Unsupported engine: "{requested}" ({", ".join(names)})', code="invalid_engine")
    if requested == "local" and master is not None:
        raise OptionError(
            "engine local has no use for a Spark master: leave one of them out", code="invalid_option_combination"
        )


def shared_folder() -> str | None:
    """The folder or URL that this machine and all workers of a cluster share, if there is one."""
    return os.environ.get(SHARED_FOLDER_VARIABLE) or _shared.get("place")


@contextmanager
def shared_location(place: str | None) -> Iterator[None]:
    """Set the shared location of this process, where the environment names none."""
    before = _shared.get("place")
    _shared["place"] = place
    try:
        yield
    finally:
        _shared["place"] = before


_shared: dict[str, str | None] = {}


def configured_master() -> tuple[str, str] | None:
    """The master of the environment or the config file, and which of them names it."""
    for variable in _VARIABLES:
        if os.environ.get(variable):
            return os.environ[variable], variable
    master = _configured_spark().get("master")
    return (master, "the config file") if master else None


def spark_settings() -> dict[str, str]:
    """The user's settings of Spark: those of the config file, overridden by those of this run."""
    configured = {name: value for name, value in _configured_spark().items() if name != "master"}
    return {**configured, **_run_settings}


def use_spark_settings(settings: Mapping[str, str]) -> None:
    """Set the settings of the sessions that this process opens from now on."""
    for name in settings:
        if not name.startswith("spark."):
            raise OptionError(f"{name!r} is no setting of Spark: they begin with spark.", code="invalid_spark_setting")
    _run_settings.clear()
    _run_settings.update(settings)


_run_settings: dict[str, str] = {}


def _configured_spark() -> dict[str, str]:
    path = config_file()
    if path is None or not _is_readable(path):
        return {}
    return {name: setting_text(value) for name, value in _read_config(path).get("spark", {}).items()}


def setting_text(value: object) -> str:
    """A value as Spark takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def config_file() -> Path | None:
    """The user's config file; it need not exist. None for users without a home."""
    named = os.environ.get(_CONFIG_VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME")
    try:
        return Path(base or Path.home() / ".config") / "driftline" / "config.toml"
    except RuntimeError:  # no HOME, and the system has no such user
        return None


def _is_readable(path: Path) -> bool:
    """Whether there is a config file to read; a home without permission (of a service user) has none."""
    if os.environ.get(_CONFIG_VARIABLE):
        return path.is_file()
    try:
        return path.is_file() and os.access(path, os.R_OK)
    except PermissionError:
        return False


def _read_config(path: Path) -> dict[str, dict[str, object]]:
    with io_errors(path):
        text = path.read_bytes()
    import tomllib

    try:
        content = tomllib.loads(text.decode())
    except ValueError as error:
        raise OptionError(f"{path.name} is not valid TOML: {error}", code="invalid_config") from error
    names = {name for name in content.get("spark", {}) if name != "master" and not name.startswith("spark.")}
    unknown = set(content) - {"spark"} | names
    if unknown:
        raise OptionError(
            f"{path.name}: unknown key {min(unknown)!r} (known: a table [spark] with master and Spark's own settings, "
            'such as "spark.executor.memory")',
            code="invalid_config",
        )
    return content
