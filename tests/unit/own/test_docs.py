"""The file in the documentation is the one that `laptime new` writes."""

from importlib.resources import files
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "own-workload.md"


def test_the_documentations_file_is_the_template():
    template = files("laptime.cli").joinpath("own_workload.py.txt").read_text(encoding="utf-8")
    assert template in PAGE.read_text(encoding="utf-8")
    assert len(template.splitlines()) < 40
