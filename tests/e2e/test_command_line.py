"""The console script as a user types it: what works, and each bad input as one sentence with an exit code."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.commands import laptime, surroundings
from tests.e2e.stored import run_of
from tests.forked import run_each
from tests.integration.ports import free_port
from tests.samples import write_folder

from laptime.devices import cuda_devices, hopeless_here


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("images"), train=24, test=8)


def refused(done: subprocess.CompletedProcess[str], code: int, *named: str) -> None:
    """Checks that a command ended with one sentence that names all of `named`."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    sentence = done.stderr.strip().splitlines()[-1]
    for word in named:
        assert word in sentence, sentence


def small(images: Path, *more: str) -> tuple[str, ...]:
    limits = ("--limit-train", "40", "--limit-test", "10")
    return ("optimize", "cifar", "--data", str(images), "--epochs", "1", "--repeats", "1", *limits, *more)


def test_a_ladder_its_records_and_what_reads_them(home, images, tmp_path):
    out, profile = tmp_path / "ladder", ("--profile-schedule", "0,1,1,1")
    done = laptime(home, *small(images, "--variants", "cpu-optimized", "--out", str(out), "--json", *profile))
    assert done.returncode == 0, done.stderr
    rows = {row["variant"]: row for row in json.loads(done.stdout)["rows"]}
    left = {name: row["reason"] for name, row in rows.items() if row["status"] == "left_out"}
    assert rows.keys() - left == {"cpu-baseline", "cpu-optimized"}
    assert all(left.values())  # what the probe has found to gain nothing on this machine
    assert rows["cpu-optimized"]["check"]["passed"]
    written = {p.name for p in out.iterdir()}
    reports = {"comparison.html", "comparison.json", "comparison.md", "speedup.svg", "curves.svg"}
    assert written >= {"ladder.json", *reports}
    assert (out / "cpu-optimized-0" / "profile" / "trace.json.gz").is_file()
    assert list((home / "artifacts").rglob("profile/self_cpu_time.txt"))
    records = [str(p) for p in out.glob("*/record.json")]
    assert len(records) == 2
    whole = [[str(out)], [run_of(home, "laptime.kind", "ladder")]]
    for what, named in ((records, rows.keys() - left), *((run, rows.keys()) for run in whole)):
        again = laptime(home, "compare", *what, "--json")
        assert again.returncode == 0, again.stderr
        assert {r["variant"] for r in json.loads(again.stdout)["rows"]} == named
    table = laptime(home, "compare", str(out)).stdout
    for column in ("cpu-optimized", "samples/s", "MiB", "brought", "test accuracy", "speed-up"):
        assert column in table
    refused(laptime(home, *small(images, "--out", str(out))), 2, "--out", "another folder")
    for what in (str(out / "cpu-optimized-0"), run_of(home, "laptime.variant", "cpu-optimized")):
        advised = laptime(home, "advise", what)
        assert advised.returncode == 0, advised.stderr
        assert "cpu-optimized" in advised.stdout
    image = images / "test" / "red" / "000.png"
    guessed = laptime(home, "predict", str(out), str(image))
    assert guessed.returncode == 0, guessed.stderr
    assert guessed.stdout.startswith(str(image))
    assert all(name in guessed.stdout for name in ("red", "green", "blue"))


def test_one_variant_alone(home, images, tmp_path):
    variant = ("--variant", "cpu-resident+large-batch:size=16", "--set", "large-batch.size=24")
    data = ("--data", str(images), "--limit-train", "48", "--out", str(tmp_path / "out"), "--json", "--no-profile")
    done = laptime(home, "run", "cifar", *variant, *data)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    chosen = {o["name"]: o["options"] for o in record["spec"]["optimizations"]}
    assert chosen["large-batch"]["size"] == 24
    assert record["epochs"][0]["steps"] == 2
    assert json.loads((tmp_path / "out" / "record.json").read_text()) == record
    run = run_of(home, "laptime.variant", record["spec"]["variant"])
    image = str(images / "test" / "red" / "000.png")
    for what in (run, str(tmp_path / "out")):
        assert json.loads(laptime(home, "advise", what, "--json").stdout)["subject"] == record["spec"]["variant"]
        guessed = laptime(home, "predict", what, image)
        assert guessed.stdout.startswith(image), guessed.stderr


def test_a_plan_without_running_it(home, images):
    done = laptime(home, "optimize", "cifar", "--dry-run", "--data", str(images))
    assert done.returncode == 0
    assert "cpu-optimized-without-dead-taps" in done.stdout
    assert "Expected duration" in done.stdout
    assert json.loads(laptime(home, "optimize", "cifar", "--dry-run", "--json").stdout)["rows"]


