"""What a request says no to, where the workload is in a user's own file."""

import pytest

from laptime.errors import UsageError
from laptime.ladder.request import check_variant, make_request
from laptime.spec import DataSpec, OwnSpec
from laptime.variants import resolve

NAME = "train.py:workload"
DATA = DataSpec(
    asked="auto",
    kind="own",
    digest="0" * 64,
    path="/train.py",
    classes=(),
    train_count=64,
    test_count=32,
    own=OwnSpec(attribute="workload", name="train", batch_size=2, learning_rate=1e-3, quality="loss"),
)


def test_pods_have_no_file_of_the_users():
    with pytest.raises(UsageError, match=r"--launcher kubernetes is not for 'train.py:workload': pods have no such"):
        check_variant(make_request(workload=NAME, launcher="kubernetes"), resolve("cpu-baseline"))


def test_its_batch_is_looked_at_once_it_is_known(monkeypatch):
    monkeypatch.setattr("laptime.ladder.ranks.device_count", lambda _: 300)
    request, variant = make_request(workload=NAME), resolve("cpu-baseline+ddp:ranks=2")
    check_variant(request, resolve("cpu-baseline+ddp:ranks=100"))
    with pytest.raises(UsageError, match=r"the batch of 2 of .* is too small for 2 ranks.* at least 4\.$"):
        check_variant(request, variant, DATA)
