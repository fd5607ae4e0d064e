"""The documentation's file is the one that `laptime new` writes, and each of its commands is one that is understood."""

import re
import shlex
import tomllib
from importlib.resources import files
from pathlib import Path

import click
import pytest
from typer.main import get_command

from laptime.advice.rules import RULES
from laptime.catalogue import OPTIMIZATIONS
from laptime.cli import app
from laptime.variants import resolve

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"^(?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?laptime (\w.*)$", re.MULTILINE)


def test_the_documentations_file_is_the_template():
    template = files("laptime.cli").joinpath("own_workload.py.txt").read_text(encoding="utf-8")
    assert template in (ROOT / "docs" / "own-workload.md").read_text(encoding="utf-8")
    assert len(template.splitlines()) < 40


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_of_a_page_is_understood_as_it_is_typed(page: Path):
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for line in COMMAND.findall("\n".join(blocks)):
        command, words = get_command(app), shlex.split(line.partition(" > ")[0], comments=True)
        while hasattr(command, "commands"):
            _, command, words = command.resolve_command(click.Context(command), words)
        given = command.make_context("laptime", words).params  # raises where an option or an argument is unknown
        for name in (given.get("variants") or given.get("variant") or "").split(","):
            assert not name or resolve(name), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_link_within_the_documentation_leads_to_a_heading_or_a_file(page: Path):
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        name, _, heading = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not heading or heading in _headings(target), link


def _headings(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_names_each_optimization():
    named = set(re.findall(r"`([a-z0-9-]+)`", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert {entry.name for entry in OPTIMIZATIONS} - named == set()


def test_the_page_on_advice_names_each_rule():
    named = set(re.findall(r"`([a-z-]+)`", (ROOT / "docs" / "advice.md").read_text(encoding="utf-8")))
    assert {name for name, _ in RULES} - named == set()


def test_the_page_on_the_design_has_the_layers_that_are_held():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    held = project["tool"]["importlinter"]["contracts"][0]["layers"]
    block = re.search(
        r"^```\n(flows > .*?)^```", (ROOT / "docs" / "design.md").read_text(encoding="utf-8"), re.M | re.S
    )
    assert block
    told = [{*re.findall(r"\w+", layer)} for layer in block[1].split(">")]
    assert told == [{*re.findall(r"\w+", layer.replace("laptime.", ""))} for layer in held]
