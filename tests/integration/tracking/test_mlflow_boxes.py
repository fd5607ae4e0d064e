"""A detector that was trained: what `laptime predict` finds, by its run's folder and by its run in MLflow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from mlflow_helpers import quiet
from PIL import Image
from torchvision.transforms.functional import to_tensor
from tracking_samples import a_ladder, write_run

from laptime import worker
from laptime.data.fetch import fetch
from laptime.ladder.predict import How, predict
from laptime.places import Places
from laptime.records import Rung, RunRecord
from laptime.spec import DataSpec, OptimizationSpec, RunSpec
from laptime.tracking import Journal
from laptime.tracking.journal import read_state
from laptime.tracking.publish import ladder_finished, ladder_started, run_folder, variant_key, variant_recorded
from laptime.tracking.sync import sync
from laptime.workloads.detection import Detection, resize_to

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.slow,
]
SIZES, SIDE = ((60, 90), (100, 60)), 64


def photographs(root: Path) -> list[str]:
    root.mkdir()
    lines = ["filename,class,xmin,ymin,xmax,ymax"]
    for number in range(4):
        pixels = np.random.default_rng(number).integers(0, 90, (*SIZES[number % 2], 3), dtype=np.uint8)
        pixels[20:50, 10:40] = 200
        Image.fromarray(pixels).save(root / f"{number}.png")
        lines.append(f"{number}.png,{'dark' if number < 2 else 'bright'},10,20,40,50")
    (root / "boxes.csv").write_text("\n".join(lines) + "\n")
    return [str(root / f"{number}.png") for number in range(2)]


def train(folder: Path, data: DataSpec) -> tuple[Path, RunRecord]:
    """One epoch, and of the last layer a bias with which it is sure of all that it is shown."""
    spec = RunSpec(
        workload="detection",
        variant="cpu-baseline",
        optimizations=(OptimizationSpec(name="workers", options={"count": 0}),),
        data=data,
        batch_size=1,
        learning_rate=1.25e-3,
        epochs=1,
        warmup_epochs=0,
        check=False,
        profile="none",
        save_model=True,
    )
    record = worker.run(spec, run_folder(folder, spec.variant, 0))
    assert record.status == "done", record.error
    run = write_run(folder, record)
    state = torch.load(run / "model.pt", weights_only=True)
    state["roi_heads.box_predictor.cls_score.bias"] = torch.tensor([-9.0, -9.0, 9.0])
    torch.save(state, run / "model.pt")
    return run, record


def expected(run: Path, image: str) -> list[tuple[float, ...]]:
    """Sides and scores by torchvision's own net on the photograph."""
    model = Detection().make_model(2, "none")
    model.load_state_dict(torch.load(run / "model.pt", weights_only=True))
    resize_to(model, SIDE)
    with torch.no_grad():
        (found,) = model.eval()([to_tensor(Image.open(image))])
    assert set(found["labels"].tolist()) == {2}
    return [(*sides, score) for sides, score in zip(found["boxes"].tolist(), found["scores"].tolist(), strict=True)]


def test_a_trained_detector_says_what_is_where(
    tmp_path: Path, sqlite_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", sqlite_uri)
    images = photographs(tmp_path / "photographs")
    data = fetch("detection", f"{tmp_path / 'photographs'}#side={SIDE}", tmp_path)
    places, ladder = Places(tmp_path), a_ladder("boxes").model_copy(update={"workload": "detection", "data": data})
    run, record = train(places.runs / ladder.id, data)

    found = predict(str(run), images, places, How(score=0.9))
    assert (found.model, found.refused) == ("detection cpu-baseline", ())
    for prediction, image, (height, width) in zip(found.predictions, images, SIZES, strict=True):
        assert prediction.boxes
        assert {box.name for box in prediction.boxes} == {"dark"}
        sides = [(b.xmin, b.ymin, b.xmax, b.ymax, b.score) for b in prediction.boxes]
        assert sides == [pytest.approx(one, abs=1e-3) for one in expected(run, image) if one[4] >= 0.9]
        assert all(0 <= b.xmin < b.xmax <= width and 0 <= b.ymin < b.ymax <= height for b in prediction.boxes)

    assert record.spec is not None
    with Journal(places.journal / "boxes.jsonl") as journal:
        ladder_started(journal, ladder)
        variant_recorded(journal, ladder, Rung(variant=record.spec.variant), [record], places.runs / ladder.id)
        ladder_finished(journal, ladder.model_copy(update={"status": "done", "ended_at": 2000.0}), {}, "", {})
    sync(places, sqlite_uri, quiet)
    run_id = read_state(places.journal / "boxes.jsonl").runs[variant_key(ladder, record.spec.variant)]
    assert predict(run_id, images, places, How(score=0.9)) == found
