"""Files of users' own that are part of a package, with imports from it."""

import runpy
import sys

import pytest
from tests.own_files import TUPLE, write

from laptime.data.own.importing import module_place
from laptime.data.own.opened import open_own, open_run
from laptime.errors import LaptimeError
from laptime.preflight.inspecting import inspect
from laptime.script import print_script
from laptime.variants import resolve

_WIDTH = ("Linear(256", "Linear(WIDTH")


@pytest.fixture(autouse=True)
def imports(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    before = dict(sys.modules)
    yield
    for name in set(sys.modules) - set(before):
        if name.startswith("mine"):
            del sys.modules[name]


def package(tmp_path, *folders: str, marked: bool = True):
    """Folders within each other, the innermost with a module `sizes`; a path for a file beside that."""
    here = tmp_path
    for name in folders:
        here = here / name
        here.mkdir()
        if marked:
            (here / "__init__.py").write_text("")
    (here / "sizes.py").write_text("WIDTH = 256\n")
    return here / "train.py"


@pytest.mark.parametrize("marked", [True, False])
def test_a_module_of_its_package_is_found(tmp_path, marked):
    file = package(tmp_path, "mine_a" if marked else "mine_b", marked=marked)
    name = write(file, "from .sizes import WIDTH\n" + TUPLE, _WIDTH)
    assert inspect(name).own.name == "train"
    assert module_place(file) == (tmp_path, f"{file.parent.name}.train")


def test_modules_further_up_are_found_and_the_outermost_package_is_the_root(tmp_path):
    file = package(tmp_path, "mine_outer", "mine_middle", "mine_inner")
    (tmp_path / "mine_outer" / "depth.py").write_text("CLASSES = 2\n")
    text = "from ...depth import CLASSES\nfrom . import sizes\n" + TUPLE
    data = open_own(*[file, write(file, text, ("Linear(256, 2)", "Linear(sizes.WIDTH, CLASSES)")).rpartition(":")[2]])
    assert type(data.workload).__module__ == "mine_outer.mine_middle.mine_inner.train"
    assert module_place(file)[0] == tmp_path


def test_without_relative_imports_a_file_in_a_package_is_a_script(tmp_path):
    file = package(tmp_path, "mine_script")
    name = write(file.with_name("mine_alone.py"), "from sizes import WIDTH\n" + TUPLE, _WIDTH)
    assert inspect(name).own.name == "mine_alone"
    sys.modules.pop("sizes")


def test_a_file_that_is_a_script_as_well_finds_what_lies_beside_it(tmp_path):
    file = package(tmp_path, "mine_both")
    file.with_name("mine_beside.py").write_text("CLASSES = 2\n")
    either = "try:\n    from .sizes import WIDTH\nexcept ImportError:\n    from sizes import WIDTH\n"
    text = either + "from mine_beside import CLASSES\n" + TUPLE
    assert inspect(write(file, text, ("Linear(256, 2)", "Linear(WIDTH, CLASSES)"))).own.name == "train"


def test_what_fails_in_its_package_is_told_with_that_line(tmp_path):
    file = package(tmp_path, "mine_broken")
    file.with_name("__init__.py").write_text("import torch\n\nraise ValueError('no licence')\n")
    name = write(file, "from .sizes import WIDTH\n" + TUPLE, _WIDTH)
    with pytest.raises(LaptimeError, match=r"ValueError: no licence \(__init__.py, line 3: raise") as caught:
        inspect(name)
    assert str(caught.value).startswith("importing mine_broken, the package of train.py, failed: ")


def test_a_package_with_a_name_in_use_or_one_that_can_not_be_is_told(tmp_path):
    file = package(tmp_path, "json")
    name = write(file, "from .sizes import WIDTH\n" + TUPLE, _WIDTH)
    with pytest.raises(LaptimeError, match=r"the package json of train\.py has the name of another one that is in use"):
        inspect(name)
    file = package(tmp_path, "v1.0")
    name = write(file, "from .sizes import WIDTH\n" + TUPLE, _WIDTH)
    with pytest.raises(LaptimeError, match=r"'v1\.0' is no name of one: rename the folder"):
        inspect(name)


def test_its_printed_script_imports_it_alike(tmp_path, capsys):
    file = package(tmp_path, "mine_printed")
    file.with_name("mine_script_beside.py").write_text("")
    name = write(file, "import mine_script_beside\nfrom .sizes import WIDTH\n" + TUPLE, _WIDTH)
    assert "as by `python -m mine_printed.train`" in run_printed(name, tmp_path)
    assert "accuracy" in capsys.readouterr().out


def test_its_printed_script_imports_the_file_where_a_package_of_its_name_lies_beside_it(tmp_path, capsys):
    file = package(tmp_path, "mine_folder").parent.with_suffix(".py")
    run_printed(write(file, TUPLE), tmp_path)
    assert "accuracy" in capsys.readouterr().out


def run_printed(name, folder):
    """Runs the baseline's script as in a process that has imported nothing of the user's; returns its text."""
    data = inspect(name)
    text = print_script(resolve("cpu-baseline", tuple(data.own.refused)), data.own.name, data=data)
    script = folder / "printed.py"
    script.write_text(text)
    for known in [n for n in sys.modules if n.startswith("mine")]:
        del sys.modules[known]
    sys.path[:] = [p for p in sys.path if not p.startswith(str(folder))]
    sys.argv[:] = ["printed.py"]
    runpy.run_path(str(script), run_name="__main__")
    return text


def test_a_module_that_was_changed_ends_the_runs_that_follow_as_the_file_itself_does(tmp_path):
    (tmp_path / "mine_sizes.py").write_text("WIDTH = 256\n")
    data = inspect(write(tmp_path / "mine_train.py", "from mine_sizes import WIDTH\n" + TUPLE, _WIDTH))
    assert data.own.beside == ("mine_sizes.py",)
    assert len(open_run(data, 8, 8, 1).train) == 8
    (tmp_path / "mine_sizes.py").write_text("WIDTH = 128 * 2\n")
    with pytest.raises(LaptimeError, match=r"mine_train\.py or a module that it imports was changed"):
        open_run(data, 8, 8, 1)


def test_a_package_that_is_not_installed_is_told_as_the_file_s_own(tmp_path):
    name = write(package(tmp_path, "src", "mine_absent"), "from mine_absent.sizes import WIDTH\n" + TUPLE, _WIDTH)
    with pytest.raises(LaptimeError) as told:
        inspect(name)
    assert "it is the file's own package: install that (pip install -e), or start laptime above mine_absent/ (" in str(
        told.value
    )
