"""What a LightningModule logs is no reason for torch's compiler to begin anew, which no counted epoch would bear."""

from pathlib import Path

import pytest
from tests.unit.conftest import make_spec
from tests.unit.own.test_lightning_module import STEP, lit

from laptime.preflight.inspecting import inspect
from laptime.spec import OptimizationSpec
from laptime.worker import run

TRAINED = "    def training_step(self, batch, batch_idx):\n"
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


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("", None),
        ("if batch_idx % 4 == 0: self.log('at', 1.0)", "batch_idx"),
        ("if self.global_step % 4 == 0: self.log('at', 1.0)", "global_step"),
        ("if self.trainer.global_step % 4 == 0: self.log('at', 1.0)", "global_step"),
        ("if self.current_epoch > 4: self.log('at', 1.0)", None),
    ],
)
def test_it_is_not_compiled_where_its_steps_read_a_number_that_is_another_in_each(line, name, file):
    data = inspect(lit(file, (TRAINED, f"{TRAINED}        {line}\n")))
    told = f"its steps read {name}, and torch compiles them anew for each number"
    found = {rung: data.own.refused.get(rung) for rung in ("compile", "compile-graphed")}
    assert found == dict.fromkeys(found, None if name is None else told)
