"""Known holes of the pinned set, by pip-audit; fails if there are any.

Where the package index does not tell of advisories (a mirror without them, or no network), it says
so in one sentence and passes: the check is then somebody else's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SECONDS = 60


def audit(pins: Path) -> list[dict[str, Any]] | None:
    """What is known of each package; None if nothing could be asked."""
    program = Path(sys.executable).parent / "pip-audit"
    # The versions are given, so pip itself is not asked to resolve anything.
    words = ["--requirement", str(pins), "--no-deps", "--disable-pip", "--format", "json"]
    try:
        done = subprocess.run(
            [str(program), *words, "--progress-spinner", "off", "--timeout", "10"],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        )
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (OSError, subprocess.TimeoutExpired, ValueError, LookupError):
        return None
    return found


def main() -> int:
    found = audit(ROOT / "constraints.txt")
    known = [one for one in found or [] if "vulns" in one]
    if not known:
        print("advisories: the package index here has none, so nothing was audited")
        return 0
    holes = [(one["name"], one["version"], hole) for one in known for hole in one["vulns"]]
    for name, version, hole in holes:
        fixed = ", ".join(hole.get("fix_versions", ())) or "no release yet"
        print(f"{name} {version}: {hole['id']}, fixed in {fixed}", file=sys.stderr)
    skipped = len(found or []) - len(known)
    print(f"advisories: {len(known)} packages audited, {skipped} unknown, {len(holes)} holes")
    return 1 if holes else 0


if __name__ == "__main__":
    sys.exit(main())
