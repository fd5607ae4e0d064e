"""What is left of the host's memory, also where there is torch alone."""

import sys

import psutil
import pytest

from laptime.host import memory as host_memory


def test_what_files_left_in_the_cache_counts_as_free(tmp_path, monkeypatch):
    assert psutil.virtual_memory().total > host_memory.free_memory() > 0
    monkeypatch.setattr(host_memory, "_GROUP", tmp_path)
    of_the_machine = host_memory.free_memory()
    (tmp_path / "memory.current").write_text("900000\n")
    (tmp_path / "memory.stat").write_text("anon 100000\ninactive_file 500000\nactive_file 300000\nslab 7\n")
    (tmp_path / "memory.max").write_text("1000000\n")
    assert host_memory.free_memory() == 900_000
    (tmp_path / "memory.max").write_text("max\n")
    assert host_memory.free_memory() == pytest.approx(of_the_machine, rel=0.2)


def test_without_psutil_it_is_what_linux_says(monkeypatch):
    with_it = host_memory.free_memory()
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert host_memory.free_memory() == pytest.approx(with_it, rel=0.2)
