"""The flow `gate` as a worker calls it: what ends it, what it leaves in Prefect and in MLflow, and its deployment."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from flow_process import ROOT, run

# A checkout whose own `laptime run` trains nothing and says that an epoch took what its file `epoch_s` holds.
OWN_LAPTIME = """
import json, os, sys
from pathlib import Path

if sys.argv[1] == "explain":
    print(json.dumps({"device": "cpu", "transforms": []}))
elif "--help" in sys.argv:
    print("--bare")
else:
    seconds = float(Path("epoch_s").read_text()) * (1 + 0.002 * (int(os.environ["LAPTIME_SEED"]) % 3))
    epochs = [{"index": i, "kept": i > 0, "epoch_s": seconds, "samples": 64} for i in range(4)]
    body = {"schema": "laptime.record/1", "status": "done", "epochs": epochs}
    Path(os.environ["LAPTIME_RECORD"]).write_text(json.dumps(body))
"""
FLOWS = """if True:
    import json, sys
    from flows.embedded import use_embedded_server
    use_embedded_server()
    from flows.command import server_settings
    from flows.gate import gate
    from prefect.artifacts import Artifact
    from laptime.places import find_places
    from laptime.tracking.mlflow import past_gates

    def told(head):
        state = gate(workload="cifar", base_dir=sys.argv[1], head_dir=head, max_pairs=8, return_state=True)
        shown = Artifact.get("gate")
        tracked = past_gates((find_places().mlflow_uri, "cifar"), 0.0, "")
        verdicts = [[past.verdict, len(past.log_ratios)] for past in tracked]
        return {"state": state.name, "message": state.message, "result": state.is_completed() and state.result(),
                "artifact": shown.data, "description": shown.description, "tracked": verdicts}

    with server_settings():
        print(json.dumps([told(head) for head in sys.argv[2:]]))
    """


def checkout(folder: Path, epoch_s: str) -> str:
    package = folder / "src" / "laptime"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(OWN_LAPTIME)
    (folder / "epoch_s").write_text(epoch_s)
    return str(folder)


def test_the_flow_passes_the_same_and_fails_what_is_slower(tmp_path: Path) -> None:
    base, same, slower = (checkout(tmp_path / name, s) for name, s in (("b", "3.0"), ("same", "3.0"), ("slow", "3.6")))
    done = run(["-c", FLOWS, base, same, slower, str(tmp_path / "gone")], tmp_path / "home")
    assert done.returncode == 0, done.stdout + done.stderr
    passed, regressed, refused = json.loads(done.stdout.splitlines()[-1])
    assert passed["state"] == "Completed"
    assert passed["result"] == passed["description"]
    assert passed["result"].startswith("Head's epochs are not slower by 10 %")
    assert "not regressed" in passed["artifact"]
    assert passed["tracked"] == [["not_regressed", 4]]
    assert regressed["state"] == "Failed"
    assert regressed["message"].startswith("regressed: Head's epochs are slower: +20.0 %")
    assert "+20.0 %" in regressed["artifact"]
    assert regressed["tracked"] == [["regressed", 4], ["not_regressed", 4]]
    # What can't be gated fails in one sentence, and shows and tracks nothing.
    assert refused["state"] == "Failed"
    assert "no folder: give head's checkout" in refused["message"]
    assert (refused["artifact"], refused["tracked"]) == (regressed["artifact"], regressed["tracked"])
    assert "Traceback" not in done.stderr


def test_the_deployment_is_one_of_the_flow(tmp_path: Path) -> None:
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]
    (found,) = [d for d in deployments if d["entrypoint"] == "flows/gate.py:gate"]
    assert found["name"] == "cifar"
    code = """if True:
        import inspect, json, sys
        from prefect.exceptions import ParameterTypeError
        from prefect.flows import load_flow_from_entrypoint
        from laptime.gate.request import make_gate_request
        gate = load_flow_from_entrypoint("flows/gate.py:gate")
        given = json.loads(sys.argv[1])
        assert gate.name == "gate"
        assert given.items() <= gate.validate_parameters(given).items()
        defaults = {name: p.default for name, p in inspect.signature(gate.fn).parameters.items()}
        print(make_gate_request(**{**defaults, **given}).limit_train)
        schema = gate.parameters.model_dump_for_openapi()["properties"]
        print([name for name, field in schema.items() if not field.get("description")])
        for name, value in [("max_pairs", 3), ("limit_train", 0), ("seed", -1)]:
            try:
                gate.validate_parameters({name: value})
            except ParameterTypeError:
                print(name)
        """
    done = run(["-c", code, json.dumps(found["parameters"])], tmp_path)
    assert done.stdout.splitlines() == ["4000", "[]", "max_pairs", "limit_train", "seed"], done.stdout + done.stderr


def test_numbers_are_what_the_command_line_makes_of_a_commit_and_a_share(tmp_path: Path) -> None:
    code = """if True:
        import json
        from flows.embedded import use_embedded_server
        use_embedded_server()
        from flows.command import server_settings
        from flows.gate import gate
        from laptime.errors import UsageError

        with server_settings():
            asked = {"base": 4081234, "max_slowdown": 0.2, "budget": 900, "head_dir": "x"}
            wrong = [{"workload": "cifr"}, {"variant": "nope"}, asked]
            print(json.dumps([gate(**given, return_state=True).message for given in wrong]))
        """
    done = run(["-c", code], tmp_path / "home")
    assert done.returncode == 0, done.stdout + done.stderr
    workload, variant, asked = json.loads(done.stdout.splitlines()[-1])
    assert "unknown workload 'cifr'" in workload
    assert "unknown variant 'nope'" in variant
    assert "--base" in asked
