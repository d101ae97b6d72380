"""axe-core, fetched by npm where the tests run; it is no part of the product."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.desk.browser import Browser
from tests.system import require_system

VERSION = "4.14.0"


def fetch(folder: Path) -> str:
    """The script; without npm, or without a registry to reach, the test says what is missing."""
    npm = require_system("npm", "npm")
    done = subprocess.run(
        [npm, "install", "--no-save", "--no-audit", "--no-fund", f"axe-core@{VERSION}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "npm_config_cache": str(folder / "cache")},
    )
    if done.returncode:
        sentence = f"MISSING: axe-core {VERSION} (npm says: {done.stderr.strip()[-200:]})"
        if os.environ.get("CI") == "true":
            pytest.fail(sentence, pytrace=False)
        pytest.skip(sentence)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


def violations(browser: Browser, script: str) -> list[str]:
    """What is serious or critical on the page as it stands, each with the first element."""
    browser.driver.execute_script(script)
    found: list[dict[str, Any]] = browser.driver.execute_async_script(
        "const done = arguments[0];"
        "axe.run().then(result => done(result.violations), error => done([{id: String(error),"
        " impact: 'critical', nodes: [{html: ''}]}]))"
    )
    return [
        f"{one['id']} ({one['impact']}): {one['nodes'][0]['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
