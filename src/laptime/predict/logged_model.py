"""Makes trained models logged models of their MLflow runs: `python -m laptime.predict.logged_model REQUEST.json`.

A process for some models of a ladder, started by `laptime.tracking`, which never imports torch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from laptime.catalogue import find_workload
from laptime.data.meta import read_meta
from laptime.errors import DataError, LaptimeError, RefusedError, TrackingError
from laptime.host.processes import leave
from laptime.records import write_json
from laptime.spec import RunSpec, read_spec
from laptime.tracking.mlflow import log_pytorch_model
from laptime.workloads import find


def main(arguments: list[str]) -> int:
    """Logs the models of a request and writes an answer: why not, by key, for those that can't be logged."""
    request = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    refused: dict[str, str] = {}
    for entry in request["models"]:
        try:
            log_model(Path(entry["folder"]), entry["run_id"])
        except RefusedError as error:
            refused[entry["key"]] = error.reason
        except TrackingError:
            raise
        except LaptimeError as error:
            refused[entry["key"]] = str(error)
    write_json(Path(request["answer"]), refused)
    return 0


def log_model(folder: Path, run_id: str) -> None:
    """Logs the model of one run's folder.

    Args:
        folder: holds `spec.json` and `model.pt`, a state dict of the workload's plain architecture.
        run_id: MLflow's id; the store is MLFLOW_TRACKING_URI.

    Raises:
        DataError: the files can't be read or don't fit.
    """
    spec = read_spec(folder / "spec.json")
    model = load_model(folder / "model.pt", spec)
    metadata = describe(spec)
    if "mean" not in metadata and not find_workload(spec.workload).boxes:
        raise DataError(f"the data in {spec.data.path}, whose mean its inputs need, is gone: bring it back, then sync.")
    size, channels = metadata["image_size"], len(metadata.get("mean", "RGB"))
    log_pytorch_model(model, run_id, np.zeros((2, channels, *size), dtype=np.float32), metadata)


def load_model(path: Path, spec: RunSpec) -> nn.Module:
    """Loads a trained model into the plain architecture, in evaluation mode on the CPU.

    Raises:
        DataError: the file can't be read, or is of another architecture.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        # The first convolution tells the channels, whatever has become of the data.
        channels = next((v.shape[1] for v in state.values() if v.dim() == 4), 3)
        model = find(spec.workload).make_model(len(spec.data.classes), "none", channels)
        model.load_state_dict(state)
    except Exception as error:  # torch.load raises half a dozen unrelated types for a broken or unsafe file
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} holds no state dict of {spec.workload}'s model ({reason}): train it again.") from error
    return model.float().eval()


def describe(spec: RunSpec) -> dict[str, Any]:
    """What a prediction needs to know: classes, height and width, and how images become inputs.

    Mean and deviation stand in the data store; where it has been deleted meanwhile, they are left out.
    """
    known: dict[str, Any] = {
        "workload": spec.workload,
        "variant": spec.variant,
        "classes": list(spec.data.classes),
        "image_size": [find_workload(spec.workload).image_size] * 2,
    }
    try:
        meta = read_meta(Path(spec.data.path))
    except DataError:
        return known
    return known | {
        "mean": list(meta.mean),
        "std": list(meta.std),
        "scale": meta.scale,
        "bands": list(meta.bands),
        "image_size": list(meta.files["train_images"].shape[1:3]),
    }


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except LaptimeError as error:
        sys.stderr.write(f"{error}\n")
        code = 1
    leave(code)
