"""What a user's own data are called: in reports and in a plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from compare_examples import data, ladder, records
from typer.testing import CliRunner

from laptime.cli import app
from laptime.compare.comparison import compare
from laptime.compare.html import to_html
from laptime.compare.markdown import to_markdown
from laptime.data.choices import place_called

_HOLIDAY = {"asked": "/home/me/<holiday>/#size=96", "kind": "folder"}


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("auto", ""),
        ("synthetic", ""),
        ("auto#bands=8", ""),
        ("/home/me/holiday/#size=96#seed=1", "holiday"),
        ("holiday #1.tar.gz", "holiday #1.tar.gz"),
        ("https://me:secret@x.org/a/b.zip?sig=secret", "b.zip"),
        ("s3://bucket", "bucket"),
        (".", ""),
        (f"/data/{'0' * 64}", ""),
        ("a\x1bb", "a?b"),
    ],
)
def test_the_name_is_the_last_part_of_the_place(asked: str, name: str) -> None:
    assert place_called(asked) == name


def test_reports_name_the_users_own_data() -> None:
    found = compare(ladder().model_copy(update={"data": data().model_copy(update=_HOLIDAY)}), records())
    page, text = to_html(found, None, records()), to_markdown(found)
    assert "<h1>How fast each variant trains cifar (&lt;holiday&gt;) on cpu</h1>" in page
    assert "<title>cifar (&lt;holiday&gt;): how fast each variant trains</title>" in page
    assert text.startswith("## Comparison: cifar (")
    assert ", data from &lt;holiday&gt;, 50,000 training and" in page
    assert "cifar (" not in to_markdown(compare(ladder(), records()))


def test_a_plan_names_the_net_and_the_data(tmp_path: Path) -> None:
    for part in ("train/a", "train/b", "test/a", "test/b"):
        (tmp_path / "holiday" / part).mkdir(parents=True)
        (tmp_path / "holiday" / part / "1.png").touch()
    plan = ["optimize", "cifar", "--device", "cpu", "--dry-run", "--data"]
    said = [CliRunner().invoke(app, [*plan, place]).output for place in ("synthetic", str(tmp_path / "holiday"))]
    assert [one.partition(", preset quick")[0] for one in said] == ["CIFAR-10, ResNet-18", "ResNet-18 on holiday"]
