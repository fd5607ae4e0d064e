"""A file that trains by a Trainer when it is imported is refused before: each process of a ladder imports it."""

import pytest
from tests.own_files import TUPLE

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
_SEEN = "{} trains when it is imported (line {}: {}), and each process imports it: put that behind `if __name__"


@pytest.mark.parametrize(
    ("end", "seen"),
    [
        ("trainer = Trainer(max_epochs=3)\ntrainer.fit()", "trainer.fit()"),
        ("L = sys.modules[__name__]\nL.Trainer().train()", "L.Trainer().train()"),
        ("LightningCLI(Workload, seed=1)", "LightningCLI(Workload, seed=1)"),
        ("sys.exit(main())", "trainer.fit(model=None)"),
        ("with open(__file__):\n    Trainer().fit()", "Trainer().fit()"),
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
        "class Scaler:\n    def fit(self):\n        pass\n\nscaler = Scaler()\nscaler.fit()",
    ],
)
def test_what_is_guarded_or_trains_nothing_is_taken(file, end):
    file.write_text(f"TRAINS = False\n{TUPLE}{_TRAINER}{end}\n", encoding="utf-8")
    assert len(open_own(file, "Workload").train) == 64
