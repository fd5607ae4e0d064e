"""What this machine is: the fields that decide speed, digested into a fingerprint that holds no host name."""

from __future__ import annotations

import os
import platform
from functools import lru_cache

import torch
import torchvision

from laptime.devices import fingerprinted, host
from laptime.host.processes import allowed_cores
from laptime.records import Ceilings, Machine


@lru_cache(maxsize=1)
def machine() -> Machine:
    """Describes this machine; the load is that of the last minute, None where it is of more cores than may be used."""
    found = host().model_copy(
        update={
            "gpus": tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "torchvision": torchvision.__version__,
            "cuda": torch.version.cuda if torch.cuda.is_available() else None,
        }
    )
    return fingerprinted(found).model_copy(update={"load_before": load_now(), "image": os.environ.get("LAPTIME_IMAGE")})


def load_now() -> float | None:
    """The load of the last minute; None where it is of more cores than this process may use."""
    comparable = hasattr(os, "getloadavg") and allowed_cores() == os.cpu_count()
    return os.getloadavg()[0] if comparable else None


def with_ceilings(ceilings: Ceilings) -> Machine:
    """This machine with measured ceilings."""
    return machine().model_copy(update={"ceilings": ceilings})
