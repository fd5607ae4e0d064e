from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from flow_process import ROOT, run, surroundings
from small_disk import SmallDisk
from tests.forked import run_each
from tests.samples import write_folder
from tests.unit.data.box_samples import write_photographs

from laptime.records import read_record


def test_prefect_s_server_can_be_imported(tmp_path: Path) -> None:
    # fastapi 0.151 breaks it, which pip check does not see.
    done = run(["-c", "import prefect.server.api.server"], tmp_path)
    assert done.returncode == 0, done.stderr


_MAIN_JOB = (
    "from flows.embedded import use_embedded_server; use_embedded_server(); "
    "from flows.command import run; from flows.optimize import FINISHED, optimize"
)
_NONSENSE = (
    ("--preset", "quik", "quick"),
    ("--epochs", "0", "epochs"),
    ("--epochs", "-3", "epochs"),
    ("--repeats", "many", "repeats"),
    ("--device", "abacus", "device"),
    ("--launcher", "catapult", "launcher"),
    ("--timeout", "0", "timeout"),
    ("--verify-most", "many", "--verify-most"),
    ("--tracking-uri", "mlruns", "names a folder"),
)


def test_the_main_job_refuses_nonsense_in_one_sentence(tmp_path: Path) -> None:
    refused = run(["-m", "flows.optimize", "--workload", "cifr"], tmp_path)
    run_it, others = "raise SystemExit(run(optimize, FINISHED))", [words[:2] for words in _NONSENSE]
    forked = run_each(_MAIN_JOB, run_it, others, ROOT, surroundings(tmp_path))
    expected = ["did you mean cifar?", *(sentence for *_, sentence in _NONSENSE)]
    for done, sentence in zip([refused, *forked], expected, strict=True):
        assert (done.returncode, sentence in done.stderr) == (2, True), done
        assert len(done.stderr.strip().splitlines()) == 1, done


@pytest.mark.parametrize(
    ("name", "value", "code", "expected"),
    [
        ("PREFECT_API_URL", "http://127.0.0.1:9/api", 1, "http://127.0.0.1:9/api (PREFECT_API_URL) does not answer"),
        ("PREFECT_HOME", __file__, 2, "test_flow.py', can't be written"),
        ("PREFECT_SERVER_ALLOW_EPHEMERAL_MODE", "false", 1, "forbids one of this run alone: set the first"),
        ("PREFECT_LOGGING_LEVEL", "LOUD", 2, "PREFECT_…LEVEL (Input should be 'DEBUG'"),
    ],
)
def test_surroundings_in_which_no_flow_can_run_are_one_sentence(
    tmp_path: Path, name: str, value: str, code: int, expected: str
) -> None:
    done = run(["-m", "flows.optimize"], tmp_path, **{name: value})
    assert done.returncode == code
    assert expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_server_that_does_not_come_up_is_one_sentence(tmp_path: Path) -> None:
    done = run(["-m", "flows.optimize"], tmp_path, PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS="0")
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("laptime: ")]
    assert done.returncode == 1
    assert "did not come up in time: look at the disk and the load of this machine" in said
    assert "Traceback" not in done.stderr


def test_a_home_of_prefect_s_on_a_full_disk_is_told_before_it_is_waited_for(
    small_disk: SmallDisk, tmp_path: Path
) -> None:
    small_disk.fill(left=1 << 20)
    done = run(["-m", "flows.optimize"], tmp_path, PREFECT_HOME=str(small_disk.folder))
    assert done.returncode == 2
    assert re.fullmatch(r"laptime: PREFECT_HOME, '.*', has \d\.\d MiB of the 16 free that it needs, .*\n", done.stderr)


def test_a_server_s_certificate_is_believed_as_prefect_believes_it(tmp_path: Path) -> None:
    asked = "from flows.command import _trust; print(_trust().verify_mode.name, _trust().check_hostname)"
    done = run(["-c", asked], tmp_path, PREFECT_API_TLS_INSECURE_SKIP_VERIFY="true")
    assert done.stdout.strip() == "CERT_NONE False"


