"""Files of settings that a user's file reads belong to it: one that is changed ends the runs that follow."""

import sys

import pytest
from tests.own_files import TUPLE, own_spec, write
from tests.plain_loop import run

from laptime.preflight.inspecting import inspect

_HERE = "import json\nimport os\nfrom pathlib import Path\n\nimport yaml\n\nHERE = Path(__file__).parent\n"
_YAML = 'yaml.safe_load((HERE / "conf" / "net.yaml").read_bytes())["width"]'
_FIXED = "nn.Linear(256, 2)"
_NET = "nn.Linear(256, WIDTH), nn.Linear(WIDTH, 2)"


@pytest.fixture(autouse=True)
def conf(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "conf"
    folder.mkdir()
    (folder / "net.yaml").write_text("width: 8\n")
    (folder / "net.json").write_text('{"width": 8}')
    return folder


def of(file, read: str, in_model: bool = False) -> str:
    """A file whose net has the width that an expression reads, when it is imported or when the net is made."""
    net = _NET.replace("WIDTH", f"({read})" if in_model else "WIDTH")
    return write(file, f"{_HERE}{'' if in_model else f'WIDTH = {read}'}\n{TUPLE}", (_FIXED, net))


@pytest.mark.parametrize("in_model", [False, True])
@pytest.mark.parametrize(
    ("read", "name"),
    [
        (_YAML, "conf/net.yaml"),
        ('json.loads((HERE / "conf" / "net.json").read_text())["width"]', "conf/net.json"),
        ('json.loads(Path("conf/net.json").read_bytes())["width"]', "conf/net.json"),
    ],
)
def test_settings_that_were_changed_end_the_runs_that_follow(file, conf, tmp_path, read, name, in_model):
    data = inspect(of(file, read, in_model))
    assert data.own.beside == (name,)
    spec = own_spec(data, epochs=1, learning_rate=0.01, profile="none")
    assert run(spec, tmp_path / "first").status == "done"
    changed = conf / name.partition("/")[2]
    changed.write_text(changed.read_text().replace("8", "4"))
    record = run(spec, tmp_path / "second")
    assert record.status == "failed"
    assert record.error.startswith(f"{file.name} or a module that it imports, or settings that it reads, was changed")


@pytest.mark.parametrize(
    "line",
    [
        '(HERE / "run.json").write_text(json.dumps({"pid": os.getpid()}))',
        '(HERE / "run.new").write_text("{}"); os.replace(HERE / "run.new", HERE / "run.json")',
    ],
    ids=["written", "renamed"],
)
def test_what_the_file_writes_itself_is_none_of_its_settings(file, line):
    name = write(file, f'{_HERE}{line}\njson.loads((HERE / "run.json").read_text())\n{TUPLE}')
    assert inspect(name).own.beside == ()


def test_neither_data_nor_what_is_gone_or_was_read_for_another_file_are(file, conf, tmp_path):
    (tmp_path / "labels.json").write_text(f'"{"a" * 2**20}"')
    (tmp_path / "gone.yaml").write_text("x: 1\n")
    lines = ["(HERE / 'labels.json').read_text()", "(HERE / 'gone.yaml').read_text()", "(HERE / 'gone.yaml').unlink()"]
    inspect(of(file, _YAML))
    sys.modules.pop(file.stem)
    assert inspect(write(file, "\n".join([_HERE, *lines, TUPLE]))).own.beside == ()
