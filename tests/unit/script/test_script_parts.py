"""The script of a workload with micro batches adds their gradients up as the run does, without laptime."""

import pytest
from tests.own_files import PIECES
from tests.unit.own.test_lightning_module import LIT
from tests.unit.own.test_own_parts import in_parts
from tests.unit.script.script_runs import assert_equal, assert_tidy, numbers_of, run_laptime

from laptime.script import print_script
from laptime.variants import resolve

# Parts of 5 and 6; of a last batch of 13 parts of 4 and 5. Its steps read how many have been before them.
POINTS = PIECES.replace(*in_parts(6)).replace("TensorDataset(X[:64], Y[:64])", "TensorDataset(X[:61], Y[:61])")
LOSS = "loss = F.cross_entropy(scores, labels)"
COUNTING = LIT.replace("        self.net = nn", "        self.micro_batch_size = 12\n        self.net = nn").replace(
    LOSS, f"{LOSS} * min(1.0, (1 + self.global_step) / 8) * 24 / self.trainer.num_training_batches"
)
FILES = {
    "points": (POINTS, "Workload", ("cpu-baseline", "cpu-baseline+resident+no-reads", "cpu-baseline+whole-batch")),
    "lit": (COUNTING, "Lit", ("cpu-baseline", "cpu-baseline+large-batch:size=64")),
}
CASES = [(kind, name) for kind, (*_, names) in FILES.items() for name in names]
UNRUN = (
    *("cpu-baseline+ddp:tuned=true+bf16", "cpu-baseline+flat-reduce", "cuda-baseline+fp16+pinned+products"),
    *("cuda-baseline+compile-graphed+ddp", "cuda-baseline+compile-graphed"),
)


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_script_trains_to_the_losses_of_the_run(kind, name, printed, found, tmp_path):
    assert_equal(printed[f"{kind}|{name}"], numbers_of(run_laptime(resolve(name), "own", found[kind], tmp_path)))


def test_what_is_printed_is_tidy_and_divides_only_what_is_divided(found, tmp_path):
    for kind, name in [*CASES, *(("points", name) for name in UNRUN)]:
        text = print_script(resolve(name), "own", found[kind])
        assert ("in_parts" in text) == ("whole-batch" not in name)
        assert ("net.no_sync()" in text) == ("ddp" in name)
        assert "static_graph" not in text
        assert ("copy_gradients(net, own)" in text) == ("graphed" in name)
        (tmp_path / f"{kind}_{name}.py").write_text(text, encoding="utf-8")
    assert_tidy(tmp_path)
