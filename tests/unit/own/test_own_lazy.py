"""Dictionaries that load what they hold only when they are asked, as the registries of transformers do."""

from tests.own_files import TUPLE, own_spec, write
from tests.plain_loop import run

from laptime.preflight.inspecting import inspect

# As `from transformers import MODEL_FOR_CAUSAL_LM_MAPPING` of Hugging Face's example scripts: all models are imported.
_LAZY = """
from collections import OrderedDict

class Lazy(OrderedDict):
    def _refused(self, *_):
        raise ValueError("could not find a class in a module that is not installed")

    keys = values = items = __iter__ = __len__ = _refused

MAPPING, PLAIN = Lazy(), {"steps": 0}

class Workload:
"""
_COUNTED = (
    "scores = model(x)",
    "scores = model(x)\n        PLAIN['steps'] += 1\n        self.seen = scores.detach()",
)


def test_they_are_not_asked(file, tmp_path):
    data = inspect(write(file, TUPLE, ("\nclass Workload:\n", _LAZY), _COUNTED))
    spec = own_spec(data, epochs=1, warmup_epochs=1, checkpoints=str(tmp_path / "kept"))
    found = run(spec, tmp_path / "run")
    assert (found.error, len(found.epochs)) == (None, 1)