def test_the_form_describes_every_parameter_and_the_types_refuse_nonsense(tmp_path: Path) -> None:
    code = """if True:
        import json
        from flows.optimize import optimize
        from prefect.exceptions import ParameterTypeError
        schema = optimize.parameters.model_dump_for_openapi()["properties"]
        print(json.dumps([name for name, field in schema.items() if not field.get("description")]))
        print(json.dumps("cifar" in schema["workload"]["examples"]))
        print(optimize.validate_parameters({"workload": "here/train.py:mine"})["workload"])
        for name, value in [("epochs", 0), ("preset", "quik"), ("seed", -1), ("timeout", 0)]:
            try:
                optimize.validate_parameters({name: value})
            except ParameterTypeError:
                print(name)
        from flows.gate import _require_text, gate
        from laptime.errors import UsageError
        try:
            _require_text(gate.validate_parameters({"base": 12345e7})["base"])
        except UsageError as refused:
            print(str(refused)[:45])
        named = optimize.validate_parameters({"variants": ["cpu-baseline", "cpu-flp"]})
        for wrong in ({"workload": "cifr"}, {"variants": "cpu-baseline, cpu-flp"}, named):  # the flow's own sentence
            print(optimize.fn(**wrong).message)
        """
    done = run(["-c", code], tmp_path)
    assert done.stdout.splitlines() == [
        "[]",
        "true",
        "here/train.py:mine",
        "epochs",
        "preset",
        "seed",
        "timeout",
        "base was read as the number 123450000000.0, a",
        "unknown workload 'cifr': did you mean cifar?",
        *["unknown variant 'cpu-flp': did you mean cpu-flip or cuda-flip or cpu-crop?"] * 2,
    ], done.stderr


