"""Outside judges of API verdicts: griffe, apidiff, japicmp, the TypeScript compiler, and callers that are run."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from support.processes import run_process

ROOT = Path(__file__).parents[2]


def put(folder: Path, files: Mapping[str, str]) -> Path:
    for path, source in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(source)
    return folder


def griffe_breaks(before: Path, after: Path, packages: Iterable[str]) -> dict[str, set[str]]:
    """The objects that griffe calls broken, by where they are defined; changed defaults left out, as ruled minor."""
    import griffe

    logging.getLogger("griffe").setLevel(logging.CRITICAL)
    loaders = []
    for folder in (before, after):
        loader = griffe.GriffeLoader(search_paths=[str(folder)], allow_inspection=False)
        for package in packages:
            loader.load(package)
        loader.resolve_aliases(implicit=False)
        loaders.append(loader)
    found: dict[str, set[str]] = {}
    for package in packages:
        old, new = (loader.modules_collection[package] for loader in loaders)
        for breakage in griffe.find_breaking_changes(old, new):
            if breakage.kind.name != "PARAMETER_CHANGED_DEFAULT" and not _is_unwritable(breakage):
                found.setdefault(_canonical(breakage.obj), set()).add(breakage.kind.name)
    return found


def _is_unwritable(breakage: Any) -> bool:
    """Whether a parameter went whose name nobody can write, and one of its kind is there: `**k`, `*a`, before `/`."""
    gone = breakage.old_value if breakage.kind.name == "PARAMETER_REMOVED" else None
    kinds = ("variadic keyword", "variadic positional", "positional-only")
    return (
        gone is not None and gone.kind.value in kinds and any(one.kind is gone.kind for one in breakage.obj.parameters)
    )


def _canonical(found: Any) -> str:
    import griffe

    try:
        return str(found.canonical_path)
    except griffe.AliasResolutionError:
        return str(found.path)


def apidiff(before: Path, after: Path, module: str, scratch: Path) -> list[str]:
    """The lines in which apidiff tells what is incompatible."""
    program = tool("apidiff", str(Path.home() / "go/bin"))
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOOS": "linux", "GOARCH": "amd64"}
    for folder, name in ((before, "a"), (after, "b")):
        answer([program, "-m", "-w", str(scratch / name), module], folder, environment)
    told = answer([program, "-m", "-incompatible", str(scratch / "a"), str(scratch / "b")], scratch, environment)
    return [line.strip()[2:] for line in told.splitlines() if line.strip().startswith("- ")]


def tool(name: str, *more: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *more]))
    if found is None:
        pytest.skip(f"{name} is not installed (.ci/run installs it)")
    return found


def answer(command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """What a judge says; one that fails has not said that nothing breaks."""
    done = run_process(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"the judge failed: {' '.join(command)}\n{done.stderr[-2000:]}"
    return str(done.stdout)


def caller_works(language: str, source: Path, witness: str, scratch: Path) -> bool:
    """Whether a caller is accepted by Python, rustc or the TypeScript compiler."""
    scratch.mkdir(exist_ok=True)
    if language == "python":
        where = source / "src" if (source / "src").is_dir() else source
        return (
            run_process([sys.executable, "-W", "ignore", "-c", witness], cwd=where, capture_output=True).returncode == 0
        )
    if language == "rust":
        edition = [tool("rustc"), "--edition", "2021", "--crate-type", "lib", "--emit", "metadata"]
        library = scratch / "libkrate.rmeta"
        answer([*edition, "--crate-name", "krate", "-o", str(library), str(source / "src/lib.rs")], scratch)
        (scratch / "w.rs").write_text(witness)
        words = ["-o", str(scratch / "w.rmeta"), "--extern", f"krate={library}", str(scratch / "w.rs")]
        return run_process([*edition, *words], cwd=scratch, capture_output=True).returncode == 0
    (source / "w.ts").write_text(witness)
    words = [
        "--noEmit",
        "--strict",
        "--skipLibCheck",
        "--moduleResolution",
        "bundler",
        "--module",
        "esnext",
        "--target",
        "es2022",
        "w.ts",
    ]
    return (
        run_process([tool("node"), str(compiler() / "bin/tsc"), *words], cwd=source, capture_output=True).returncode
        == 0
    )


def compiler() -> Path:
    """The TypeScript compiler."""
    found = ROOT / "node_modules/typescript"
    if not found.exists():
        pytest.skip("TypeScript is not installed (.ci/run installs it)")
    return found


def typescript_breaks(before: Path, after: Path) -> dict[str, Any]:
    """What the TypeScript compiler refuses to callers of a module when they get another one."""
    script = Path(__file__).with_name("typescript_judge.js")
    words = [tool("node"), str(script), str(compiler()), str(before), str(after)]
    found: dict[str, Any] = json.loads(answer(words, before.parent))
    assert found["compared"], f"the judge found no exports in {before}"
    return found


def npm_release(project: str, version: str, folder: Path) -> Path:
    """The files of a release of a JavaScript package."""
    target = folder / f"{project.replace('/', '-')}-{version}"
    target.mkdir()
    told = json.loads(answer([tool("npm"), "pack", "--json", f"{project}@{version}"], target))
    with tarfile.open(target / told[0]["filename"]) as archive:
        archive.extractall(target, filter="data")
    return next(path for path in target.iterdir() if path.is_dir())


def python_release(project: str, version: str, folder: Path, platform: str | None = None) -> Path:
    """The files of a release, from the package registry; for the platform `any` without compiled modules."""
    words = ["-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(folder / "wheels")]
    words += ["--platform", platform] if platform else []
    answer([sys.executable, *words, f"{project}=={version}"], folder)
    target = folder / f"{project}-{version}"
    named = f"{project.replace('-', '_')}-{version}-".lower()
    wheel = next(path for path in (folder / "wheels").glob("*.whl") if path.name.lower().startswith(named))
    zipfile.ZipFile(wheel).extractall(target)
    return target


def _ivy(folder: Path, *words: str) -> None:
    """Ivy, which comes with Spark, reads Java's package registry."""
    import pyspark

    program = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
    answer([tool("java"), "-jar", str(program), "-cache", str(folder / "ivy"), *words], folder)


