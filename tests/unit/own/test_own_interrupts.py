"""A KeyboardInterrupt that a user's code raises by hand is an error with its line; Ctrl-C is none."""

import json
import sys

import pytest
from tests.own_files import DICTIONARY, own_spec, place, write

from laptime import worker
from laptime.preflight import inspecting

_LOSS, _ITEM = "        return model(**batch).loss", "        return {"
_BY_HAND = "raise KeyboardInterrupt('enough')"
# Beside a loss or an item that does something after some calls, what Ctrl-C may meet there.
_HEAD = """\
import asyncio, os, signal, threading, time

CALLS, MOST = [], {}

def killed():
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    time.sleep(9)

async def stopped():
    signal.raise_signal(signal.SIGINT)
    await asyncio.sleep(9)

"""


def stopping(file, most: float, code: str, before: str) -> str:
    """A workload whose loss or items do something after some calls."""
    sys.modules.pop(file.stem, None)
    calls = f"        CALLS.append(1)\n        if len(CALLS) > MOST:\n            {code}\n"
    return write(file, _HEAD.format(most) + DICTIONARY, (before, calls + before))


def trained(file, folder, code: str, before: str, variant: str):
    """The record of a run that comes to it in training, as the look into the file does not."""
    data = inspecting.inspect(stopping(file, 10**6, code, before))
    stopping(file, 3, code, before)
    data = data.model_copy(update={"own": data.own.model_copy(update={"file": ""})})
    return worker.run(own_spec(data, variant, batch_size=8, check=False), folder / "run")


@pytest.mark.parametrize(
    ("before", "variant", "said"),
    [
        (_LOSS, "cpu-baseline", "KeyboardInterrupt: enough ("),
        (_ITEM, "cpu-baseline", "KeyboardInterrupt: enough, at item "),
        (
            _ITEM,
            "cpu-baseline+workers:count=1",
            "RuntimeError: KeyboardInterrupt was raised [in a loader worker], at item ",
        ),
    ],
)
def test_one_by_hand_fails_the_run_with_its_line(file, tmp_path, before, variant, said):
    record = trained(file, tmp_path, _BY_HAND, before, variant)
    assert record.status == "failed"
    assert record.error.startswith(said)
    assert place(file, _BY_HAND) in record.error


@pytest.mark.parametrize("code", ["signal.raise_signal(signal.SIGINT)", "killed()", "asyncio.run(stopped())"])
def test_ctrl_c_is_no_failure_of_the_run(file, tmp_path, code):
    """Wherever the user's code stands; asyncio takes the signal, and raises by hand."""
    with pytest.raises(KeyboardInterrupt):
        trained(file, tmp_path, code, _LOSS, "cpu-baseline")


def looked(file, tmp_path, code: str) -> tuple[int, str]:
    """The exit code of a look into a file, and the error that it hands on."""
    request, result = tmp_path / "request.json", tmp_path / "result.json"
    request.write_text(json.dumps({"workload": stopping(file, 0, code, _LOSS)}))
    return inspecting.main([str(request), str(result)]), json.loads(result.read_text())["error"]


def test_before_a_ladder_one_by_hand_is_told_and_ctrl_c_ends_the_look(file, tmp_path):
    told = f"looking into {file.name} failed: KeyboardInterrupt: enough "
    code, said = looked(file, tmp_path, _BY_HAND)
    assert (code, said) == (1, f"{told}{place(file, _BY_HAND)}{_BY_HAND}).")
    with pytest.raises(KeyboardInterrupt):
        looked(file, tmp_path, "killed()")
