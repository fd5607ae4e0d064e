"""Parts of a net that its train() leaves in evaluation, and what a criterion counts that the workload holds."""

from tests.own_files import TUPLE, write

from laptime.preflight.inspecting import inspect

_FROZEN = """
class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()).requires_grad_(False)
        self.body[1].running_mean.normal_()
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(256, 2))

    def train(self, mode=True):
        super().train(mode)
        self.body.eval()
        return self

    def forward(self, x):
        return self.head(self.body(x))


class Workload:
"""
_NET = "return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(256, 2))"
_CRITERION = """
class Criterion(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = 0

    def forward(self, scores, labels):
        COUNTED
        return F.cross_entropy(scores, labels, label_smoothing=0.3 if self.steps > 5 else 0.0)


class Workload:
    def __init__(self):
        self.criterion = Criterion()

"""
_BY_IT = ("return F.cross_entropy(scores, y)", "return self.criterion.train(model.training)(scores, y)")


def test_parts_that_stay_in_evaluation_carry_nothing_along(file):
    found = inspect(write(file, TUPLE, ("\nclass Workload:\n", _FROZEN), (_NET, "return Frozen()")))
    assert found.notice == ""
    assert "graph" not in found.own.refused


def test_what_a_criterion_of_the_workload_counts_begins_anew(file):
    counting = _CRITERION.replace("COUNTED", "self.steps += 1")
    found = inspect(write(file, TUPLE, ("\nclass Workload:\n", counting), _BY_IT))
    assert "goes on from the warm-up" not in found.notice
    assert "changes steps with test data, too" in found.notice
    assert "which changes steps in each step" in found.own.refused["graph"]


def test_a_criterion_that_counts_nothing_is_not_told(file):
    found = inspect(write(file, TUPLE, ("\nclass Workload:\n", _CRITERION.replace("COUNTED", "pass")), _BY_IT))
    assert found.notice == ""
