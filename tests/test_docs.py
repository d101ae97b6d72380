"""What exists is documented, and what is documented works."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import click
import pytest

from actors.event_sentences import KINDS
from monitor.cli.root import COMMANDS
from monitor.config.fields import fields_of
from monitor.config.schema import Config
from monitor.config.template import reference_table
from tests.jobs.feeds import write_feed

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("**/*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *DOCS]


def test_every_key_is_on_the_reference_page() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    table = page.partition("<!-- keys: written by `conclad config keys` -->\n")[2]
    assert table.partition("<!-- end of keys -->")[0] == reference_table(), (
        "paste the output of: conclad config keys"
    )


def test_keys_that_the_pages_name_exist() -> None:
    sections = "|".join(Config.model_fields)
    known = {field.dotted for field in fields_of(Config).values()}
    known |= {key.rpartition(".")[0] for key in known}
    # Events are named in the same way.
    known |= set(KINDS)
    for page in PAGES:
        named = set(re.findall(rf"`((?:{sections})\.[a-z_.]+)`", page.read_text()))
        unknown = {name for name in named - known if not name.startswith("novelty.settings.")}
        assert unknown == set(), f"{page.name} names keys that do not exist"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_flag_is_documented(name: str) -> None:
    text = "\n".join(page.read_text() for page in DOCS)
    module, _, attribute = COMMANDS[name][0].partition(":")
    command = getattr(importlib.import_module(module), attribute)
    groups = command.commands.items() if isinstance(command, click.Group) else [("", command)]
    for inner, leaf in groups:
        assert f"conclad {name} {inner}".strip() in text
        for parameter in leaf.params:
            for flag in parameter.opts:
                assert not flag.startswith("--") or flag in text, f"{name} {inner} {flag}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_the_pages_name_exist(page: Path) -> None:
    folders = "actors|bench|conclad|deploy|docs|monitor|tests"
    named = set(re.findall(rf"`((?:{folders})/[\w./-]+)`", page.read_text()))
    named -= {"deploy/.env"}  # the operator's own, copied from deploy/.env.example
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_what_the_tables_of_architecture_name_exists() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    for name in re.findall(r"`([a-z_]+\.py)`", page):
        assert list(ROOT.glob(f"monitor/**/{name}")), f"{name}: no such file"
    code = "\n".join(
        path.read_text()
        for folder in ("actors", "monitor")
        for path in ROOT.glob(f"{folder}/**/*.py")
    )
    defined = set(re.findall(r"^ *(?:class|def) (\w+)", code, re.MULTILINE))
    rows = "\n".join(re.findall(r"^\|.*\.py`.*\|$", page, re.MULTILINE))
    named = set(re.findall(r"`(?:\w+\.)?([A-Z]\w+|[a-z]+_\w+)(?:\(.*?\))?`", rows))
    assert named - defined == set()


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def shown_commands(page: Path) -> list[list[str]]:
    """The commands after a prompt, as words; continued lines are joined."""
    text = page.read_text().replace("\\\n", " ")
    lines = re.findall(r"^\$ (?:.*?&& )?(conclad .*)$", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "examples" / "README.md"], ids=_name)
def test_commands_that_the_pages_show_exist(page: Path) -> None:
    for words in shown_commands(page):
        if len(words) < 2 or words[1].startswith("-"):
            continue
        module, _, attribute = COMMANDS[words[1]][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        rest = words[2:]
        if isinstance(command, click.Group) and rest and rest[0] in command.commands:
            command, rest = command.commands[rest[0]], rest[1:]
        elif isinstance(command, click.Group):
            assert command.invoke_without_command or rest == ["--help"], " ".join(words)
        known = {flag for one in command.params for flag in one.opts + one.secondary_opts}
        ends = next((n for n, word in enumerate(rest) if word in ("|", ">", "&&", ";")), len(rest))
        flags = {word.partition("=")[0] for word in rest[:ends] if word.startswith("-")}
        assert flags - known - {"--help"} == set(), f"{page.name}: {' '.join(words)}"


def test_changes_are_placed_for_every_package() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    table = page.partition("### Where to change what\n")[2].partition("\n#")[0]
    packages = {path.parent.name for path in ROOT.glob("monitor/*/__init__.py")} | {"actors"}
    # The demo shows the rest; jobs are functions of their own, named where they take part.
    missing = {name for name in packages - {"demo"} if f"{name}/" not in table}
    assert missing == set()


def test_the_python_of_the_quickstart_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "quickstart.md").read_text()
    [program] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONCLAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CONCLAD_BACKBONE__NAME", "tiny")
    (tmp_path / "ray_config.yaml").write_text((ROOT / "ray_config.yaml").read_text())
    write_feed(tmp_path / "labelled" / "a.parquet", ["water", "forest"] * 40)
    write_feed(tmp_path / "feed" / "b.parquet", ["water", "sand"] * 10, first_id=500)
    exec(compile(program, "quickstart.md", "exec"), {})
    assert float(capsys.readouterr().out.split()[0]) > 0
    assert list((tmp_path / "verdicts" / "verdicts").glob("*.parquet"))
