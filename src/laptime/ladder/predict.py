"""Predictions of a run's model, by a child process: torch stays out of whoever asks."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from laptime.data.listing import IMAGE_SUFFIXES
from laptime.errors import RunError, UsageError, answered, shorten, unknown
from laptime.host.processes import child_command, child_environment, death
from laptime.host.scratch import scratch
from laptime.places import Places, expanded, is_text
from laptime.records import Predictions, Refused, write_json
from laptime.tracking.logged import preferred, read_comparison
from laptime.tracking.publish import run_folder

_DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class How:
    """How images are predicted.

    Attributes:
        device: auto, cpu or cuda.
        batch: images that go through the model at once.
        score: that a detector's boxes have at least.
        draw: a folder for the images with these boxes on them; empty for none.
    """

    device: str = "auto"
    batch: int = 64
    score: float = 0.5
    draw: str = ""


def predict(run: str, images: Sequence[str], places: Places, how: How = How()) -> Predictions:
    """What a run's model says of images.

    Args:
        run: a run folder, a ladder's folder (its fastest variant), or the id of an MLflow run of either kind.
        images: image files and folders of them.
        places: where the tracking store is.
        how: device, batch and what of a detector's boxes is told.

    Raises:
        UsageError: the run, or how it is asked, makes no sense, or there is no image at all.
        LaptimeError: the model can't be had; see `laptime.predict.images`.
    """
    if how.device not in _DEVICES:
        raise unknown("device", how.device, _DEVICES)
    if how.batch < 1:
        raise UsageError(f"--batch {how.batch} is no number of images: give 1 or more.")
    if not 0 <= how.score <= 1:
        raise UsageError(f"--score {how.score:g} is no score: give 0 to 1.")
    how = replace(how, draw=_for_drawings(how.draw))
    model = find_run(run)
    files, refused = find_images(images)
    if not files:
        why = f": {refused[0].reason}" if refused else "."
        raise UsageError(f"there is no image to predict{why}")
    asked = {**model, "files": files, **asdict(how)}
    found = _ask(asked, places.mlflow_uri if "run_id" in model else None)
    return found.model_copy(update={"refused": (*refused, *found.refused)})


def _for_drawings(draw: str) -> str:
    """The folder for drawings, which is not there yet or empty, so that nothing in it is overwritten."""
    if not draw:
        return ""
    folder = expanded(draw)
    try:
        taken = folder.is_dir() and any(folder.iterdir())
    except OSError as error:
        raise UsageError(f"--draw {shorten(draw)} can't be read ({error.strerror}): give another folder.") from error
    if taken or (folder.exists() and not folder.is_dir()):
        what = "holds files, which are left as they are" if taken else "is no folder"
        raise UsageError(f"--draw {shorten(draw)} {what}: give a new or an empty folder.")
    return str(folder)


def find_run(run: str) -> dict[str, str]:
    """Where a run's model is: `folder` or `run_id`.

    Raises:
        UsageError: it is neither a folder with a model nor an id.
    """
    path = Path(run)
    if path.is_dir():
        return {"folder": str(_with_model(path).resolve())}
    if re.fullmatch(r"[0-9a-f]{32}", run) and not path.exists():
        return {"run_id": run}
    raise UsageError(
        f"{shorten(run)!r} is neither a run's folder nor an MLflow run id: give a folder with model.pt and spec.json, "
        "a ladder's folder, or the 32 digits of a run."
    )


def _with_model(folder: Path) -> Path:
    candidates = [folder]
    compared = (folder / "comparison.json").is_file()
    if compared:
        names = preferred(read_comparison(folder / "comparison.json"))
        candidates += [run_folder(folder, name, 0) for name in names]
    for candidate in candidates:
        if (candidate / "model.pt").is_file() and (candidate / "spec.json").is_file():
            return candidate
    inside = sorted(path.parent.name for path in folder.glob("*/model.pt"))
    if inside and not compared:  # nothing says which is the fastest
        raise UsageError(
            f"{shorten(str(folder))} has no comparison yet, as of a ladder that was broken off: give the folder of one "
            f"of its runs, such as {inside[0]}, or go on with it first (--resume)."
        )
    raise UsageError(
        f"{shorten(str(folder))} holds no model.pt with its spec.json: give the folder of a run that saved its model "
        "(laptime run and the first round of laptime optimize do)."
    )


def find_images(asked: Sequence[str]) -> tuple[list[str], list[Refused]]:
    """The files to read, folders in order of their names; what can't be an image is refused with the reason.

    Only regular files are opened: a pipe or a device would be read for ever.
    """
    files: list[str] = []
    refused: list[Refused] = []
    for name in asked:
        path = Path(name)
        if path.is_dir():
            inside = _images_below(path)
            files += inside
            reason = "" if inside else f"the folder {name} holds no image: give one with jpeg or png files."
        elif path.is_file():
            files.append(name)
            reason = ""
        else:
            what = "is no file" if path.exists() else "does not exist"
            reason = f"the image {name} {what}: give image files, or folders of them."
        if reason:
            refused.append(Refused(file=name, reason=reason))
    odd = [Refused(file=ascii(n), reason="its name is not valid UTF-8: rename it.") for n in files if not is_text(n)]
    return [name for name in files if is_text(name)], refused + odd


def _images_below(folder: Path) -> list[str]:
    found: list[str] = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        paths = [Path(root, n) for n in sorted(names) if not n.startswith(".")]
        found += [str(p) for p in paths if p.suffix[1:].lower() in IMAGE_SUFFIXES and p.is_file()]
    return found


def _ask(request: dict[str, Any], uri: str | None) -> Predictions:
    with scratch("predict") as folder:
        asked, answer = folder / "request.json", folder / "answer.json"
        write_json(asked, request)
        environment = child_environment() | ({} if uri is None else {"MLFLOW_TRACKING_URI": uri})
        command = child_command("laptime.predict.images", str(asked), str(answer))
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if not answer.is_file():
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise RunError(f"the process that predicts {death(done.returncode)}: {shorten(last, 300)}.")
        return _result(json.loads(answer.read_text(encoding="utf-8")))


def _result(fields: dict[str, Any]) -> Predictions:
    if "error" not in fields:
        return Predictions.model_validate(fields)
    raise answered(fields)
