"""System programs that some tests need: present, or reported as missing, never passed over."""

from __future__ import annotations

import glob
import os
import shutil

import pytest

#: Debian keeps server programs out of PATH.
_ELSEWHERE = ("/usr/lib/postgresql/*/bin", "/usr/sbin", "/sbin")


def find_system(binary: str) -> str | None:
    """The path of a program, or None."""
    found = shutil.which(binary)
    if found:
        return found
    candidates = [path for folder in _ELSEWHERE for path in glob.glob(f"{folder}/{binary}")]
    return max(candidates, default=None)


def require_system(binary: str, package: str) -> str:
    """The path of a program; without it the test is skipped loudly, or fails where it must run.

    On a developer's machine a missing package is a skip that names it (pytest runs with -ra, so
    it stands in the summary). With ``CI=true`` or ``CONCLAD_REQUIRE_SYSTEM=1`` it is a failure.
    """
    found = find_system(binary)
    if found is not None:
        return found
    sentence = f"MISSING SYSTEM PACKAGE: {package}"
    if os.environ.get("CI") == "true" or os.environ.get("CONCLAD_REQUIRE_SYSTEM") == "1":
        pytest.fail(sentence, pytrace=False)
    pytest.skip(sentence)
