"""Floor, memory and set-up against numbers that can be reckoned by hand."""

import json
from dataclasses import replace

import pytest
import torch
from tests.unit.profiling.profiling_examples import BATCH, CLASSES, SIZE, tiny
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models import efficientnet_b0

from laptime.engine.flops import flops_per_sample
from laptime.engine.setup import describe
from laptime.host import memory as host_memory
from laptime.profiling.closer import Findings, counted_ms
from laptime.profiling.memory import categories, traced_peak_mib
from laptime.profiling.roofline import Work, WorkCounter, floor_ms, step_work, with_floor
from laptime.records import Breakdown, Ceilings, EpochRecord, Machine, ProfileRecord, Quartiles, RunRecord
from laptime.world import World

CEILINGS = Ceilings(gemm_fp32_gflops=1.0, copy_gb_s=1.0)


def test_an_operation_counts_its_arithmetic_and_what_it_moves():
    a, b = torch.empty(2, 3, device="meta"), torch.empty(3, 5, device="meta")
    with WorkCounter(4) as counter:
        ((a @ b).t() + torch.empty(2, device="meta").expand(5, 2)).add_(torch.zeros_like(a)[0, 0])
    product, broadcast, zeros, in_place = counter.done
    assert product == Work(2 * 2 * 3 * 5, 4 * (6 + 15 + 10))
    assert broadcast == Work(0.0, 4 * (10 + 2 + 10))
    assert zeros == Work(0.0, 4 * 6)
    assert in_place == Work(0.0, 4 * (10 + 1 + 10))


