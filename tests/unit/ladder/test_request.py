"""What a request makes of its presets."""

import pytest

from laptime.catalogue import find_preset, find_workload
from laptime.errors import UsageError
from laptime.ladder.request import check_out, check_variant, claim_out, make_request, make_spec
from laptime.spec import DataSpec
from laptime.variants import resolve

DATA = DataSpec(
    asked="synthetic",
    kind="synthetic",
    digest="0" * 64,
    path="/data",
    classes=("a", "b"),
    train_count=64,
    test_count=20,
)


def profiled(name: str, repeat: int = 0, **asked) -> str:
    return make_spec(make_request(**asked), resolve(name), DATA, repeat).profile


def test_a_preset_for_slow_steps_profiles_the_ends_alone():
    assert not find_preset(find_workload("eurosat"), "quick").profiled_rungs
    assert profiled("cpu-baseline", workload="eurosat") == "full"
    assert profiled("cpu-optimized", workload="eurosat") == "full"
    assert profiled("cpu-optimized", workload="eurosat", profile="simple") == "simple"
    assert profiled("cpu-products", workload="eurosat") == "none"
    assert profiled("cpu-optimized-without-dead-taps", workload="eurosat") == "none"


@pytest.mark.parametrize("asked", [{"workload": "cifar"}, {"workload": "eurosat", "preset": "full"}])
def test_other_presets_profile_each_variant(asked):
    assert profiled("cpu-products", **asked) == "full"
    assert profiled("cpu-products", repeat=1, **asked) == "none"


def test_a_variant_that_is_named_is_profiled():
    assert profiled("cpu-products", workload="eurosat", variants=("cpu-products",)) == "full"


def test_a_detector_without_what_judges_it_is_refused_before_its_data_is_fetched(monkeypatch):
    baseline = resolve("cpu-baseline", workload="detection")
    check_variant(make_request(workload="detection"), baseline)
    monkeypatch.setattr("laptime.devices.find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"pip install 'laptime\[detection\]'"):
        check_variant(make_request(workload="detection"), baseline)
    check_variant(make_request(workload="cifar"), resolve("cpu-baseline"))


@pytest.mark.parametrize("out", ["file", "file/below"])
def test_an_output_that_can_be_no_folder_is_refused_before_anything_is_fetched(out, tmp_path):
    (tmp_path / "file").write_text("")
    check_out(make_request(out=str(tmp_path / "new/ladder")), "ladder.json")
    with pytest.raises(UsageError, match="file is a file: give another"):
        check_out(make_request(out=str(tmp_path / out)), "ladder.json")


def test_of_two_ladders_that_found_an_output_free_the_later_one_is_refused(tmp_path):
    request = make_request(out=str(tmp_path / "new/ladder"))
    check_out(request, "ladder.json")
    check_out(request, "ladder.json")
    claim_out(request, "ladder.json")
    with pytest.raises(UsageError, match=r"holds a ladder\.json already: give another folder or remove it"):
        claim_out(request, "ladder.json")
    claim_out(make_request(), "ladder.json")


def test_an_output_whose_name_no_file_of_json_could_hold_is_refused(tmp_path):
    with pytest.raises(UsageError, match="is no UTF-8, in which paths are kept: give another"):
        check_out(make_request(out=f"{tmp_path}/\udcff"), "ladder.json")


def test_the_home_that_a_shell_leaves_as_it_is_in_an_output(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert make_request(out="~/ladder").out == str(tmp_path / "ladder")
