"""EfficientNet-B5 for any classes and bands; weights of other ends serve as a start."""

import numpy as np
import pytest
import tifffile
import torch
from tests.unit.conftest import make_data, make_spec
from torch import nn

from laptime.artifacts import in_colours
from laptime.catalogue import LARGE_BATCHES, WORKLOADS, batch_of, find_preset, find_workload
from laptime.catalogue.entries import Preset
from laptime.data.decode import read_image
from laptime.engine.build import make_recipe
from laptime.errors import DataError
from laptime.ladder.plan import make_plan, unfit
from laptime.optimizations.dead_taps import crops
from laptime.predict.images import Trained, prepared
from laptime.preflight.probe import places_of
from laptime.records import ProbeRecord
from laptime.spec import OptimizationSpec
from laptime.variants import on_several, resolve
from laptime.workloads.cifar import Cifar
from laptime.workloads.eurosat import Eurosat


def test_any_classes_and_bands(tmp_path):
    net = Eurosat().make_model(10_000, "none", 13)
    assert net.features[0][0].in_channels == 13
    assert net.classifier[1].out_features == 10_000
    path = tmp_path / "weights.pt"
    torch.save(net.state_dict(), path)
    other = Eurosat().make_model(4, str(path))
    assert torch.equal(other.features[1][0].block[0][0].weight, net.features[1][0].block[0][0].weight)
    assert other.features[0][0].in_channels == 3
    torch.save(Cifar().make_model(10, "none").state_dict(), path)
    with pytest.raises(DataError, match="don't fit this model"):
        Eurosat().make_model(10, str(path))


def test_cifars_net_takes_bands_too():
    assert Cifar().make_model(3, "none", 5)(torch.zeros(2, 5, 32, 32)).shape == (2, 3)


def test_dead_taps_of_the_last_maps():
    chosen = (OptimizationSpec(name="dead-taps"),)
    spec = make_spec(workload="eurosat", optimizations=chosen)
    model = make_recipe(spec, make_data(train=2, size=64), chosen).model
    assert len(crops(model)) == 8  # all of 5x5 on 2x2 maps
    assert {tuple(weight.shape[2:]) for weight, _ in crops(model).values()} == {(3, 3)}


def test_a_rung_that_takes_a_smaller_batch_than_the_baselines_is_left_out_with_the_reason():
    entry = find_workload("eurosat")
    assert unfit(find_workload("cifar"), "cpu").keys() == {"decoded", "whole-batch"}
    assert unfit(entry, "cuda").keys() == {"decoded", "whole-batch"}
    plan = make_plan("cpu", find_preset(entry, "quick"), None, ProbeRecord(refusals=unfit(entry, "cpu")))
    left = {out.variant: out.reason for out in plan.left_out}
    assert "batch of 1024 is not below the 512" in left["cpu-large-batch"]
    assert "cpu-decoded" not in left  # for users' own folders: told to who names it
    plan = make_plan("cpu", find_preset(entry, "quick"), ["cpu-decoded"], plan.probe)
    assert [out.variant for out in plan.left_out] == ["cpu-decoded"]
    assert entry.batch_size < LARGE_BATCHES["cuda"]


@pytest.mark.parametrize("name", ["dp", "ddp-plain", "ddp-tuned", "ddp-graphed"])
def test_several_gpus_train_with_the_batch_of_the_tutorials(name):
    def batch(variant):
        return batch_of(variant.optimizations, "cuda")

    assert batch(resolve(name, workload="eurosat")) == 2048
    kept = resolve("cuda-baseline+bf16")  # a ladder that was better off with the baseline's own batch
    assert batch(on_several(kept, name, workload="eurosat")) == 2048
    assert batch(on_several(kept, name, ("large-batch:size=512",), "eurosat")) == 512
    assert batch(on_several(kept, name, workload="cifar")) is None
    assert batch(on_several(resolve("cpu-baseline"), "cpu-ddp-plain", workload="eurosat")) is None


def test_probes_take_a_batch_of_seconds():
    assert places_of("eurosat", "cpu", "bf16") == [("bf16", 32)]
    assert places_of("cifar", "cpu", "bf16") == [("bf16", 32), ("bf16@512", 512)]


def test_every_workload_has_both_presets():
    assert all({p.name for p in w.presets} == {"quick", "full"} for w in WORKLOADS)
    assert all(isinstance(p, Preset) for w in WORKLOADS for p in w.presets)


def test_bands_are_shown_in_colours():
    image = torch.randint(0, 4001, (4, 4, 5), dtype=torch.int16).numpy()
    assert in_colours(image, 4000).shape == (4, 4, 3)
    assert in_colours(image[:, :, :2], 4000).max() <= 255
    grey = in_colours(image[:, :, :1], 4000)
    assert (grey[:, :, 0] == grey[:, :, 2]).all()
    bytes_ = torch.randint(0, 256, (4, 4, 3), dtype=torch.uint8).numpy()
    assert (in_colours(bytes_, 255) == bytes_).all()


def test_a_prediction_takes_the_bands_that_were_trained_on(tmp_path):
    values = np.random.default_rng(0).integers(0, 6000, (64, 64, 13), dtype=np.uint16)
    tifffile.imwrite(tmp_path / "tile.tif", values, photometric="minisblack", planarconfig="contig")
    trained = Trained("eurosat", nn.Identity(), ("a",), 64, (0.2, 0.3), (0.1, 0.2), torch.device("cpu"), 4000, (8, 4))
    pixels = prepared(read_image(tmp_path / "tile.tif", trained.bands), trained)
    shares = torch.from_numpy(np.minimum(values[:, :, [7, 3]], 4000).astype(np.float32)) / 4000
    expected = (shares - torch.tensor(trained.mean)) / torch.tensor(trained.std)
    torch.testing.assert_close(pixels, expected.permute(2, 0, 1)[None])
