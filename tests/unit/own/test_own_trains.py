"""What trains by a Trainer when it is imported, or in the place of a workload, is refused before it does."""

import pytest
from tests.own_files import TUPLE, place

from laptime.data.own.opened import open_own
from laptime.errors import UsageError

_TRAINER = """
class Trainer:
    def __init__(self, **options):
        raise AssertionError("a process has trained")

    fit = train = __init__

LightningCLI = Trainer

def main():
    trainer = Trainer(max_epochs=3)
    trainer.fit(model=None)

"""
_HYDRA = """
class hydra:
    main = lambda **_: hydra.once
    once = lambda function: function

"""
_SEEN = "{} trains when it is imported (line {}: {}), and each process imports it: put that behind `if __name__"


@pytest.mark.parametrize(
    ("end", "seen"),
    [
        ("trainer = Trainer(max_epochs=3)\ntrainer.fit()", "trainer.fit()"),
        ("L = sys.modules[__name__]\nL.Trainer().train()", "L.Trainer().train()"),
        ("LightningCLI(Workload, seed=1)", "LightningCLI(Workload, seed=1)"),
        ("sys.exit(main())", "trainer.fit(model=None)"),
        ("with open(__file__):\n    Trainer().fit()", "Trainer().fit()"),
        ("study = optuna.create_study()\nstudy.optimize(len, n_trials=3)", "study.optimize(len, n_trials=3)"),
        ("learn = vision_learner(X, Y)\nlearn.fine_tune(2)", "learn.fine_tune(2)"),
        ("learn = Learner(X, Y)\nlearn.fit_one_cycle(2)", "learn.fit_one_cycle(2)"),
        ("trainer = create_supervised_trainer(X)\ntrainer.run(Y)", "trainer.run(Y)"),
        ("NeuralNetClassifier(Workload).fit(X, Y)", "NeuralNetClassifier(Workload).fit(X, Y)"),
        ("@hydra.main(config_path='conf')\ndef begin(cfg):\n    pass\n\nbegin()", "begin()"),
    ],
)
def test_what_would_train_is_refused_with_its_line(file, end, seen):
    file.write_text(f"import sys\n{TUPLE}{_TRAINER}{end}\n", encoding="utf-8")
    line = next(i for i, text in enumerate(file.read_text().splitlines(), 1) if seen in text)
    with pytest.raises(UsageError) as told:
        open_own(file, "Workload")
    assert str(told.value).startswith(_SEEN.format(file.name, line, seen))


@pytest.mark.parametrize(
    "end",
    [
        "if __name__ == '__main__':\n    main()",
        "if TRAINS:\n    main()",
        "later = lambda: Trainer().fit()",
        "def asked():\n    if TRAINS:\n        Trainer().fit()\n\nasked()",
        "LightningCLI = lambda *_, **__: None\nLightningCLI(Workload, run=False)",
        "@hydra.main(config_path='conf')\ndef begin(cfg):\n    pass\n\nif __name__ == '__main__':\n    begin()",
        "@hydra.once\ndef begin():\n    pass\n\nbegin()",
        "class Learner:\n    def summary(self):\n        pass\n\nlearn = Learner()\nlearn.summary()",
        "class Scaler:\n    def fit(self):\n        pass\n\nscaler = Scaler()\nscaler.fit()",
    ],
)
def test_what_is_guarded_or_trains_nothing_is_taken(file, end):
    file.write_text(f"TRAINS = False\n{_HYDRA}{TUPLE}{_TRAINER}{end}\n", encoding="utf-8")
    assert len(open_own(file, "Workload").train) == 64


_RUNS = """
def main({}):
    def better(one):
        return one < 1
    class Kept:
        def get(self):
            return self
    raise AssertionError("it has trained")
    {}
"""


@pytest.mark.parametrize("arguments", ["", "args"])
@pytest.mark.parametrize("end", ["", "return", "return 0", "if better(0):\n        return None"])
def test_a_function_that_trains_in_the_place_of_a_workload_is_not_called(file, arguments, end):
    file.write_text(_RUNS.format(arguments, end), encoding="utf-8")
    with pytest.raises(UsageError) as told:
        open_own(file, "main")
    where = place(file, f"def main({arguments})")
    assert str(told.value).startswith(f"main() of {file.name} returns no workload {where}def main({arguments})), and")
    assert "laptime new FILE writes a workload" in str(told.value)


@pytest.mark.parametrize(
    "made",
    [
        "def make():\n    return Workload",
        "def make():\n    if TRAINS:\n        return 0\n    else:\n        return Workload()",
        "make = lambda: Workload()",
        "@functools.cache\ndef make():\n    with open(__file__):\n        return Workload()",
        "class Maker:\n    def __call__(self):\n        return Workload()\n\nmake = Maker()",
        "make = functools.partial(Workload)",
        "class make(Workload):\n    def __init__(self):\n        pass",
    ],
)
def test_what_makes_a_workload_is_called(file, made):
    file.write_text(f"import functools\nTRAINS = False\n{TUPLE}\n{made}\n", encoding="utf-8")
    assert len(open_own(file, "make").train) == 64
