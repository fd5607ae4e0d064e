"""The module that a user's file is, and its import."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import site
import sys
import sysconfig
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from laptime.data.own.trains import refuse_what_trains
from laptime.errors import LaptimeError, RunError, UsageError
from laptime.own.user_code import complaint, place_in, raised_by_hand, wanted
from laptime.places import is_text

# A spec is handed on as a word of a command, which holds 128 KiB.
_MOST_MODULES = 500


@contextmanager
def told_with_line(doing: str, file: Path, *makers: object, item: bool = True) -> Iterator[None]:
    """Tells errors of the user's code in one sentence with their line; raises RunError.

    Args:
        doing: what is done.
        file: the user's.
        makers: functions of the user's, named where none of their lines took part: one that is called with other
            arguments than it takes, for instance.
        item: see `complaint`; False where `doing` names it.
    """
    try:
        yield
    except LaptimeError:
        raise
    except (Exception, SystemExit) as error:  # whatever a user's code raises
        raise RunError(f"{doing} failed: {complaint(error, file, makers, item=item)}.") from error


@contextmanager
def interrupt_told(file: Path) -> Iterator[None]:
    """Tells a KeyboardInterrupt that the user's code raises by hand, which is no Ctrl-C; raises RunError."""
    try:
        yield
    except KeyboardInterrupt as error:
        if not raised_by_hand(error):
            raise
        raise RunError(f"looking into {file.name} failed: {complaint(error, file)}.") from error


def digest_of(file: Path, beside: Sequence[str] = ()) -> str:
    """SHA-256 of a user's file, and of its modules where there are any; one that is gone is another one."""
    found = hashlib.sha256(file.read_bytes())
    for name in beside:
        path = file.parent / name
        found.update(f"\n{name}\n".encode(errors="replace"))
        found.update(path.read_bytes() if path.is_file() else b"")
    return found.hexdigest()


def belonging(beside: Sequence[str]) -> str:
    """What of all that belongs to a user's file may have changed with it, in words; empty where it is alone."""
    settings = ", or settings that it reads," if any(not name.endswith(".py") for name in beside) else ""
    return f" or a module that it imports{settings}" if beside else ""


def modules_beside(file: Path, known: Collection[str], read: Collection[Path] = ()) -> tuple[str, ...]:
    """What belongs to a user's file: the modules of theirs that it has imported, and what else it has read.

    Paths from the file's folder where they are below it, else whole ones; those of the folder come first.

    Args:
        file: the user's.
        known: names of the modules that were there before.
        read: whole paths of the latter, of which those of what is installed are left out, too.
    """
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    installed |= {*site.getsitepackages(), site.getusersitepackages()}
    before = frozenset(known)
    # Part of a package that was there before is what torch's compiler writes into its cache, say.
    new = [m for name, m in list(sys.modules.items()) if before.isdisjoint((name, name.partition(".")[0]))]
    named = {Path(str(getattr(module, "__dict__", {}).get("__file__"))) for module in new} - {file}
    modules = {path for path in named if path.suffix == ".py" and path.is_absolute()}
    mine = [path for path in modules | {*read} if installed.isdisjoint(map(str, path.parents))]
    inside = sorted(str(p.relative_to(file.parent)) for p in mine if file.parent in p.parents)
    outside = sorted(str(p) for p in mine if file.parent not in p.parents)
    return tuple(name for name in (*inside, *outside) if is_text(name))[:_MOST_MODULES]


def refuse_arguments(maker: Any, file: Path) -> None:
    """Raises UsageError where a class or function of the user's, which is called with nothing, wants something."""
    asked = wanted(maker)
    if asked:
        name = getattr(maker, "__name__", "it")
        function = maker.__init__ if isinstance(maker, type) else maker  # type: ignore[misc]
        raise UsageError(
            f"{name}() of {file.name} wants {' and '.join(map(repr, asked))}{place_in(file, (), (function,))}, and is "
            f"called with nothing: give defaults, or name a function that makes it (def make(): return {name}(...))."
        )


def module_place(file: Path) -> tuple[Path, str]:
    """The folder that Python finds a user's module from, and the module's name.

    A file with relative imports is part of a package, as under `python -m package.train`: the folder is the one that
    holds the outermost package. Any other is a module of its own, as under `python train.py`.

    Raises:
        UsageError: it or its package is named as none can be.
    """
    if "." in file.stem:
        raise UsageError(
            f"{file.name} has a dot in its name, which Python takes for a module {file.stem.rpartition('.')[2]} in a "
            f"package {file.stem.partition('.')[0]}: rename the file."
        )
    depth = _highest_relative(file)
    if not depth:
        return file.parent, file.stem
    folders = file.parents
    while len(folders) > depth + 1 and all((folders[n] / "__init__.py").is_file() for n in (depth - 1, depth)):
        depth += 1
    names = [folder.name for folder in folders[:depth]]
    wrong = next((name for name in names if not name or "." in name), None)
    if wrong is not None:
        raise UsageError(
            f"{file.name} has relative imports, so its folder is a package, and {wrong or 'the root'!r} is no name of "
            "one: rename the folder, or import without the leading dot."
        )
    return folders[depth], ".".join([*reversed(names), file.stem])


def imported(file: Path) -> Any:
    """Imports a user's file; modules beside it are found, as Python would find them for the user.

    Raises:
        UsageError: another module in use has its name, or its package's, or it would train by a Trainer.
        RunError: the user's code failed.
    """
    root, name = module_place(file)
    refuse_what_trains(file)
    # As by `python train.py`: a parser of the user's finds no arguments of laptime's, in spawned loader workers either.
    sys.argv = [str(file)]
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) != str(file):
        raise UsageError(f"{file.name} has the name of another module ({name}) that is in use: rename the file.")
    # In front, as Python has it; a spawned worker looks there, too, though it is imported here already.
    sys.path[:] = [str(root), *(place for place in sys.path if place != str(root))]
    if known is not None:
        return known
    package = name.rpartition(".")[0]
    if package:
        # Behind all else: a file that is run as a script as well may import what lies beside it without a dot.
        sys.path.append(str(file.parent))
        _import_package(package, root, file)
    found = importlib.util.spec_from_file_location(name, file)
    if found is None or found.loader is None:
        raise UsageError(f"{file.name} can't be imported: give a Python file.")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        with told_with_line(f"importing {file.name}", file):
            found.loader.exec_module(module)
    except RunError:
        del sys.modules[name]
        raise
    return module


def _import_package(name: str, root: Path, file: Path) -> None:
    outermost = name.partition(".")[0]
    known = sys.modules.get(outermost)
    if known is not None and str(root / outermost) not in getattr(known, "__path__", ()):
        raise UsageError(
            f"the package {outermost} of {file.name} has the name of another one that is in use: rename its folder."
        )
    with told_with_line(f"importing {name}, the package of {file.name},", file):
        importlib.import_module(name)


def _highest_relative(file: Path) -> int:
    """How many folders up the file's relative imports go: 1 for its own; 0 without any, or where it can't be read."""
    try:
        tree = ast.parse(file.read_bytes())  # bytes: their own mark or line says how they are encoded
    except (OSError, SyntaxError, ValueError):
        return 0  # told when it is imported
    return max((node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0)