@pytest.mark.parametrize(("layer", "groups"), [(nn.Conv2d, 1), (nn.Conv2d, 6), (nn.Conv2d, 2), (nn.ConvTranspose2d, 3)])
def test_a_convolution_of_groups_is_counted_once(layer: type[nn.Module], groups: int):
    net = layer(6, 12, 3, groups=groups, bias=False, device="meta")
    image = torch.empty(2, 6, 8, 8, device="meta", requires_grad=True)
    with WorkCounter(4) as counter:
        made = net(image)
        made.sum().backward()
    places = 8 * 8 if layer is nn.ConvTranspose2d else 6 * 6
    once = 2 * 2 * (6 * 12 // groups) * 9 * places
    # Forward, and the gradients of image and kernel: each takes as many operations.
    assert sum(work.flops for work in counter.done) == 3 * once


def test_a_net_of_depthwise_convolutions_is_counted_once():
    net = efficientnet_b0(num_classes=len(CLASSES))
    with FlopCounterMode(display=False) as counter:
        net.eval()(torch.empty(1, 3, SIZE, SIZE))
    first = 2 * 32 * (SIZE // 2) ** 2 * 3 * 9  # the images need no gradient
    assert flops_per_sample(replace(tiny()[1], model=net.train())) == 3 * counter.get_total_flops() - first


def test_the_floor_takes_the_larger_of_both_for_each_operation():
    work = [Work(3e6, 1e6), Work(1e6, 2e6)]
    assert floor_ms(work, CEILINGS, "fp32") == pytest.approx(3 + 2)
    assert floor_ms(work, Ceilings(gemm_fp32_gflops=1.0), "fp32") is None
    assert floor_ms(work, CEILINGS, "bf16") is None


def test_a_step_s_floor_holds_the_whole_batch_and_the_optimizer():
    parts, recipe = tiny()
    parts.step(parts, next(iter(parts.loader.epoch(0))))
    work = step_work(recipe, parts)
    convolution = 2 * BATCH * 4 * 3 * 9 * SIZE * SIZE
    # Forward, and the gradient of the kernel; the images need none.
    head = 2 * BATCH * 4 * 3
    assert sum(w.flops for w in work) == 2 * convolution + 3 * head
    floats = sum(p.numel() for p in parts.model.parameters())
    tensors = len(list(parts.model.parameters()))
    assert work[-1].bytes == 4 * (3 * floats + 2 * (2 * floats + tensors))


def test_the_floor_is_that_of_the_last_epoch_s_images():
    parts, recipe = tiny()
    growing = replace(recipe, epoch_sizes=((SIZE // 2, SIZE // 2), (SIZE, SIZE)))
    assert step_work(growing, parts) == step_work(recipe, parts)


def test_each_rank_on_a_cpu_has_an_optimizer_of_its_own():
    parts, recipe = tiny()
    one, two = (step_work(replace(recipe, world=World(size=n)), parts) for n in (1, 2))
    assert two[-1].bytes == 2 * one[-1].bytes
    assert two[:-1] == one[:-1]


def test_a_view_that_autograd_does_not_track_moves_nothing():
    with WorkCounter(4) as counter:
        torch.ops.aten._unsafe_view(torch.empty(2, 3, device="meta"), [6])
    assert counter.done == []


def test_a_share_above_one_is_told_and_not_clipped():
    epoch = EpochRecord(index=0, epoch_s=1.0, samples=100)
    profile = ProfileRecord(schedule="0,1,2,1", notes=("first",))
    fields = {"status": "done", "epochs": (epoch,), "machine": Machine(ceilings=CEILINGS), "profile": profile}
    fast = with_floor(RunRecord(**fields, flops_per_sample=2e7), [Work(2e6, 0)], 10.0)
    assert fast.profile.mfu == pytest.approx(2.0)
    assert (fast.profile.floor_ms, fast.profile.floor_share) == (2.0, 0.2)
    assert fast.profile.notes == ("first", "ceiling underestimated")
    slow = with_floor(RunRecord(**fields, flops_per_sample=1e6), None, 10.0)
    assert (slow.profile.mfu, slow.profile.floor_ms, slow.profile.notes) == (pytest.approx(0.1), None, ("first",))


def test_the_traced_peak_is_the_highest_running_sum_on_the_cpu(tmp_path):
    def event(ts, mib, device=0):
        return {"name": "[memory]", "ts": ts, "args": {"Bytes": mib * 2**20, "Device Type": device}}

    path = tmp_path / "trace.json"
    events = [event(3, -2), event(1, 2), event(2, 3), event(4, 1), event(2.5, 90, device=1), {"name": "aten::add"}]
    path.write_bytes(json.dumps({"traceEvents": events}).encode().replace(b"add", b"a\xff"))
    assert traced_peak_mib(path) == 5  # names that are no text do no harm
    path.write_text(json.dumps({"traceEvents": events[-1:]}))
    assert traced_peak_mib(path) is None


def test_activations_are_left_out_where_they_are_not_known():
    parts, _ = tiny()
    batch = (torch.empty(2**18),)  # 1 MiB
    small = categories(parts, None, batch)["gradients"]
    assert "activations" not in categories(parts, None, batch)
    assert "activations" not in categories(parts, 1.0, batch)
    assert categories(parts, 3.0, batch)["activations"] == pytest.approx(2 - small)
    for parameter in parts.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    assert categories(parts, 3.0, batch)["activations"] == 2  # held before the step, so its peak has none of them


def test_a_set_up_is_described_as_it_was_built():
    parts, recipe = tiny()
    found = describe(recipe, parts, {"data", "forward", "read"})
    assert (found.loader, found.workers, found.pinned, found.steps) == ("items", 0, False, 3)
    assert (found.optimizer, found.optimizer_kernel, found.parameter_tensors) == ("Adam", "single", 6)
    assert (found.reads, found.graphed, found.batch_size, found.biased_before_norm) == (True, False, BATCH, 1)
    assert found.train_mib == pytest.approx(10 * SIZE * SIZE * 3 / 2**20)


def test_the_memory_of_a_cpu_is_what_its_control_group_allows(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text(f"{3 * 2**30}\n")
    monkeypatch.setattr(host_memory, "_GROUP", tmp_path)
    parts, recipe = tiny()
    assert describe(recipe, parts, set()).device_memory_mib == 3 * 1024


def test_counted_steps_are_those_of_kept_epochs_with_images_like_the_last():
    def epoch(ms, side, kept=True):
        return EpochRecord(index=0, epoch_s=1, samples=1, step_ms_median=ms, image_side=side, kept=kept)

    assert counted_ms([epoch(1.0, 24), epoch(3.0, 32), epoch(5.0, 32), epoch(90.0, 32, kept=False)]) == 4.0
    assert counted_ms([epoch(7.0, 32, kept=False)]) == 7.0
    assert counted_ms([epoch(None, None)]) is None
    told = Breakdown(steps=1, step_ms=Quartiles.of([4.5]))  # without the first step, as the reports have it
    assert counted_ms([epoch(5.0, 32).model_copy(update={"breakdown": told})]) == 4.5


def test_what_fails_beside_a_run_becomes_a_note_in_its_record():
    found = Findings()
    assert found.tried("no figure", lambda: 1 / 0, 5) == 5
    record = found.added_to(RunRecord(status="done", notes=("own",)))
    assert record.status == "done"
    assert record.notes == ("own", "no figure: ZeroDivisionError: division by zero")
