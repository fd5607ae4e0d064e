"""A data set that holds an open file is read right by loader workers, which forks alone would have share its place."""

import fcntl
import os
import socket
import tempfile

import pytest
import torch
import urllib3
from tests.own_files import TUPLE, write
from tests.serving import Quiet, serving
from tests.unit.conftest import make_spec

from laptime.data.own.begun import read_apart
from laptime.engine.build import build, make_recipe, open_data
from laptime.preflight.inspecting import inspect
from laptime.spec import OptimizationSpec

# By its number, which Python neither buffers nor closes.
_HOLDING = """
import os


class Records(Dataset):
    def __init__(self, first, last):
        self.first, self.count, self.file = first, last - first, FILE

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        OPENED
        os.lseek(self.file, 4 * 192 * (self.first + index), os.SEEK_SET)
        x = torch.frombuffer(bytearray(os.read(self.file, 4 * 192)), dtype=torch.float32)
        return x.view(3, 8, 8), Y[self.first + index]


class Workload:
    higher_is_better = False

    def data(self):
        self.records = Records(0, 64)
        return self.records, Records(64, 96)

    def evaluate(self, model, batches):
        return os.lseek(self.records.file, 0, os.SEEK_CUR) if self.records.file else 0
"""
_WRITTEN = 'os.open(__file__ + ".bin", os.O_RDONLY)'


def holding(file, given=_WRITTEN, opened="pass"):
    """A workload whose items lie in a file that the data set opens when it is made, or with its first item."""
    made = 'X.numpy().tofile(__file__ + ".bin")\n' + _HOLDING.replace("FILE", given).replace("OPENED", opened)
    body = TUPLE.replace(
        """
    def data(self):
        return TensorDataset(X[:64], Y[:64]), TensorDataset(X[64:], Y[64:])
""",
        "",
    )
    return write(file, body, ("\nclass Workload:\n", made))


@pytest.mark.parametrize("changes", [(), ("None", f"self.file = self.file or {_WRITTEN}")])
def test_workers_do_not_move_the_place_of_this_process_or_of_each_other(file, changes):
    chosen = (OptimizationSpec(name="workers", options={"count": 2}),)
    spec = make_spec(data=inspect(holding(file, *changes)), workload="rows", optimizations=chosen)
    data = open_data(spec)
    parts = build(make_recipe(spec, data, chosen), mark=lambda _: None)
    data.train.batch([5])
    held = data.train.dataset.file
    place = os.lseek(held, 0, os.SEEK_CUR)
    images = torch.cat([batch.inputs[0] for batch in parts.loader.epoch(0)])
    assert os.lseek(held, 0, os.SEEK_CUR) == place > 0
    wanted = torch.cat([data.train.batch([index])[0] for index in range(64)])
    assert images.flatten(1).sum(1).sort().values.equal(wanted.flatten(1).sum(1).sort().values)


def test_a_file_is_opened_anew_at_its_place_where_it_is_read_alone(tmp_path):
    (tmp_path / "read").write_bytes(bytes(range(100)))
    with (tmp_path / "read").open("rb", buffering=0) as read, (tmp_path / "written").open("wb") as written:
        read.seek(30)
        kept = os.dup(read.fileno())
        (tmp_path / "read").unlink()
        read_apart(read.fileno())
        read_apart(written.fileno())
        assert read.read(2) == bytes((30, 31))
        assert os.lseek(kept, 0, os.SEEK_CUR) == 30, "as shared as forks have it, it would be 32"
        written.write(b"still open")
    os.close(kept)
    assert (tmp_path / "written").read_bytes() == b"still open"


def test_a_file_that_is_written_too_is_opened_anew_unless_it_is_locked(tmp_path):
    """What a data set unpacks into a file without a name; a lock that this process holds through one stays."""
    with tempfile.TemporaryFile(buffering=0) as unpacked, (tmp_path / "lock").open("w+b", buffering=0) as lock:
        for file in (unpacked, lock):
            file.write(bytes(range(100)))
            file.seek(30)
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = [os.dup(file.fileno()) for file in (unpacked, lock)]
        read_apart(unpacked.fileno())
        with pytest.raises(BlockingIOError):
            read_apart(lock.fileno())
        assert unpacked.read(2) == lock.read(2) == bytes((30, 31))
        assert [os.lseek(number, 0, os.SEEK_CUR) for number in kept] == [30, 32]
    for number in kept:
        os.close(number)


class Answering(Quiet):
    """Answers with the number that stands in the path, and goes on listening on the same connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.give(self.path[1:].encode())


def test_a_connection_that_a_fork_has_a_copy_of_is_made_anew(tmp_path):
    """Two workers that ask through one are answered what the other has asked for."""
    with serving(Answering) as address, urllib3.connection_from_url(address) as pool:
        assert pool.request("GET", "/1").data == b"1"
        used = pool.pool.queue[-1].sock
        with socket.socket(fileno=os.dup(used.fileno())) as kept:
            read_apart(used.fileno())
            assert pool.request("GET", "/2").data == b"2"
            assert pool.pool.queue[-1].sock.getsockname() != kept.getsockname()
            kept.sendall(b"GET /3 HTTP/1.1\r\n\r\n")  # the other process's goes on
            assert kept.recv(1000).startswith(b"HTTP/1.1 200")
