"""Why torch has no CUDA is said where it was asked for: a driver may answer all the same."""

import pytest
import torch

from laptime.engine.build import find_device
from laptime.errors import UsageError

OLD = "The NVIDIA driver on your system is too old (found version 12020). Please update your GPU driver by downloading"


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device")
def test_torchs_own_reason_is_told():
    with pytest.raises(UsageError, match=r"device here \((Found no NVIDIA|Torch not compiled).*: give --device cpu"):
        find_device("cuda")


def test_of_an_old_driver_the_first_sentence_is_told(monkeypatch):
    def init():
        raise RuntimeError(OLD)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    with pytest.raises(UsageError) as caught:
        find_device("cuda")
    assert str(caught.value) == (
        "device cuda was asked for, but torch finds no CUDA device here (The NVIDIA driver on your system is too old "
        "(found version 12020)): give --device cpu, or install a torch and a driver that fit together."
    )
