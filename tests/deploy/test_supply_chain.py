"""What is installed is what was pinned, and it can be said what that is."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from tests.deploy.manifests import ROOT

BIN = Path(sys.executable).parent
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+?)(?: \\)?$", re.MULTILINE)


def test_every_pin_has_a_hash_and_no_host() -> None:
    pins = PIN.findall((ROOT / "constraints.txt").read_text())
    text = (ROOT / "requirements-hashed.txt").read_text()
    assert PIN.findall(text) == pins, "run scripts/pin_hashes.py again"
    assert "://" not in text
    blocks = re.split(r"\n(?=\S)", text.strip())
    hashed = [block for block in blocks if not block.startswith("#")]
    assert len(hashed) == len(pins)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", block) for block in hashed)


def declared() -> dict[NormalizedName, Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    found = [Requirement(text) for group in groups for text in group]
    return {canonicalize_name(one.name): one for one in found}


def test_every_pin_is_as_new_as_is_declared() -> None:
    pins = {
        canonicalize_name(name): version
        for name, version in PIN.findall((ROOT / "constraints.txt").read_text())
    }
    old = [
        f"{name} {pins[name]}"
        for name, wanted in declared().items()
        if name in pins and not wanted.specifier.contains(pins[name])
    ]
    assert not old


def test_what_is_imported_is_declared() -> None:
    """By us, or by a package that we declare."""
    known = set(declared())
    for name in declared():
        with contextlib.suppress(PackageNotFoundError):
            known |= {canonicalize_name(Requirement(one).name) for one in requires(name) or ()}
    owners = packages_distributions()
    unknown = {
        module
        for module in imported_modules()
        if owners.get(module) and known.isdisjoint(map(canonicalize_name, owners[module]))
    }
    assert unknown <= {"conclad", "monitor", "actors"}


def imported_modules() -> set[str]:
    found: set[str] = set()
    for room in ("conclad", "monitor", "actors"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found.add(node.module.partition(".")[0])
    return found


def test_a_file_with_another_hash_is_not_installed(tmp_path: Path) -> None:
    wheel = tmp_path / "small-1.0-py3-none-any.whl"
    make_wheel(wheel)
    right = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert install(tmp_path, right).returncode == 0
    refused = install(tmp_path, "0" * 64)
    assert refused.returncode != 0
    assert "HASHES" in refused.stderr


def make_wheel(path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("small.py", "")
        head = "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n"
        archive.writestr("small-1.0.dist-info/METADATA", head)
        tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr("small-1.0.dist-info/WHEEL", tags)
        archive.writestr("small-1.0.dist-info/RECORD", "")


def install(folder: Path, digest: str) -> subprocess.CompletedProcess[str]:
    """As `make install-hashed` does, from a folder and into another one."""
    [line] = re.findall(
        r"--no-deps --require-hashes --requirement", (ROOT / "Makefile").read_text()
    )
    (folder / "hashed.txt").write_text(f"small==1.0 --hash=sha256:{digest}\n")
    where = ["--no-index", "--find-links", str(folder), "--target", str(folder / "into")]
    return subprocess.run(
        [sys.executable, "-m", "pip", "install", *where, *line.split(), str(folder / "hashed.txt")],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("name", ["audit", "sbom", "install-hashed"])
def test_make_knows(name: str) -> None:
    text = (ROOT / "Makefile").read_text()
    assert re.search(rf"^{name}:.*## ", text, re.MULTILINE)


def test_a_hole_fails_the_audit_and_an_index_without_advisories_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scripts import audit

    def found(*dependencies: Mapping[str, object]) -> int:
        monkeypatch.setattr(audit, "audit", lambda pins: list(dependencies))
        return audit.main()

    sound = {"name": "a", "version": "1", "vulns": []}
    hole = {"id": "PYSEC-1", "fix_versions": ["2"]}
    assert found({"name": "a", "version": "1", "skip_reason": "not found"}) == 0
    assert found(sound) == 0
    assert found(sound, {"name": "b", "version": "1", "vulns": [hole]}) == 1


def test_the_list_of_parts_names_what_is_installed(tmp_path: Path) -> None:
    out = tmp_path / "parts.json"
    words = ["--of", "JSON", "--output-file", str(out)]
    done = subprocess.run(
        [str(BIN / "cyclonedx-py"), "requirements", str(ROOT / "constraints.txt"), *words],
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["bomFormat"] == "CycloneDX"
    pins = PIN.findall((ROOT / "constraints.txt").read_text())
    assert len(found["components"]) == len(pins)
