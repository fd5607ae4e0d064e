"""Where a store keeps files, looked at with the first of a run: some places take them and have them not."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from laptime.errors import TrackingError
from laptime.tracking.uri import is_sqlite, masked

# Below an experiment's place each run has `<run id>/artifacts`.
_BELOW = 2


class FilesPlace:
    """Looks once for each run; two requests.

    Args:
        client: an MlflowClient.
        uri: the store.
    """

    def __init__(self, client: Any, uri: str) -> None:
        self._client, self._uri = client, uri
        self._looked: set[str] = set()

    def require_here(self, run_id: str) -> str:
        """Refuses a folder of another machine, which MLflow would make on this one; gives the place of a new run.

        A server that does not pass files on (`--no-serve-artifacts`) names a folder for its clients to write to.

        Returns:
            The place, where what is sent first is still to be looked for; empty for a run that was looked at.

        Raises:
            TrackingError: the folder is not on this machine.
        """
        if run_id in self._looked or is_sqlite(self._uri):
            return ""
        place = str(self._client.get_run(run_id).info.artifact_uri)
        self._looked.add(run_id)
        folder = _folder(place)
        if folder is not None and not folder.exists():
            self._looked.discard(run_id)
            raise TrackingError(
                f"the tracking store {masked(self._uri)} keeps files in the folder {folder}, which this machine does "
                "not have: mount it here, or start the server with --serve-artifacts and take a new experiment; "
                "everything is kept in the journal, and laptime sync sends it then."
            )
        return place

    def require_arrived(self, run_id: str, path: Path, folder: str, place: str) -> None:
        """Looks whether a file is there that a server has taken: a proxy or a log-in page may have answered for it.

        Raises:
            TrackingError: it is not.
        """
        if not place.startswith(("mlflow-artifacts:", "http:", "https:")) or not path.is_file():
            return
        there = {entry.path for entry in self._client.list_artifacts(run_id, folder or None)}
        if f"{folder}/{path.name}".strip("/") not in there:
            self._looked.discard(run_id)
            raise TrackingError(
                f"the tracking store {masked(self._uri)} has taken {path.name} and does not have it: what stands "
                "before it answers PUT itself, so let that pass; everything is kept in the journal, and laptime sync "
                "sends it then."
            )


def _folder(place: str) -> Path | None:
    """The folder around an experiment's, which its server has made; None for what is no whole path of a folder."""
    parts = urlsplit(place)
    path = Path(unquote(parts.path) if parts.scheme else place)
    if parts.scheme not in ("", "file") or not path.is_absolute() or len(path.parents) <= _BELOW:
        return None
    return path.parents[_BELOW]
