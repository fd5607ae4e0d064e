"""Waits of the host for the GPU, counted by torch's own debug mode."""

import pytest
import torch

from laptime.measure.syncs import count_syncs


@pytest.mark.gpu
def test_reads_are_counted_and_the_mode_is_put_back():
    values = torch.ones(4, device="cuda")
    assert count_syncs(lambda: (values.sum().item(), values.cpu())) >= 2
    assert count_syncs(lambda: values + values) == 0
    assert torch.cuda.get_sync_debug_mode() == 0
