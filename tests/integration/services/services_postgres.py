"""A real Postgres on a free port of loopback, with passwords, for a test session."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ports import free_port

from laptime.host.processes import end_tree, kept_command

_READY_S = 60.0
_SUPERUSER = "postgres"


def missing() -> str:
    """Why no Postgres can run here; empty where one can."""
    if _program("initdb") is None:
        return "Postgres is not installed (Debian: apt-get install postgresql)"
    if os.getuid() == 0 and shutil.which("runuser") is None:
        return "Postgres refuses to run as root, and there is no runuser"
    return ""


def _program(name: str) -> str | None:
    """A program of the server: on the path, else where Debian puts the newest version."""
    there = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(there[-1]) if there else shutil.which(name)


def _command(name: str, *arguments: str) -> list[str]:
    """Postgres refuses to run as root."""
    program = _program(name)
    assert program is not None
    user = ["runuser", "-u", _SUPERUSER, "--"] if os.getuid() == 0 else []
    return [*user, program, *arguments]


@contextmanager
def a_postgres(folder: Path, databases: dict[str, str]) -> Iterator[str]:
    """Runs a server with a role and a database for each name, by password.

    Args:
        folder: for its files; its parents must be open to all, since the server is another user than root.
        databases: names with passwords.

    Yields:
        host:port.
    """
    data, sockets, secret = folder / "data", folder / "sockets", folder / "password"
    for made in (data, sockets):
        made.mkdir(parents=True)
    secret.write_text("superuser-secret")
    if os.getuid() == 0:
        for path in (folder, data, sockets, secret):
            shutil.chown(path, _SUPERUSER)
    asked = ("--auth=scram-sha-256", f"--username={_SUPERUSER}", f"--pwfile={secret}", "--no-sync", "--no-locale")
    subprocess.run(
        _command("initdb", "-D", str(data), "--encoding=UTF8", *asked), check=True, capture_output=True, cwd=folder
    )
    port = free_port()
    settings = (f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={sockets}", "fsync=off")
    switches = [part for setting in settings for part in ("-c", setting)]
    # Below a keeper, so that it ends with the tests however they end.
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            kept_command(*_command("postgres", "-D", str(data), *switches)), stdout=log, stderr=log, cwd=folder
        )
    try:
        _make(port, databases, process, folder / "log.txt")
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        end_tree(process.pid)
        process.wait()


def _make(port: int, databases: dict[str, str], process: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg2
    from psycopg2 import sql

    where = f"host=127.0.0.1 port={port} user={_SUPERUSER} password=superuser-secret dbname=postgres"
    until = time.monotonic() + _READY_S
    while True:
        try:
            connection = psycopg2.connect(where)
            break
        except psycopg2.OperationalError as error:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"Postgres did not start ({error}): {log.read_text()[-2000:]}") from error
            time.sleep(0.1)
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for name, password in databases.items():
                role = sql.Identifier(name)
                cursor.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, sql.Literal(password)))
                cursor.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(role, role))
    finally:
        connection.close()
