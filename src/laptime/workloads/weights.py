"""Initial weights from torchvision or from a user's file."""

from __future__ import annotations

import copy
import http.client
import socket
import urllib.error
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import WeightsEnum

from laptime.errors import DataError, UsageError, shorten
from laptime.places import expanded

_PATIENCE_S = 20.0


def take_channels(model: nn.Module, first: str, channels: int) -> None:
    """Replaces a net's first convolution for images of other channels, initialized as torchvision does it."""
    conv = model.get_submodule(first)
    assert isinstance(conv, nn.Conv2d)
    if conv.in_channels == channels:
        return
    wide = nn.Conv2d(channels, conv.out_channels, conv.kernel_size, conv.stride, conv.padding, bias=False)  # type: ignore[arg-type]
    nn.init.kaiming_normal_(wide.weight, mode="fan_out")
    model.set_submodule(first, wide)


def load_weights(model: nn.Module, weights: str, named: Mapping[str, WeightsEnum], ends: tuple[str, str]) -> None:
    """Loads weights into a plain model, in place.

    A first or last layer for other channels or classes keeps its initialization, so that weights that were trained on
    other images serve as a start.

    Args:
        model: the plain architecture.
        weights: `none`, a name of torchvision's (by download) or a file with a state dict.
        named: torchvision's entries by those names.
        ends: names of the first and the last layer.

    Raises:
        UsageError: neither a known name nor a file.
        DataError: the weights can't be downloaded, read or don't fit.
    """
    if weights == "none":
        return
    state = _download(weights, named[weights]) if weights in named else _read(weights, tuple(named))
    own = model.state_dict()
    at_ends = tuple(f"{name}." for name in ends)
    misshapen = [k for k, v in state.items() if k in own and own[k].shape != v.shape]
    fitting = {k: v for k, v in state.items() if k not in misshapen}
    # Modules know their own names of earlier versions, and what they no longer hold.
    try:
        found = copy.deepcopy(model).load_state_dict(fitting, strict=False)
    except RuntimeError as error:  # sparse, complex or quantized tensors, ones without data, an old name's other shape
        raise DataError(
            f"the weights {shorten(weights)!r} are not of plain numbers or of another shape "
            f"({shorten(str(error), 200)}): give a state dict of dense float tensors of the same architecture."
        ) from error
    wrong = [*(k for k in misshapen if not k.startswith(at_ends)), *found.unexpected_keys]
    missing = [k for k in found.missing_keys if k not in misshapen and not k.startswith(at_ends)]
    if wrong or missing:
        raise DataError(
            f"the weights {shorten(weights)!r} don't fit this model ({len(wrong)} tensors of another name or shape, "
            f"{len(missing)} missing, first {shorten((wrong + missing)[0])!r}): give a state dict of the same "
            "architecture."
        )
    model.load_state_dict(fitting, strict=False)


def _download(name: str, entry: WeightsEnum) -> Mapping[str, Tensor]:
    patience = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_PATIENCE_S)  # torch's download has no time-out of its own
    try:
        state: Mapping[str, Tensor] = entry.get_state_dict(progress=False, check_hash=True)
    except (urllib.error.URLError, http.client.HTTPException, OSError, RuntimeError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it holds the connection
        raise DataError(
            f"the weights {name!r} can't be downloaded from {entry.url} ({error}): connect to the internet, give a "
            "file with --weights FILE, or train from scratch with --weights none."
        ) from error
    finally:
        socket.setdefaulttimeout(patience)
    return state


def _read(name: str, others: tuple[str, ...]) -> Mapping[str, Tensor]:
    path = expanded(name)
    if not path.is_file():
        known = " nor ".join(("none", *others))
        raise UsageError(f"--weights {shorten(name)!r} is neither {known} nor a file: give one of these.")
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises half a dozen unrelated types for a broken or unsafe file
        raise DataError(
            f"the weights file {path} can't be read as a plain state dict ({type(error).__name__}): write it with "
            "torch.save(model.state_dict(), FILE)."
        ) from error
    if not isinstance(found, Mapping) or not all(
        isinstance(k, str) and isinstance(v, Tensor) for k, v in found.items()
    ):
        raise DataError(
            f"the weights file {path} holds no state dict: write it with torch.save(model.state_dict(), FILE)."
        )
    return found
