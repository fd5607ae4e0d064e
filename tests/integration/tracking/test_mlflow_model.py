from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow_helpers import client_of, quiet
from tracking_samples import DATA, a_ladder, a_record, write_run

from laptime.ladder.data import fetch_data
from laptime.ladder.predict import predict
from laptime.places import Places
from laptime.records import Finding, Measured, Rung, RunRecord
from laptime.tracking import Journal
from laptime.tracking.journal import read_state
from laptime.tracking.publish import ladder_finished, ladder_started, run_folder, variant_key, variant_recorded
from laptime.tracking.rule_history import advice_verified, below_ladder
from laptime.tracking.sync import sync

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.slow,
]

# In a process where laptime can't be imported, as on another machine.
LOAD = """
import json, sys
sys.modules["laptime"] = None
import mlflow, torch
mlflow.set_tracking_uri(sys.argv[1])
model = mlflow.pytorch.load_model(sys.argv[2])
torch.manual_seed(0)
images = torch.randn(5, 3, 32, 32)
with torch.no_grad():
    logits = model(images)
info = mlflow.models.get_model_info(sys.argv[2])
print(json.dumps({"logits": logits.tolist(), "metadata": info.metadata}))
"""


def with_data(record: RunRecord, places: Places) -> RunRecord:
    """The record of a run on a real store, which says how images are normalized."""
    import numpy as np
    from PIL import Image

    generator = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in DATA.classes:
            (places.home / "images" / split / name).mkdir(parents=True)
            pixels = generator.integers(0, 255, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(places.home / "images" / split / name / "0.png")
    assert record.spec is not None
    data = fetch_data("cifar", str(places.home / "images"), places)
    return record.model_copy(update={"spec": record.spec.model_copy(update={"data": data})})


def predicts_alike(parent: str, places: Places, folder: Path) -> None:
    """The ladder's run says what the run folder says: the fastest has no model, so the baseline's is meant."""
    images = sorted(str(p) for p in (places.home / "images" / "test").rglob("*.png"))
    logged = predict(parent, images[:1], places)
    own = predict(str(run_folder(folder, "cpu-baseline", 0)), images, places)
    assert own.model == logged.model == "cifar cpu-baseline"
    assert [len(p.guesses) for p in own.predictions] == [3] * 10
    here, there = own.predictions[0].guesses, logged.predictions[0].guesses
    assert [g.name for g in there] == [g.name for g in here]
    assert [g.probability for g in there] == pytest.approx([g.probability for g in here], abs=1e-4)


def a_comparison(folder: Path) -> Path:
    path = folder / "comparison.json"
    path.write_text('{"baseline": "cpu-baseline", "headlines": [{"kind": "fastest", "variant": "cpu-broken"}]}')
    return path


def test_a_trained_model_is_logged_loaded_back_and_predicts(
    tmp_path: Path, sqlite_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from torchvision.models import resnet18

    monkeypatch.setenv("MLFLOW_TRACKING_URI", sqlite_uri)
    places, ladder = Places(tmp_path), a_ladder("models")
    folder = places.runs / ladder.id
    good, broken = with_data(a_record("cpu-baseline"), places), a_record("cpu-broken")
    torch.manual_seed(1)
    model = resnet18(num_classes=10)
    torch.save(model.state_dict(), write_run(folder, good) / "model.pt")
    (write_run(folder, broken) / "model.pt").write_bytes(b"no state dict")
    with Journal(places.journal / "models.jsonl") as journal:
        ladder_started(journal, ladder)
        for record in (good, broken):
            assert record.spec is not None
            variant_recorded(journal, ladder, Rung(variant=record.spec.variant), [record], folder)
        done = ladder.model_copy(update={"status": "done", "ended_at": 2000.0})
        verified = Finding(
            id="x", what="", step_ms_now=2, step_ms_expected=(1, 1), gain=(0.5, 0.5), measured=Measured()
        )
        advice_verified(
            journal, below_ladder(done), "cpu-baseline", verified
        )  # newer than the variant's run, and without a model
        ladder_finished(journal, done, {}, "", {"comparison.json": a_comparison(tmp_path)})
    said: list[str] = []
    sync(places, sqlite_uri, said.append)
    assert len(said) == 1
    assert "cpu-broken" in said[0] and "holds no state dict" in said[0]  # noqa: PT018 - one sentence

    client = client_of(sqlite_uri)
    run_id = read_state(places.journal / "models.jsonl").runs[variant_key(ladder, "cpu-baseline")]
    run = client.get_run(run_id)
    assert (run.info.status, run.info.end_time) == ("FINISHED", 1090_000)
    (found,) = client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run_id}'")
    command = [sys.executable, "-c", LOAD, sqlite_uri, found.model_uri]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    answer = json.loads(done.stdout.splitlines()[-1])
    torch.manual_seed(0)
    with torch.no_grad():
        expected = model.eval()(torch.randn(5, 3, 32, 32))
    assert torch.allclose(torch.tensor(answer["logits"]), expected, atol=1e-5)
    assert answer["metadata"]["classes"] == list("abcdefghij")
    assert answer["metadata"]["image_size"] == [32, 32]

    (places.journal / "models.state.json").unlink()
    sync(places, sqlite_uri, quiet)
    assert len(client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run_id}'")) == 1
    predicts_alike(read_state(places.journal / "models.jsonl").runs[ladder.id], places, folder)
