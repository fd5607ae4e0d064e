"""The pieces of examples/speedrun.py do what their names say, and laptime trains, judges and resumes it."""

import sys
from pathlib import Path

import pytest
import torch
from tests.breaking_off import assert_alike, broken_off
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses

from laptime import worker
from laptime.data.own.opened import open_own
from laptime.preflight.inspecting import inspect
from laptime.spec import RunSpec
from laptime.variants import resolve

EXAMPLE = Path(__file__).parents[3] / "examples" / "speedrun.py"
SMALL = f"{EXAMPLE}:Small"


@pytest.fixture(scope="module")
def example():
    before = list(sys.path), list(sys.argv)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SPEEDRUN_DATA", raising=False)
        open_own(EXAMPLE, "Small")
        yield sys.modules["speedrun"]
    sys.path[:], sys.argv[:] = before
    del sys.modules["speedrun"]


def covariance(maps):
    """Of channels [C, C], over images and places."""
    rows = maps.movedim(1, -1).flatten(0, -2)
    return (rows - rows.mean(0)).T @ (rows - rows.mean(0)) / len(rows)


def test_whitened_patches_are_uncorrelated(example):
    coarse = torch.randn(200, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    images = F.interpolate(coarse, scale_factor=2, mode="bilinear") + 0.3 * coarse.repeat(1, 1, 2, 2)
    before = covariance(F.unfold(images, 2))
    assert (before - torch.eye(12)).abs().max() > 0.4
    convolution = example.whitening(images)
    maps = convolution(images).detach()
    assert torch.allclose(covariance(maps[:, :12]), torch.eye(12), atol=0.05)
    assert torch.allclose(maps[:, :12], -maps[:, 12:], atol=1e-5)
    assert not convolution.weight.requires_grad
    assert convolution.bias.requires_grad


def test_an_update_is_nearly_orthogonal_and_alike_in_a_batch(example):
    found = example.orthogonal(matrices := torch.randn(4, 24, 216, generator=torch.Generator().manual_seed(1)))
    assert torch.linalg.svdvals(found).min() > 0.6
    assert torch.linalg.svdvals(found).max() < 1.3
    assert torch.linalg.svdvals(matrices).max() > 15
    alone = torch.cat([example.orthogonal(m[None]) for m in matrices])
    torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(example.orthogonal(matrices.transpose(1, 2)), found.transpose(1, 2))
    banks = [torch.randn(8, 4, 3, 3), torch.randn(6, 2, 3, 3), torch.randn(8, 4, 3, 3)]
    for bank, made in zip(banks, example.orthogonalized(banks), strict=True):
        torch.testing.assert_close(made.flatten(1), example.orthogonal(bank.flatten(1)[None])[0])


def test_filters_move_as_by_torch_s_own_muon(example):
    """Which takes one matrix and computes in bfloat16; the length of a gradient makes no difference to either."""
    generator = torch.Generator().manual_seed(2)
    start = torch.randn(8, 4, 3, 3, generator=generator)
    start *= 8**0.5 / start.norm()
    filters, matrix = nn.Parameter(start.clone()), nn.Parameter(start.flatten(1))
    mine = example.Muon([{"params": [filters], "momentum": 0.6, "orthogonal": True}], lr=0.1)
    theirs = torch.optim.Muon([matrix], lr=0.1, momentum=0.6, weight_decay=0.0)
    for _ in range(3):
        before = filters.detach() * 8**0.5 / filters.detach().norm(), matrix.detach().clone()
        matrix.grad = torch.randn(8, 36, generator=generator)
        filters.grad = 5 * matrix.grad.view_as(filters)
        mine.step()
        theirs.step()
        moved, expected = (filters - before[0]).flatten(1), matrix - before[1]
        assert (moved - expected).norm() < 0.05 * expected.norm()


def test_the_rest_moves_as_by_sgd_and_a_state_goes_on_where_it_was(example):
    def steps(optimizer, parameter, gradients):
        for gradient in gradients:
            parameter.grad = gradient
            optimizer.step()
        return parameter.detach()

    gradients = torch.randn(4, 5, generator=torch.Generator().manual_seed(3))
    ours, sgd, later = (nn.Parameter(torch.ones(5)) for _ in range(3))
    whole = steps(example.Muon([ours], lr=0.1), ours, gradients)
    expected = steps(torch.optim.SGD([sgd], lr=0.1, momentum=0.85, nesterov=True), sgd, gradients)
    torch.testing.assert_close(whole, expected)
    begun, resumed = (example.Muon([later], lr=0.1) for _ in range(2))
    steps(begun, later, gradients[:2])
    resumed.load_state_dict(begun.state_dict())
    assert torch.equal(steps(resumed, later, gradients[2:]), whole)


def test_images_move_with_reflected_borders(example):
    images = torch.randn(3, 3, 7, 9)
    down, right, mirror = torch.tensor([2, -1, 0]), torch.tensor([-2, 0, 1]), torch.tensor([0, 1, 1])
    found = example.moved(images, down, right, mirror)
    for i in range(3):
        image = images[i : i + 1].flip(-1) if mirror[i] else images[i : i + 1]
        padded = F.pad(image, (2, 2, 2, 2), mode="reflect")
        top, left = 2 - int(down[i]), 2 - int(right[i])
        assert torch.equal(found[i], padded[0, :, top : top + 7, left : left + 9])


def test_each_image_is_mirrored_in_every_second_epoch(example):
    net = example.Net(torch.randn(400, 3, 32, 32), (24, 24), 2)
    halves = torch.cat([torch.zeros(400, 3, 32, 16), torch.ones(400, 3, 32, 16)], dim=3)
    numbers, seen = torch.randperm(400), []
    for _ in range(4):
        varied = net.varied(halves[: len(numbers)], numbers)
        seen.append(varied[:, 0, 0, 0] > varied[:, 0, 0, -1])
        assert set(varied.mean(dim=(1, 2, 3)).mul(32).round().int().tolist()) == {14, 15, 16, 17, 18}
    assert torch.equal(seen[0], seen[2])
    assert torch.equal(seen[1], ~seen[0])
    assert torch.equal(seen[3], seen[1])
    assert 0.4 < seen[0].float().mean() < 0.6
    assert net.visits.eq(4).all()
    before = net.eval()(halves[:4], numbers[:4])
    assert torch.equal(net(halves[:4]), before)
    assert net.visits.eq(4).all()


class Judge(nn.Module):
    """Certain of bright images; of dark ones it takes to class 1 only what is brighter at the right."""

    def __init__(self):
        super().__init__()
        self.looks = []

    def forward(self, images):
        self.looks.append(images.mean(dim=(1, 2, 3)))
        sides = images[:, 0, 0, -1] - images[:, 0, 0, 0]
        return torch.stack([0.01 + 20 * (images.mean(dim=(1, 2, 3)) > 0), 0.1 * sides], dim=1)


def test_only_uncertain_images_are_looked_at_again(example):
    images = torch.cat([torch.ones(5, 3, 8, 8), -torch.ones(3, 3, 8, 8)])
    images[5:, :, :, -1] = -0.5  # to the mirror image this is the left side, so that the mean of both is level
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 0])
    batches = [(images[i : i + 4], labels[i : i + 4], torch.arange(4)) for i in (0, 4)]
    workload, judge = example.Small(), Judge()
    workload.margin = 0.0
    plain = workload.evaluate(judge, iter(batches))
    assert [len(look) for look in judge.looks] == [4, 4]
    assert plain.item() == pytest.approx(6 / 8)
    workload.margin = 0.5
    judge.looks.clear()
    twice = workload.evaluate(judge, iter(batches))
    assert [len(look) for look in judge.looks] == [4, 4, *[3] * 6]
    assert all(look.max() < 0 for look in judge.looks[2:])
    assert twice.item() == pytest.approx(5 / 8)