def java_release(organisation: str, name: str, version: str, folder: Path) -> tuple[Path, Path]:
    """The sources of a release, unpacked, and its classes."""
    place = folder / f"{name}-{version}"
    pattern = f"{place}/[type]/[artifact]-[revision].[ext]"
    _ivy(folder, "-dependency", organisation, name, version, "-retrieve", pattern, "-notransitive")
    with zipfile.ZipFile(place / "source" / f"{name}-{version}.jar") as archive:
        archive.extractall(place / "unpacked")
    return place / "unpacked", place / "jar" / f"{name}-{version}.jar"


def japicmp_breaks(before: Path, after: Path, folder: Path) -> dict[str, set[str]]:
    """What japicmp calls incompatible for source, with its reasons.

    A type parameter that only has another name breaks nobody: such classes and methods are left out, with what is in
    them. So are a member that a base lost, which is told at the base, and a checked exception that is no longer thrown.
    """
    path, told = folder / "japicmp.classpath", folder / "japicmp.xml"
    if not path.exists():
        _ivy(folder, "-dependency", "com.github.siom79.japicmp", "japicmp", "0.23.1", "-cachepath", str(path))
    words = ["-o", str(before), "-n", str(after), "-x", str(told), "--ignore-missing-classes", "-a", "protected"]
    answer([tool("java"), "-cp", path.read_text().strip(), "japicmp.JApiCmp", *words], folder)
    found: dict[str, set[str]] = {}
    for holder in ElementTree.parse(told).getroot().iter("class"):
        name = str(holder.get("fullyQualifiedName")).replace("$", ".")
        if holder.get("sourceCompatible") == "true" or _only_renamed(holder):
            continue
        reasons = _reasons(holder)
        if reasons:
            found[name] = reasons
        for member in holder.findall("methods/method") + holder.findall("fields/field"):
            _put_member(found, f"{name}.{member.get('name')}", member)
        for member in holder.findall("constructors/constructor"):
            _put_member(found, f"{name}.<init>", member)
    gone = {name for name, reasons in found.items() if "CLASS_REMOVED" in reasons}
    return {name: reasons for name, reasons in found.items() if not any(name.startswith(f"{one}.") for one in gone)}


def _put_member(found: dict[str, set[str]], name: str, member: Element) -> None:
    thrown_less = "NO_LONGER_THROWS" in ElementTree.tostring(member, "unicode")
    if (
        member.get("sourceCompatible") == "false"
        and not _only_renamed(member)
        and (_reasons(member) or not thrown_less)
    ):
        found.setdefault(name, set()).update(_reasons(member) or {"a part of it"})


def _reasons(node: Element) -> set[str]:
    changes = node.findall("compatibilityChanges/compatibilityChange")
    told = {str(change.get("type")) for change in changes if change.get("sourceCompatible") == "false"}
    return {reason for reason in told if not reason.endswith(("_IN_SUPERCLASS", "_NO_LONGER_THROWS_CHECKED_EXCEPTION"))}


def _only_renamed(node: Element) -> bool:
    """Whether the type parameters have other names, and the same number and bounds."""
    templates = node.findall("genericTemplates/genericTemplate")
    old = [item.get("oldType") for item in templates if item.get("oldType") != "n.a."]
    new = [item.get("newType") for item in templates if item.get("newType") != "n.a."]
    return _reasons(node) == {"CLASS_GENERIC_TEMPLATE_CHANGED"} and sorted(map(str, old)) == sorted(map(str, new))
