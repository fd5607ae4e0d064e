"""What a ladder's end tells of quality in MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.unit.compare.compare_examples import ladder, records

from laptime.compare.comparison import compare
from laptime.ladder.ending import tell_compared
from laptime.tracking import Journal
from laptime.tracking.publish import variant_key


class Tags(Journal):
    """A journal that keeps beside it which tags it was told."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.told: dict[str, Mapping[str, str]] = {}

    def set_tags(self, key: str, tags: Mapping[str, str]) -> None:
        super().set_tags(key, tags)
        self.told[key] = tags


def test_each_variant_and_the_ladder_get_the_verdict_on_quality(tmp_path: Path) -> None:
    ended, found = ladder(), compare(ladder(), records())
    with Tags(tmp_path / "a.jsonl") as journal:
        tell_compared(journal, ended, found)
    fastest = found.headline("fastest")
    assert fastest is not None
    ran = {row.variant: row.verdict for row in found.rows if row.n and row.variant != found.baseline}
    expected = {variant_key(ended, name): {"laptime.quality": verdict} for name, verdict in ran.items()}
    assert journal.told == {**expected, ended.id: {"laptime.quality": fastest.verdict}}
    assert {"kept", "worse"} & set(ran.values())