def spec_of(**changes):
    data = inspect(SMALL)
    fields = {"batch_size": 32, "learning_rate": data.own.learning_rate, "limit_train": 128, "limit_test": 40}
    return RunSpec(workload=data.own.name, variant="tried", data=data, **fields, profile="none", **changes)


def test_it_is_judged_by_its_evaluation_whose_time_is_noted(example, tmp_path):
    chosen = resolve("cpu-baseline+resident+channels-last").optimizations
    record = worker.run(spec_of(epochs=3, optimizations=chosen), tmp_path / "run")
    assert record.status == "done", record.error
    assert record.check.passed, record.check
    losses = [e.train_loss for e in record.epochs]
    assert losses[-1] < losses[0]
    assert all(0 <= e.test_score <= 1 and e.evaluate_s > 0 for e in record.epochs)


def test_a_resumed_run_equals_the_uninterrupted_one(example, tmp_path):
    spec = spec_of(epochs=3, warmup_epochs=1, warmup_steps=2, check=False, save_model=True)
    whole = worker.run(spec, tmp_path / "whole")
    kept = spec.model_copy(update={"checkpoints": str(tmp_path / "kept")})
    broken_off(kept, tmp_path / "run", after=1)
    resumed = worker.run(kept, tmp_path / "run")
    assert resumed.status == "done", resumed.error
    assert resumed.restarts == 1
    assert [e.test_score for e in resumed.epochs] == [e.test_score for e in whole.epochs]
    assert_alike(resumed, whole, (tmp_path / "whole", tmp_path / "run"))
