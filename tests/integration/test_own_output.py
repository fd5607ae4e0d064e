"""A user's file may close, replace or take away its output, and end its process: runs go on, and are told as usual."""

import pytest
from tests.integration.test_own_crashes import LOSS, train
from tests.own_files import DICTIONARY, write

from laptime.devices import hopeless_here
from laptime.errors import RunError
from laptime.ladder.surroundings import run_probe
from laptime.places import Places
from laptime.preflight.inspecting import inspect

TRAINS = 'str(getattr(sys.modules["__main__"], "__file__", "")).endswith("worker.py")'
PROBED = 'str(getattr(sys.modules["__main__"], "__file__", "")).endswith("probe.py")'


def with_loss(file, code, when):
    changed = f"        if {when}:\n            {code}\n{LOSS}"
    return write(file, "import os, sys\n" + DICTIONARY, (LOSS, changed))


@pytest.mark.parametrize(
    "code",
    [
        "sys.stdout.close()",
        "sys.stdout = sys.stderr = None",
        "os.close(1)",
        'sys.stdout = open(os.devnull, "w")',
    ],
)
def test_a_training_without_output_is_one_as_any_other(tmp_path, code):
    once = f"{TRAINS} and not vars(sys).setdefault('quiet', []) and not sys.quiet.append(1)"
    found = train(with_loss(tmp_path / f"quiet{len(code)}.py", code, once), tmp_path / "run")
    assert (found.status, found.error) == ("done", None)


def test_an_error_behind_closed_output_is_told_with_its_line(tmp_path):
    code = 'sys.stdout.close(); sys.stderr.close(); raise ValueError("odd")'
    found = train(with_loss(tmp_path / "closed.py", code, TRAINS), tmp_path / "run")
    assert found.status == "failed"
    assert found.error.startswith("ValueError: odd (closed.py, line ")


@pytest.mark.skipif(bool(hopeless_here("", ["bf16"], "cpu")), reason="nothing of a user's own is probed here")
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("os._exit(3)", "probing this machine failed: its process ended with exit code 3 and said nothing."),
        ("os._exit(0)", "probing this machine failed: its process ended with exit code 0 and said nothing."),
        ("os.abort()", "the process that probes this machine died of signal 6 (SIGABRT) (ending"),
    ],
)
def test_a_probe_that_the_user_s_code_ends_is_told_as_that(tmp_path, code, said):
    data = inspect(with_loss(tmp_path / f"ending{sum(map(ord, code))}.py", code, PROBED))
    with pytest.raises(RunError) as caught:
        run_probe((data.model_dump_json(), "cpu"), Places(tmp_path / "home"), lambda _: None, ["bf16"])
    assert str(caught.value).startswith(said)
