"""Write requirements-hashed.txt: the pinned set of constraints.txt with the hash of each file.

    .venv/bin/python scripts/pin_hashes.py

Asks the package index that pip is configured with, by pip's own client, so that no address stands
here. The hashes are those that the index states beside each file; where a file lies in a local
folder, it is read. Wheels depend on the platform: the hashes are of every file of a pinned version
that fits the Python and the machine on which this runs, which the first lines of the file name.
"""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from pathlib import Path
from typing import Any

from pip._internal.commands.install import InstallCommand

ROOT = Path(__file__).parents[1]
PINS, OUT = ROOT / "constraints.txt", ROOT / "requirements-hashed.txt"


def pins() -> dict[str, str]:
    """Name and version of each package, as constraints.txt has them."""
    lines = PINS.read_text().splitlines()
    found = [re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)", line) for line in lines]
    return {match[1]: match[2] for match in found if match}


def package_finder() -> Any:
    """Whatever `pip install` would ask, with its settings."""
    command = InstallCommand("install", "")
    options, _ = command.parse_args([])
    return command._build_package_finder(options, command._build_session(options))


def hash_of(link: Any) -> str | None:
    """The SHA-256 of a file, as the index says; of a local one, as it is."""
    if link.hash_name == "sha256":
        return str(link.hash)
    if not link.is_file:
        return None
    with open(link.file_path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> int:
    finder = package_finder()
    where = f"{platform.python_implementation()} {platform.python_version_tuple()[0]}."
    where += f"{platform.python_version_tuple()[1]}, {platform.system()} {platform.machine()}"
    lines = [
        f"# The files of constraints.txt by their hashes, for {where}.",
        "# Written by scripts/pin_hashes.py; install with: make install-hashed",
    ]
    missing = []
    for name, version in pins().items():
        candidates = finder.find_all_candidates(name)
        links = [one.link for one in candidates if str(one.version) == version]
        hashes = sorted({found for link in links if (found := hash_of(link))})
        if not hashes:
            missing.append(f"{name}=={version}")
        lines.append(f"{name}=={version} \\")
        lines += [f"    --hash=sha256:{one} \\" for one in hashes]
        lines[-1] = lines[-1].removesuffix(" \\")
    if missing:
        print(f"the index has no hash of {', '.join(missing)}", file=sys.stderr)
        return 1
    OUT.write_text("\n".join(lines) + "\n")
    print(f"{OUT.name}: {len(pins())} packages for {where}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