def test_the_flow_s_parameters_are_the_request_s_fields(tmp_path: Path) -> None:
    code = """if True:
        import inspect
        from flows.optimize import optimize
        from laptime.ladder import LadderRequest
        parameters = inspect.signature(optimize.fn).parameters
        assert set(parameters) == set(LadderRequest.model_fields), set(parameters) ^ set(LadderRequest.model_fields)
        for name, field in LadderRequest.model_fields.items():
            assert parameters[name].default == field.default, name
        """
    done = run(["-c", code], tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_flow_shows_the_first_findings_as_a_table(tmp_path: Path) -> None:
    code = """if True:
        import json
        from types import SimpleNamespace
        from flows.artifacts import advice_table, table
        from laptime.compare.comparison import compare, ladder_of
        from laptime.spec import DataSpec, RunSpec
        from laptime.records import Advice, EpochRecord, Finding, Measured, RunRecord
        measured = Measured(gain=0.25, gain_low=0.2, gain_high=0.3, n=3)
        found = Finding(id="f", what="It waits.", evidence=("Seen on cpu-a.", "4.0 of 10.0 ms are wait", "more"),
                        lines=("train.py:31", "train.py:40"), step_ms_now=10, step_ms_expected=(6, 8), gain=(0.2, 0.4),
                        klass="exact", command="laptime run", measured=measured)
        counsel = SimpleNamespace(merged=lambda: Advice(findings=(found,) * 12))
        print(json.dumps(advice_table(SimpleNamespace(counsel=counsel))))
        print(advice_table(SimpleNamespace(counsel=SimpleNamespace(merged=lambda: None))))
        data = DataSpec(asked="d", kind="folder", digest="", path="", classes=("a", "b"), train_count=9, test_count=900)
        epochs = (EpochRecord(index=0, epoch_s=2.0, samples=9, test_accuracy=0.75),)
        specs = [RunSpec(workload="cifar", variant=v, data=data, batch_size=3, learning_rate=0.1)
                 for v in ("cpu-baseline", "cpu-a")]
        runs = [RunRecord(status="done", spec=s, epochs=epochs) for s in specs]
        print(json.dumps(table(compare(ladder_of(runs), runs))))
        from pathlib import Path
        from flows.optimize import done
        for runs in ((1,), (1, 2)):
            state = done(SimpleNamespace(runs=runs, folder=Path("/home/runs/mine")))
            print(state.type.value, state.message, json.dumps(state.result()))
        """
    done = run(["-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    rows, none, variants, *states = done.stdout.splitlines()
    assert states == [
        'COMPLETED 1 process compared in /home/runs/mine "/home/runs/mine"',
        'COMPLETED 2 processes compared in /home/runs/mine "/home/runs/mine"',
    ]
    said = [tuple(row[name] for name in ("speed-up", "samples/s", "test accuracy")) for row in json.loads(variants)]
    assert said == [("1.00x", "4.5", "75.0 % (baseline)"), ("1.00x (n=1)", "4.5", "75.0 % (0.0 pp unclear)")]
    assert none == "[]"
    assert len(json.loads(rows)) == 10
    assert json.loads(rows)[0] == {
        "finding": "It waits.",
        "on": "Seen on cpu-a.",
        "rests on": "4.0 of 10.0 ms are wait",
        "at": "train.py:31, train.py:40",
        "expected step": "6.00–8.00 ms instead of 10.0 ms",
        "expected gain": "20–40 %",
        "measured": "25 % less (+20 to +30 %), n = 3, quality not judged",
        "class": "exact",
        "confidence": "50 %",
        "command": "laptime run",
    }


@pytest.mark.slow
def test_the_main_job_runs_without_a_server(tmp_path: Path) -> None:
    small = {
        "data": "synthetic",
        "limit-train": "64",
        "limit-test": "32",
        "epochs": "1",
        "warmup-epochs": "0",
        "repeats": "1",
        "profile": "none",
        "variants": "cpu-baseline,cpu-resident",
    }
    options = [part for name, value in small.items() for part in (f"--{name}", value)]
    done = run(["-m", "flows.optimize", *options], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cpu-resident" in done.stdout
    assert "laptime up" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert "ERROR" not in done.stdout + done.stderr
    assert list((tmp_path / "runs").rglob("comparison.html"))
    assert (tmp_path / "mlflow.db").is_file()


@pytest.mark.slow
def test_the_flow_takes_a_training_of_the_user_s_own(tmp_path: Path) -> None:
    workload, variants = "examples/char_transformer.py:workload", "cpu-baseline,cpu-fused-optimizer"
    small = f"--workload {workload} --limit-train 64 --limit-test 32 --epochs 1 --warmup-epochs 0 --repeats 1"
    done = run(["-m", "flows.optimize", *small.split(), "--profile", "none", "--variants", variants], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "char-transformer" in done.stdout
    assert "cpu-fused-optimizer" in done.stdout


def _tiles(root: Path) -> str:
    return str(write_folder(root / "tiles", train=6, test=2, size=64))


def _photographs(root: Path) -> str:
    return f"{write_photographs(root / 'photographs', count=3)}#side=64"


@pytest.mark.long
@pytest.mark.parametrize(
    ("workload", "place", "variant", "measure"),
    [
        ("eurosat", _tiles, "cpu-baseline+resident+fused-optimizer", "test_accuracy"),
        ("detection", _photographs, "cpu-baseline+resident+gathered-rois", "test_map50"),
    ],
)
def test_the_flow_trains_the_other_workloads(
    tmp_path: Path, workload: str, place: Callable[[Path], str], variant: str, measure: str
) -> None:
    """From the data of a user to a table and MLflow, with the check and a profile of each."""
    small = f"--workload {workload} --epochs 1 --repeats 1 --variants cpu-baseline,{variant}"
    done = run(["-m", "flows.optimize", *small.split(), "--data", place(tmp_path)], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert variant in done.stdout
    records = [read_record(path) for path in (tmp_path / "runs").rglob("record.json")]
    assert {r.spec.variant: r.status for r in records} == {"cpu-baseline": "done", variant: "done"}
    for record in records:
        assert getattr(record.epochs[-1], measure) is not None
        assert record.profile is not None
    (checked,) = [r.check for r in records if r.check is not None]
    assert checked.passed
    assert (tmp_path / "mlflow.db").is_file()


@pytest.mark.long
def test_the_flow_verifies_its_advice(tmp_path: Path) -> None:
    code = """if True:
        from flows.embedded import use_embedded_server
        use_embedded_server()
        from flows.command import run
        from flows.optimize import FINISHED, optimize
        from laptime.ladder import advising
        from laptime.records import Advice, Finding
        found = Finding(id="resident", what="Images come one by one.", variant="cpu-baseline+resident", klass="exact",
                        step_ms_now=100, step_ms_expected=(50, 90), gain=(0.1, 0.5))
        def advise(record, *_):
            return Advice(subject=record.spec.variant, findings=(found,))
        advising.the_rules = lambda: advising.Rules(advise, lambda advice: advice.verdict)
        small = {"data": "synthetic", "limit-train": 64, "limit-test": 32, "epochs": 1, "warmup-epochs": 0,
                 "repeats": 1, "profile": "none", "variants": "cpu-baseline", "verify-advice": "true"}
        code = run(optimize, FINISHED, [str(w) for k, v in small.items() for w in (f"--{k}", v)])
        from prefect.artifacts import Artifact
        print("ARTIFACT", Artifact.get("advice").data)
        raise SystemExit(code)
        """
    done = run(["-c", code], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verification, round 3 of 3' - Finished in state Completed" in done.stderr, done.stderr
    (advice,) = (tmp_path / "runs").glob("*/advice.json")
    assert json.loads(advice.read_text())["findings"][0]["measured"]["n"] == 3
    (shown,) = [line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("ARTIFACT ")]
    (row,) = json.loads(shown)
    assert (row["finding"], row["expected gain"]) == ("Images come one by one.", "10–50 %")
    assert "n = 3" in row["measured"]


def test_a_data_folder_that_is_not_there_fails_the_flow_in_one_sentence(tmp_path: Path) -> None:
    done = run(["-m", "flows.optimize", "--data", str(tmp_path / "nowhere")], tmp_path)
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if line.startswith("laptime: ") and "nowhere" in line]
    assert "Traceback" not in done.stdout + done.stderr
