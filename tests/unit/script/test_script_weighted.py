"""The script of a workload whose samples are drawn by weights draws them as the run does, without laptime."""

import pytest
from tests.own_files import WEIGHTED
from tests.unit.own.test_lightning_module import LIT
from tests.unit.own.test_lightning_weights import WEIGHED
from tests.unit.script.script_runs import assert_equal, assert_tidy, numbers_of, run_laptime

from laptime.script import print_script
from laptime.variants import resolve

# Numbers of another kind than tensors, on a last batch of another size.
LISTED = WEIGHTED.replace("return 1 + 9 * train.tensors[1]", "return [1 + 9 * int(label) for _, label in train]")
LISTED = LISTED.replace("batch_size = 16", "batch_size = 15")
# In loader workers alone items are slightly others, within what the one-step check allows.
BEGIN = """

def begin(worker):
    own = torch.utils.data.get_worker_info().dataset
    own.tensors = (own.tensors[0] * 1.0001, own.tensors[1])
"""
LISTED = LISTED.replace("batch_size = 15", "batch_size = 15\n    worker_init_fn = staticmethod(lambda n: begin(n))")
LOADED = LIT.replace(*WEIGHED).replace("batch_size=32,", "batch_size=32, worker_init_fn=begin,")
WORKER = "cpu-baseline+workers:count=1"
FILES = {
    "listed": (LISTED + BEGIN, "Workload", ("cpu-baseline", "cpu-baseline+resident+no-reads", WORKER)),
    "lit": (LOADED + BEGIN, "Lit", ("cpu-baseline", "cpu-baseline+resident+large-batch:size=64", WORKER)),
}
CASES = [(kind, name) for kind, (*_, names) in FILES.items() for name in names]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_script_trains_to_the_losses_of_the_run(kind, name, printed, found, tmp_path):
    assert_equal(printed[f"{kind}|{name}"], numbers_of(run_laptime(resolve(name), "own", found[kind], tmp_path)))


@pytest.mark.parametrize("kind", FILES)
def test_workers_of_a_script_begin_as_those_of_the_run(kind, printed):
    plain, worker = (printed[f"{kind}|{name}"] for name in ("cpu-baseline", WORKER))
    assert plain != worker


def test_what_is_printed_is_tidy_and_has_no_permutation(found, tmp_path):
    for kind, name in [*CASES, ("listed", "cpu-baseline+ddp"), ("listed", "cuda-baseline+fp16+pinned")]:
        text = print_script(resolve(name), "own", found[kind])
        assert "permutation" not in text
        (tmp_path / f"{kind}_{name}.py").write_text(text, encoding="utf-8")
    assert_tidy(tmp_path)
