from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow_helpers import client_of, quiet
from tracking_samples import a_ladder, a_record, write_run

from laptime.places import Places
from laptime.records import Rung
from laptime.tracking import Journal
from laptime.tracking.journal import read_state
from laptime.tracking.publish import ladder_started, variant_key, variant_recorded
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


def test_a_trained_model_is_logged_loaded_back_and_predicts(tmp_path: Path, sqlite_uri: str) -> None:
    import torch
    from torchvision.models import resnet18

    places, ladder = Places(tmp_path), a_ladder("models")
    folder = places.runs / ladder.id
    good, broken = a_record("cpu-baseline"), a_record("cpu-broken")
    torch.manual_seed(1)
    model = resnet18(num_classes=10)
    torch.save(model.state_dict(), write_run(folder, good) / "model.pt")
    (write_run(folder, broken) / "model.pt").write_bytes(b"no state dict")
    with Journal(places.journal / "models.jsonl") as journal:
        ladder_started(journal, ladder)
        for record in (good, broken):
            assert record.spec is not None
            variant_recorded(journal, ladder, Rung(variant=record.spec.variant), [record], folder)
        journal.end_run("models", "FINISHED", 2000.0)
    said: list[str] = []
    sync(places, sqlite_uri, said.append)
    assert len(said) == 1
    assert "cpu-broken" in said[0]
    assert "holds no state dict" in said[0]

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
    assert answer["metadata"]["image_size"] == 32

    (places.journal / "models.state.json").unlink()
    sync(places, sqlite_uri, quiet)
    assert len(client.search_logged_models([run.info.experiment_id], f"source_run_id = '{run_id}'")) == 1