@pytest.mark.parametrize("kind", ["", "workloads", "optimizations", "variants"])
def test_lists(home, kind):
    arguments = ["list", *([kind] if kind else [])]
    assert laptime(home, *arguments).returncode == 0
    assert json.loads(laptime(home, *arguments, "--json").stdout)


def test_explain_and_clean(home):
    done = laptime(home, "explain", "cpu-optimized")
    assert done.stdout.index("threads") < done.stdout.index("dead-taps") < done.stdout.index("bf16")
    assert json.loads(laptime(home, "explain", "cpu-bf16", "--json").stdout)["classes"] == ["exact", "numeric"]
    script = laptime(home, "explain", "cpu-bf16", "--code").stdout
    compile(script, "script", "exec")
    assert 'torch.autocast("cpu", torch.bfloat16)' in script
    assert json.loads(laptime(home, "explain", "cpu-bf16", "--code", "--json").stdout)["code"] == script
    assert laptime(home, "clean", "--json").returncode == 0


def test_a_script_of_an_own_workload_is_without_what_it_can_not_show(home):
    own = str(Path(__file__).resolve().parents[2] / "examples" / "char_transformer.py:workload")
    done = laptime(home, "explain", "cuda-optimized", "--code", "--workload", own)
    assert done.returncode == 0, done.stderr
    compile(done.stdout, "script", "exec")
    (said,) = [line for line in done.stderr.splitlines() if "left out" in line]
    assert said.endswith("graph")
    alone = laptime(home, "explain", "cuda-graph", "--code", "--workload", own)
    assert alone.returncode == 2
    assert "cuda-graph has no script, because of graph" in alone.stderr


def test_doctor_says_what_is_there_and_why_not(home):
    rows = {r["what"]: r for r in json.loads(laptime(home, "doctor", "--json").stdout)}
    assert rows["cpu"]["ok"]
    assert rows["cuda"]["ok"] == bool(cuda_devices())
    assert "GFLOP/s" in rows["ceilings"]["detail"]
    # Measured, or left out with the reason where this CPU would only emulate it.
    assert ("in a probe" in rows["bf16"]["detail"]) == ("bf16" not in hopeless_here("", ["bf16"], "cpu"))
    assert "not probed" not in rows["bf16"]["detail"]
    assert rows["variables"]["ok"] == ("is set in the environment" not in rows["variables"]["detail"])


_MISTAKES = (
    (("optimize", "cifar", "--variants", "cpu-resdent"), ("cpu-resdent", "cpu-resident")),
    (("optimize", "cifar", "--variants", "cpu-resident+bf17"), ("bf17", "bf16")),
    (("optimize", "cifar", "--epochs", "0"), ("epochs", "0")),
    (("optimize", "cifar", "--epochs", "-3"), ("epochs", "-3")),
    (("optimize", "cifar", "--preset", "quik"), ("preset", "quik")),
    (("optimize", "cifar", "--device", "tpu"), ("device", "tpu")),
    (("optimize", "cifar", "--profile-schedule", "1,2,0,1"), ("1,2,0,1", "active")),
    (("optimize", "cifar", "--profile", "simple", "--no-profile"), ("--no-profile", "simple")),
    (("optimize", "cifar", "--launcher", "ssh"), ("launcher", "ssh")),
    (("optimize", "cifar", "--tracking-uri", "file:///somewhere"), ("file:///somewhere", "sqlite")),
    (("optimize", "cifar", "--data", "ftp://somewhere/x"), ("ftp://somewhere/x",)),
    (("run", "cifar", "--variant", "cpu-resident", "--set", "size"), ("size", "optimization.option=value")),
    (("run", "cifar", "--variant", "a,b"), ("one variant",)),
    (("run", "cifar", "--variant", "cpu-resident", "--tracking-uri", "ftp://x/y"), ("ftp://x/y", "sqlite")),
    (
        ("run", "cifar", "--variant", "cpu-resident", "--tracking-uri", "http://x", "--bare"),
        ("--bare", "published"),
    ),
    (("explain", "cpu-basline"), ("cpu-basline", "cpu-baseline")),
    (("explain", "cpu-baseline+ddp:batchnorm=sync", "--code"), ("of laptime's own", "Leave ddp out")),
    (("explain", "cpu-baseline", "--code", "--workload", "mnist"), ("mnist", "cifar, eurosat")),
    (("list", "variant"), ("variant", "variants")),
    (("clean", "everything"), ("everything", "all")),
    (("compare", "nowhere.json"), ("nowhere.json",)),
)


