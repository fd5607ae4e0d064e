"""What the reports say once, of all variants, and only where it is so."""

from __future__ import annotations

from compare_examples import ladder, record, records
from inside_examples import inside

from laptime.compare import compare, compare_records
from laptime.compare.html import to_html
from laptime.compare.markdown import to_markdown
from laptime.compare.plots import speedup_svg


def test_a_loss_is_explained_in_percent_and_no_interval_is_named_where_there_is_none() -> None:
    single = [run for run in records() if run.spec and run.spec.repeat == 0]
    found = compare(ladder().model_copy(update={"quality": "loss", "repeats": 1}), single)
    page, text = to_html(found, None, single), to_markdown(found)
    assert "more than 1 % higher" in page
    assert "percentage point" not in page + text
    assert "95 % interval" not in speedup_svg(found)
    assert page.count("Curves: ") == 2  # the loss is drawn once
    assert "95 % interval" in speedup_svg(compare(ladder(), records()))


def test_a_variant_that_is_the_fastest_of_several_kinds_is_described_once() -> None:
    runs = [record("cpu-baseline", 85, 0.66, r) for r in range(3)] + [record("cpu-x", 40, 0.66, r) for r in range(3)]
    fastest, again, _ = compare_records(runs).headlines
    assert fastest.variant == again.variant == "cpu-x"
    assert again.sentence == "Fastest without dead taps: cpu-x too."
    assert again.speedup == fastest.speedup


def test_what_the_baseline_notes_is_said_of_all_variants() -> None:
    why = "a batch of 1024 needs about 30.0 GiB and the device has 24.0: halved to 512"
    fewer = "2 loader workers instead of 20: 1.0 GiB of shared memory hold no more"
    noted = [
        run.model_copy(update={"notes": (why, fewer)}) if run.spec and run.spec.variant == "cpu-baseline" else run
        for run in records()
    ]
    comparison = compare(ladder(), noted)
    for text in (to_html(comparison, ladder(), inside(noted)), to_markdown(comparison)):
        assert f"All variants: {why}." in text
        assert f"All variants: {fewer}." in text
