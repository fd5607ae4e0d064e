"""Several loaders of a LightningModule: of validation the first is what Lightning's Trainer calls the first."""

import logging
import sys
import warnings

import pytest
from lightning.pytorch import Trainer
from tests.unit.conftest import make_spec
from tests.unit.own.test_lightning_module import LOADER, STEP, lit

from laptime.catalogue.own import place_of
from laptime.data.own.opened import open_own
from laptime.engine.build import build, make_recipe, open_data
from laptime.engine.evaluate import evaluate, totals
from laptime.errors import UsageError
from laptime.measure.marks import StepMarks
from laptime.preflight.inspecting import inspect

JUDGED = "return DataLoader(self.test, batch_size=64)"
COMBINED = ("import torch\n", "import torch\nfrom lightning.pytorch.utilities import CombinedLoader\n")
TWO = "DataLoader(self.test, batch_size=32), DataLoader(self.train, batch_size=64)"
NAMED = "{'test': DataLoader(self.test, batch_size=32), 'again': DataLoader(self.train, batch_size=64)}"
VALIDATES = """\
    def validation_step(self, batch, batch_idx, dataloader_idx):
        inputs, labels = batch
        self.log("val_loss", F.cross_entropy(self.net(inputs), labels) + dataloader_idx)

"""
WHERE = r"\(training_\d+\.py, line 1\d\)"


@pytest.mark.parametrize("given", [f"[{TWO}]", f"({TWO})", NAMED, f"CombinedLoader({NAMED}, 'sequential')"])
# Of torch 2.15 about Lightning 2.6's own use of its trees.
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")
def test_the_first_loader_of_validation_judges(file, given):
    data = inspect(lit(file, COMBINED, (JUDGED, f"return {given}"), (STEP, VALIDATES + STEP)))
    spec = make_spec(data=data, workload=data.own.name, batch_size=data.own.batch_size)
    recipe = make_recipe(spec, open_data(spec), ())
    parts = build(recipe, StepMarks())
    found = totals([evaluate(parts, recipe, recipe.data.test)])[0]
    assert len(recipe.data.test) == 64
    assert "gives 2 loaders, and the test is on the first alone" in " ".join(recipe.notes)
    module = sys.modules[file.stem]
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = module.Lit()
        own.load_state_dict(parts.model.module.state_dict())
        trainer = Trainer(logger=False, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False)
        first = trainer.validate(own, module.Points(), verbose=False)[0]
    assert found == pytest.approx(first["val_loss/dataloader_idx_0"])


@pytest.mark.parametrize(
    ("loader", "given", "said"),
    [
        (LOADER, f"[{TWO}]", rf"train_dataloader\(\) {WHERE} gives a list, so a step gets .* \(2\) at once: give one"),
        (
            LOADER,
            "[DataLoader(self.train)]",
            r"gives a list, so a step gets a batch of each of its loaders \(1\) at once",
        ),
        (LOADER, f"CombinedLoader({NAMED})", r"gives a CombinedLoader, so a step gets .* \(2\) at once: give one"),
        (JUDGED, f"CombinedLoader({NAMED}, 'max_size')", rf"val_dataloader\(\) {WHERE} gives a CombinedLoader, so"),
        (JUDGED, "[]", r"val_dataloader\(\) .* gives a list: give one DataLoader of torch's\."),
    ],
)
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")
def test_loaders_whose_batches_come_together_are_refused(file, loader, given, said):
    with pytest.raises(UsageError, match=said):
        open_own(*place_of(lit(file, COMBINED, (loader, f"return {given}"))))
