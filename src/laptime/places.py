"""Where things stand on this machine: the embedded stores under LAPTIME_HOME and the machine-wide device locks."""

from __future__ import annotations

import contextlib
import os
import tempfile
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from laptime.errors import UsageError, shorten


def expanded(text: str) -> Path:
    """A path as a user writes it, with `~` for a home.

    Raises:
        UsageError: it can be none on this machine.
    """
    try:
        path = Path(text).expanduser()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.stat()
        return path
    except RuntimeError as error:
        raise UsageError(f"{shorten(text)!r} begins with a user who is not known here: give the path.") from error
    except (OSError, ValueError) as error:  # a name that is too long or with a zero in it, a link to itself
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{shorten(text)!r} can be no path ({reason}): give another one.") from error


def small_scheme(uri: str) -> str:
    """An address with its scheme in small letters, as it is compared everywhere: HTTP:// is http://."""
    scheme, separator, rest = uri.partition("://")
    return f"{scheme.lower()}{separator}{rest}" if separator else uri


@dataclass(frozen=True)
class Places:
    """Absolute paths of the embedded stores."""

    home: Path

    def require_writable(self) -> None:
        """Raises UsageError where nothing can be kept here; else the first file would say so, in a library's words."""
        there = next(place for place in (self.home, *self.home.parents) if place.exists())
        if not os.access(there, os.W_OK):
            raise UsageError(f"{str(there)!r} may not be written to: set LAPTIME_HOME to a folder that may.")

    @property
    def mlflow_uri(self) -> str:
        """The tracking store: MLFLOW_TRACKING_URI where it is set, else SQLite under home."""
        # A value that came out of a file, such as a secret's, often ends with a line's end.
        return small_scheme(os.environ.get("MLFLOW_TRACKING_URI", "").strip()) or self.embedded_mlflow_uri

    @property
    def embedded_mlflow_uri(self) -> str:
        return f"sqlite:///{self.home / 'mlflow.db'}"

    @property
    def artifacts(self) -> Path:
        return self.home / "artifacts"

    @property
    def prefect(self) -> Path:
        return self.home / "prefect"

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def journal(self) -> Path:
        return self.home / "journal"

    @property
    def runs(self) -> Path:
        return self.home / "runs"


def find_places() -> Places:
    """Finds the stores: LAPTIME_HOME, else `.laptime` in the project of the working directory.

    The project is the nearest folder upwards that has a `.laptime` or a `pyproject.toml`; without one it is the
    working directory itself.

    Raises:
        UsageError: LAPTIME_HOME can be no folder, or a file stands where it would be.
    """
    named = os.environ.get("LAPTIME_HOME")
    if named:
        home = expanded(named).resolve()
        if not is_text(str(home)):
            raise UsageError(f"LAPTIME_HOME, {shorten(str(home))!r}, is no UTF-8: set it to another folder.")
        return _at(home)
    here = Path.cwd().resolve()
    for folder in (here, *here.parents):
        if (folder / ".laptime").is_dir() or (folder / "pyproject.toml").is_file():
            return _at(folder / ".laptime")
    return _at(here / ".laptime")


def _at(home: Path) -> Places:
    """The stores in a folder, which need not be there; a file in its place must not look like stores without runs."""
    there = next(place for place in (home, *home.parents) if os.path.lexists(place))
    if there.is_file():
        raise UsageError(
            f"{shorten(str(home))!r} can't hold laptime's files, since {shorten(str(there))!r} is a file: set "
            "LAPTIME_HOME to a folder."
        )
    return Places(home)


def require_working_folder() -> None:
    """Refuses to work where the working directory was removed, without which neither torch nor git does.

    Raises:
        UsageError: that is so.
    """
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("the working directory has been removed: go to another folder (cd) and try again.") from error


def is_text(name: str) -> bool:
    """Whether a name can be written to a file: the system hands out bytes that are no UTF-8 as halves of characters."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def composed(name: str) -> str:
    """A name with each letter and its accent as one sign: a Mac writes files' names as two, which look the same."""
    return unicodedata.normalize("NFC", name)


def lock_folder() -> Path:
    """The folder of the device locks: the same for every user and checkout of a machine.

    LAPTIME_LOCKS where it is set, else /run/lock, else the temporary folder.
    """
    named = os.environ.get("LAPTIME_LOCKS")
    if named:
        return expanded(named).resolve()
    shared = Path("/run/lock")
    if shared.is_dir() and os.access(shared, os.W_OK):
        return shared
    return Path(tempfile.gettempdir())
