"""What a LightningModule logs is no reason for torch's compiler to begin anew, which no counted epoch would bear."""

from pathlib import Path

from tests.unit.conftest import make_spec
from tests.unit.own.test_lightning_module import STEP, lit

from laptime.preflight.inspecting import inspect
from laptime.spec import OptimizationSpec
from laptime.worker import run

VALIDATED = """\
    def validation_step(self, batch, batch_idx):
        inputs, labels = batch
        self.log("val_loss", F.cross_entropy(self.net(inputs), labels))

"""


def test_nothing_is_compiled_after_an_evaluation_that_logs_under_names_of_its_own(file, tmp_path):
    data = inspect(lit(file, (STEP, VALIDATED + STEP)))
    eager = OptimizationSpec(name="compile", options={"backend": "eager"})
    fields = {"batch_size": data.own.batch_size, "learning_rate": data.own.learning_rate}
    spec = make_spec(data=data, workload=data.own.name, optimizations=(eager,), epochs=3, profile="none", **fields)
    record = run(spec, Path(tmp_path))
    assert record.error is None
    assert [epoch.compilations for epoch in record.epochs] == [0, 0, 0]