def test_a_usage_error_is_one_sentence(home):
    refused(laptime(home, "optimize", "cifr"), 2, "cifr", "cifar")
    commands = [arguments for arguments, _ in _MISTAKES]
    # What the console script does, in forks of one that has imported it.
    all_done = run_each(
        "import laptime.cli; from laptime.console import main", "main()", commands, home, surroundings(home)
    )
    for done, (_, named) in zip(all_done, _MISTAKES, strict=True):
        refused(done, 2, *named)


def test_an_unknown_option_names_the_nearest(home):
    done = laptime(home, "optimize", "cifar", "--epoch", "3")
    assert done.returncode == 2
    assert "--epoch" in done.stderr
    assert "--epochs" in done.stderr
    assert laptime(home, "optimise", "cifar").returncode == 2


def test_cuda_where_there_is_none(home, images):
    if cuda_devices():
        pytest.skip("this machine has a GPU")
    refused(laptime(home, *small(images, "--device", "cuda")), 2, "cuda", "--device cpu")


@pytest.mark.parametrize(("option", "limit", "there"), [("--limit-train", "73", "72"), ("--limit-test", "25", "24")])
def test_limits_beyond_the_data(home, images, option, limit, there):
    refused(laptime(home, *small(images, option, limit)), 2, limit, there)


def test_folders_that_are_no_data(home, tmp_path):
    (tmp_path / "empty").mkdir()
    refused(laptime(home, *small(tmp_path / "gone")), 1, "gone")
    refused(laptime(home, *small(tmp_path / "empty")), 1, "empty", "class")
    one = write_folder(tmp_path / "one", train=2, test=1)
    for split in ("train", "test"):
        for name in ("red", "green"):
            for image in (one / split / name).iterdir():
                image.unlink()
            (one / split / name).rmdir()
    refused(laptime(home, *small(one)), 1, "one class")


def test_an_image_that_is_cut_off_is_named(home, tmp_path):
    images = write_folder(tmp_path / "images", train=3, test=1)
    broken = images / "train" / "red" / "001.png"
    broken.write_bytes(broken.read_bytes()[:200])
    before = set((home / "data").glob("*"))
    refused(laptime(home, "data", "fetch", "cifar", "--data", str(images)), 1, "001.png")
    assert {p.name for p in set((home / "data").glob("*")) - before} <= {"index"}


def test_weights_that_can_not_be_had(home, images, tmp_path):
    refused(laptime(home, *small(images, "--weights", str(tmp_path / "none.pt"))), 2, "none.pt", "imagenet")
    (tmp_path / "other.pt").write_bytes(b"no weights at all")
    bad = ("--weights", str(tmp_path / "other.pt"), "--no-profile")
    done = laptime(home, *small(images, "--variants", "cpu-resident", *bad))
    refused(done, 1, "the baseline failed", "other.pt", "state_dict")
    done = laptime(home, *small(images, "--variants", "cpu-baseline,cpu-resident", *bad))
    refused(done, 1, "the baseline failed, so nothing else was tried", "other.pt", "state_dict")
    assert (done.stdout + done.stderr).count("state_dict") == done.stderr.splitlines()[-1].count("state_dict")
    assert done.stdout.startswith("\nReport:")
    assert "failed, so nothing else is tried\n" in done.stderr


def test_a_tracking_server_that_does_not_answer_loses_nothing(home, images, tmp_path):
    uri = f"http://127.0.0.1:{free_port()}"
    where = ("--tracking-uri", uri, "--out", str(tmp_path / "kept"), "--no-profile")
    done = laptime(home, *small(images, "--variants", "cpu-resident", *where))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    first, *between, last = [line for line in done.stderr.splitlines() if "tracking store" in line]
    assert first.startswith(f"the tracking store {uri} does not answer or refuses (")
    assert first.endswith("laptime sync sends it when the store is back.")
    (between,) = between
    assert between.endswith("without its rules' record: the tracking store still does not answer or refuses.")
    (journal,) = (home / "journal").glob(f"{json.loads((tmp_path / 'kept' / 'ladder.json').read_text())['id']}.jsonl")
    entries = len(journal.read_text().splitlines()) - 1
    assert f"the journal {journal} is kept, of which 0 of its {entries} entries arrived; laptime sync sends" in last
    assert last == done.stderr.splitlines()[-1]
    assert f"\nMLflow:          {uri} (once laptime sync has sent the ladder)\n" in done.stdout
    assert (tmp_path / "kept" / "comparison.html").is_file()
    assert "cpu-resident" in done.stdout


def test_debug_shows_the_traceback(home):
    assert "Traceback" in laptime(home, "--debug", "optimize", "cifr").stderr
