"""Definitions of laptime's own modules as text, so that what is printed is what runs; nothing is imported for it."""

from __future__ import annotations

import ast
import re
from importlib import resources

# What speaks to laptime's own tools, not to a reader.
_FOR_TOOLS = re.compile(r"\s+# (noqa|type: ignore)\b.*$", re.MULTILINE)


def source(module: str, *names: str) -> str:
    """The text of some top-level definitions of a module, with the comments above them.

    Args:
        module: path in the package, such as `optimizations/live_taps.py`.
        names: functions, classes and constants, in the order in which they are printed.

    Raises:
        KeyError: the module defines no such name.
    """
    text = (resources.files("laptime") / module).read_text(encoding="utf-8")
    lines, found = text.splitlines(), {}
    for node in ast.parse(text).body:
        for name in _names(node):
            found[name] = node
    # Several names may be of one line.
    blocks = [(node, _block(node, lines)) for node in dict.fromkeys(found[name] for name in names)]
    printed = ""
    for place, (node, block) in enumerate(blocks):
        alone = isinstance(node, ast.Assign) and place and isinstance(blocks[place - 1][0], ast.Assign)
        printed += ("\n" if alone else "\n\n\n") + block if place else block
    return _FOR_TOOLS.sub("", printed)


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return []
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]


def _block(node: ast.stmt, lines: list[str]) -> str:
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(d.lineno for d in decorators)]) - 1
    while first and lines[first - 1].startswith("#"):
        first -= 1
    return "\n".join(lines[first : node.end_lineno])


# Where the names come from that a script may use; a script imports those that it does use.
_IMPORTS = (
    ("import argparse", "argparse"),
    ("import contextlib", "contextlib"),
    ("import copy", "copy"),
    ("import csv", "csv"),
    ("import ctypes", "ctypes"),
    ("import gc", "gc"),
    ("import importlib.util", "importlib"),
    ("import inspect", "inspect"),
    ("import io", "io"),
    ("import json", "json"),
    ("import math", "math"),
    ("import os", "os"),
    ("import random", "random"),
    ("import re", "re"),
    ("import stat", "stat"),
    ("import sys", "sys"),
    ("import time", "time"),
    ("import warnings", "warnings"),
    ("from collections import {}", "Counter", "OrderedDict", "defaultdict", "deque"),
    ("from collections.abc import {}", "Callable", "Iterable", "Iterator", "Mapping", "Sequence"),
    ("from concurrent.futures import {}", "ThreadPoolExecutor"),
    ("from contextlib import {}", "AbstractContextManager", "ExitStack", "contextmanager", "nullcontext"),
    ("from dataclasses import {}", "dataclass", "fields", "is_dataclass"),
    ("from enum import {}", "Enum"),
    ("from functools import {}", "cache", "cached_property", "partial"),
    ("from pathlib import {}", "Path"),
    ("from types import {}", "CellType", "FunctionType", "MethodType", "ModuleType", "SimpleNamespace"),
    ("from typing import {}", "Any", "NamedTuple", "TypeVar"),
    ("from weakref import {}", "WeakKeyDictionary", "ref"),
    ("",),
    ("import numpy as np", "np"),
    ("import torch", "torch"),
    ("import torch.distributed as dist", "dist"),
    ("from numpy.typing import {}", "NDArray"),
    ("from PIL import {}", "Image"),
    ("from PIL.TiffImagePlugin import {}", "TiffImageFile"),
    ("from torch import {}", "Tensor", "UntypedStorage", "nn"),
    ("from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import {}", "bf16_compress_hook"),
    ("from torch.nn import functional as F", "F"),
    ("from torch.nn.modules.batchnorm import {}", "_BatchNorm"),
    ("from torch.nn.parallel import {}", "DistributedDataParallel"),
    ("from torch.nn.utils.rnn import {}", "PackedSequence"),
    ("from torch.optim import {}", "Optimizer"),
    ("from torch.optim.lr_scheduler import {}", "LRScheduler", "LambdaLR", "OneCycleLR"),
    ("from torch.optim.swa_utils import {}", "get_ema_multi_avg_fn"),
    ("from torch.overrides import {}", "TorchFunctionMode"),
    ("from torch.utils._python_dispatch import {}", "TorchDispatchMode"),
    (
        "from torch.utils.data import {}",
        "BatchSampler",
        "ConcatDataset",
        "DataLoader",
        "Dataset",
        "Sampler",
        "Subset",
        "WeightedRandomSampler",
        "default_collate",
        "get_worker_info",
    ),
    ("from torchvision import {}", "transforms"),
    ("from torchvision.models import {}", "efficientnet_b5", "resnet18", "resnet50"),
    ("from torchvision.models.detection import {}", "FasterRCNN"),
    ("from torchvision.models.detection.backbone_utils import {}", "resnet_fpn_backbone"),
    ("from torchvision.models.detection.image_list import {}", "ImageList"),
    ("from torchvision.models.detection.transform import {}", "GeneralizedRCNNTransform"),
    ("from torchvision.ops import {}", "FrozenBatchNorm2d", "MultiScaleRoIAlign"),
    ("from torchvision.ops.poolers import {}", "_setup_scales"),
)


def imports_of(body: str) -> str:
    """The import lines for the names that a script's body uses, in isort's order."""
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    lines = []
    for line, *names in _IMPORTS:
        wanted = [name for name in names if name in used]
        if wanted or not line:
            lines.append(line.format(", ".join(wanted)))
    return "\n".join(lines)
