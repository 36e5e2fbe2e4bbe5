from __future__ import annotations

from pathlib import Path

import pytest

from driftline.core._engines import LOCAL_LIMITS, choose_engine, configured_master
from driftline.errors import OptionError


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SPARK_REMOTE", "SPARK_MASTER", "DRIFTLINE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def choose(wanted: str = "auto", size: int = 10, master: str | None = None) -> str:
    return choose_engine("tables", wanted, sizes=lambda: [size], master=master).name


def test_small_work_stays_here_large_work_and_a_given_master_do_not() -> None:
    assert choose(size=LOCAL_LIMITS["tables"]) == "local"
    assert choose(size=LOCAL_LIMITS["tables"] + 1) == "spark"
    assert choose(master="local[2]") == "spark"
    assert choose("local", size=10**12) == "local"
    with pytest.raises(OptionError, match="no use for a Spark master"):
        choose("local", master="local[2]")
    assert choose("spark", size=0) == "spark"


def test_environment_comes_before_the_config_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert configured_master() is None
    (tmp_path / "driftline").mkdir()
    (tmp_path / "driftline/config.toml").write_text('[spark]\nmaster = "spark://host:7077"\n')
    assert configured_master() == ("spark://host:7077", "the config file")
    assert choose() == "spark"
    monkeypatch.setenv("SPARK_MASTER", "local[3]")
    assert configured_master() == ("local[3]", "SPARK_MASTER")
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    assert configured_master() == ("sc://host", "SPARK_REMOTE")


@pytest.mark.parametrize(
    ("text", "words"),
    [("[spark", "not valid TOML"), ('[sparc]\nmaster = ""', "unknown key 'sparc'"), ("[spark]\nmastr = 1", "'mastr'")],
)
def test_a_bad_config_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    monkeypatch.setenv("DRIFTLINE_CONFIG", str(path))
    with pytest.raises(OptionError, match=words) as caught:
        configured_master()
    assert caught.value.code == "invalid_config"


def test_a_home_that_is_closed_to_us_holds_no_config(monkeypatch: pytest.MonkeyPatch) -> None:
    """As service users have it: the directory is there, and only its owner may look into it."""

    def closed(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", closed)
    assert configured_master() is None
    monkeypatch.setenv("DRIFTLINE_CONFIG", "/somewhere/config.toml")
    with pytest.raises(PermissionError):
        configured_master()


def test_a_user_without_a_home_has_no_config(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    assert configured_master() is None
