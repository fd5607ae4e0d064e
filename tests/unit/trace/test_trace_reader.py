"""Reading: whatever stands where a chunk ends, and every file that is no trace."""

import contextlib
import gc
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.trace.trace_builder import Trace, training

from laptime.errors import DataError
from laptime.trace import reader, summarize
from laptime.trace.intervals import gaps, length, merge, subtract
from laptime.trace.reader import TraceFile

RECORDED = Path("tests/data/traces/cpu.json.gz")


@pytest.mark.parametrize("chunk", [1, 2, 7, 64])
def test_chunks_may_end_anywhere(tmp_path, monkeypatch, chunk):
    path = tmp_path / "t.json"
    whole = {
        "schemaVersion": 12345,
        "deviceProperties": [{"name": "GPU"}],
        "traceEvents": [
            {"name": 'it\'s }]{[ "quoted" é', "ts": 123.5e3, "x": float("nan")},
            7,
            {"name": "b", "args": {"n": [1, [2, 3]], "s": "\\"}},
        ],
        "distributedInfo": {"rank": 1},
        "last": 678,
    }
    path.write_text(json.dumps(whole, ensure_ascii=False, indent=1), encoding="utf-8")
    monkeypatch.setattr(reader, "CHUNK", chunk)
    file = TraceFile(path)
    events = list(file.read())
    assert [e["name"] for e in events] == ['it\'s }]{[ "quoted" é', "b"]
    assert (file.events, file.meta["schemaVersion"], file.meta["last"]) == (3, 12345, 678)
    assert file.meta["distributedInfo"] == {"rank": 1}


ODD = {
    "control characters": '{"name": "\x01"}, {}, {"a": 1}',
    "half a character": '{"name": "\\ud800"}, {}, {"a": 1}',
    "commas too many": '{},, {}, {"a": 1}',
    "commas too few": '{} {"a": 1}, {}',
    "lists of objects": '{"a": [{"b": 1}, {"b": 2}]}, {"a": 1}',
    "no objects": "7, 8, [1], null, [{}, {}], {}",
    "what looks like a border in a string": '{"a": "}, {"}, {"b": "}]"}, {}',
    "another list behind it": '{}, {"a": 1}], "more": [{"b": 1}, {"c": 2}',
    "broken": '{}, {"a": 1}, {"b" 1}, {}',
    "cut off": '{}, {"a": 1}, {"b": ',
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("batch", [1, 200])
def test_events_that_are_decoded_together_are_what_each_alone_is(tmp_path, monkeypatch, odd, batch):
    path = tmp_path / "t.json"
    plain = ", ".join(json.dumps({"name": f"op{n}", "ts": n, "args": {"dims": [[n, 8], []]}}) for n in range(30))
    path.write_text(f'{{"traceEvents": [{plain}, {ODD[odd]}, {plain}], "last": 1}}')

    def read(size):
        monkeypatch.setattr(reader, "BATCH", size)
        file, events = TraceFile(path), []
        try:
            events += file.read()
        except DataError as error:
            events.append(str(error))
        return events, file.events, file.meta

    assert read(batch) == read(1 << 30)
    assert len(read(batch)[0]) > 30


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("share", [1.0, 0.9])
def test_the_garbage_collector_rests_while_a_trace_is_read_and_is_then_as_it_was(tmp_path, on, share):
    path = training().write(tmp_path / "t.json")
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    was, seen = gc.isenabled(), {}
    (gc.enable if on else gc.disable)()
    try:
        with contextlib.suppress(DataError):
            summarize(path, told=lambda what, _: seen.update({what: gc.isenabled()}))
        assert gc.isenabled() is on
    finally:
        (gc.enable if was else gc.disable)()
    assert seen["reading"] is False
    assert seen.get("adding up steps", on) is on


def test_a_bare_list_and_bytes_that_are_no_text(tmp_path):
    trace = Trace()
    trace.step(1, 0, 100)
    trace.op("aten::NAME", 10, 50)
    path = tmp_path / "t.json"
    path.write_bytes(json.dumps(trace.events).encode().replace(b"NAME", b"na\xff\x01me"))
    (row,) = summarize(path).operators
    assert row.name == "aten::na\ufffd\x01me"


def test_malformed_events_are_passed_over(tmp_path):
    trace = Trace()
    trace.step(1, 0, 100)
    trace.op("aten::mm", 10, 50)
    trace.events += [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm"},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": "soon"},
        {"ph": "X"},
        {},
        {"ph": "X", "cat": ["cpu_op"], "name": "aten::mm", "ts": 1},
        {"ph": "X", "cat": "cpu_op", "name": 7, "ts": 1},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "args": [1]},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": float("nan")},
        {"ph": "X", "cat": "python_function", "name": "", "ts": 1},
        {"ph": "X", "cat": "gpu_memcpy", "name": "m", "ts": 1, "args": {"bytes": float("inf")}},
    ]
    assert summarize(trace.write(tmp_path / "t.json")).operators[0].calls == 1


def test_ids_sizes_and_names_that_no_file_holds_do_no_harm(tmp_path):
    trace = Trace()
    trace.step(1, 0, 100)
    op = trace.op("aten::mm\ud800", 10, 50, **{"correlation": 1 << 70, "External id": 1 << 64})
    trace.launch(op, 12, 30, 10, "Memcpy HtoD (Pageable -> Device)", cat="gpu_memcpy", bytes=1 << 80)
    path = trace.write(tmp_path / "t.json")
    assert summarize(path, in_memory=2) == summarize(path)
    assert summarize(path).operators[0].name == "aten::mm?"


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_backslashes_that_nobody_escaped_are_read(tmp_path, monkeypatch, chunk):
    """As torch wrote the paths of Windows."""
    monkeypatch.setattr(reader, "CHUNK", chunk)
    path = tmp_path / "t.json"
    events = r'{"name": "C:\\Users\\me\\a.py(3): f"}, {"name": "C:\Users\me\a.py(3): f"}, {"name": "\u0041\"\d"}'
    path.write_text(f'{{"schemaVersion": 1, "traceEvents": [{events}]}}')
    names = [e["name"] for e in TraceFile(path).read()]
    assert names == [r"C:\Users\me\a.py(3): f"] * 2 + [r'A"\d']


def _said(path):
    with pytest.raises(DataError) as caught:
        summarize(path)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"   \n", "not JSON"),
        (b"hello", "not JSON"),
        (b"{not json", "not JSON"),
        (b'{"a": 1}', "JSON without traceEvents"),
        (b'{"traceEvents": [' + b"[" * 200_000, "nested too deep"),
        (b'{"traceEvents": []}', "another tool"),
        (b'{"traceEvents": [{"ph": "X", "cat": "FEE", "name": "f", "ts": 1, "dur": 2}]}', "another tool"),
        (b"\x0a\x12\x34\x08binary", "Perfetto"),
        (b"SQLite format 3\0", "nsys"),
        (b"PK\x03\x04zip", "zip archive: unpack it"),
        (b"\x28\xb5\x2f\xfdz", "zstd: unpack it"),
        (b"BZh9", "bzip2"),
        (b"\xfd7zXZ", "by xz"),
        (b"t.json".ljust(257, b"\0") + b"ustar\0", "tar archive"),
        (b'{"schemaVersion": 1, "traceEvents": [{"a": 1}, {"b": inf}' + b", {}" * 99, "broken JSON after event 1"),
        (b"\x80\x04\x95pickle", "pickle"),
        (b"\x1f\x8bbroken, and long enough", "damaged gzip"),
    ],
)
def test_files_that_are_no_trace(tmp_path, content, words):
    path = tmp_path / "t.json"
    path.write_bytes(content)
    assert words in _said(path)


def test_a_folder_names_a_trace_in_it(tmp_path):
    assert "there is none" in _said(tmp_path)
    training().write(tmp_path / "rank0.pt.trace.json")
    assert "rank0.pt.trace.json" in _said(tmp_path)


def test_a_trace_without_steps_says_how_to_mark_them(tmp_path):
    trace = Trace()
    trace.op("aten::mm", 10, 50)
    message = _said(trace.write(tmp_path / "t.json"))
    assert "1 events but no steps" in message
    assert "prof.step()" in message
    trace.launch(1, 1, 2, 3)
    trace.events = [e for e in trace.events if e["cat"] == "kernel"]
    assert "ProfilerActivity.CPU" in _said(trace.write(tmp_path / "t.json"))


def test_what_comes_after_the_last_batch_is_no_step(tmp_path):
    """A profiler that stops after the loop, within a cycle, marks it as one."""
    trace = training()
    whole = summarize(trace.write(tmp_path / "t.json"))
    trace.step(9, 2000, 900)
    trace.note("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 2000, 800)
    trace.op("aten::empty", 2100, 2)
    assert summarize(trace.write(tmp_path / "t.json")) == whole
    trace.events = [e for e in trace.events if e["ts"] >= 2000]
    assert "one step in which nothing runs" in _said(trace.write(tmp_path / "t.json"))


@pytest.mark.parametrize("share", [0.3, 0.6, 0.999])
def test_a_trace_that_is_cut_off_says_how_far_it_goes(tmp_path, share):
    text = gzip.decompress(RECORDED.read_bytes())
    path = tmp_path / "t.json"
    path.write_bytes(text[: int(len(text) * share)])
    message = _said(path)
    assert "cut off after" in message
    assert " 0 events" not in message


def test_a_gzip_that_is_cut_off(tmp_path):
    path = tmp_path / "t.json.gz"
    path.write_bytes(RECORDED.read_bytes()[:12000])
    assert "cut off after" in _said(path)


def test_a_damaged_gzip(tmp_path):
    path = tmp_path / "t.json.gz"
    content = bytearray(RECORDED.read_bytes())
    content[-8:-4] = b"\0\0\0\0"
    path.write_bytes(content)
    assert "damaged" in _said(path)


@pytest.mark.parametrize("packed", [False, True])
def test_who_waits_is_told_how_far_it_is(tmp_path, monkeypatch, packed):
    content = gzip.decompress(RECORDED.read_bytes())
    path = tmp_path / "t.json"
    # Stored as it is: since Python 3.12 a file as small as the packed one is read at once.
    path.write_bytes(gzip.compress(content, compresslevel=0) if packed else content)
    monkeypatch.setattr(reader, "CHUNK", 10_000)
    told: dict[str, list[float]] = {}
    summarize(path, told=lambda what, share: told.setdefault(what, []).append(share))
    assert list(told) == ["reading", "adding up steps"]
    for shares in told.values():
        assert shares == sorted(shares)
        assert shares[-1] == 1.0
    assert len(set(told["reading"])) > 2


SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 15)).map(lambda s: (s[0], s[0] + s[1])), max_size=8)


@given(SPANS, SPANS)
@settings(max_examples=60)
def test_stretches_of_time_are_sets_of_moments(first, second):
    def moments(spans):
        return {m for low, high in spans for m in range(low, high)}

    one, two = merge(first), merge(second)
    assert moments(one) == moments(first)
    assert length(one) == len(moments(first))
    assert moments(subtract(one, two)) == moments(first) - moments(second)
    assert moments(gaps(one, 5, 30)) == set(range(5, 30)) - moments(first)
    assert moments(merge(first, 5, 30)) == moments(first) & set(range(5, 30))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_trace(tmp_path):
    """A trace of 60 MB takes no more than 25 MiB above one of 6 MB, and its rows alone would take 40."""
    sizes = [_peak_mib(tmp_path, steps) for steps in (20, 200)]
    assert sizes[1] - sizes[0] < 25


def _peak_mib(tmp_path, steps):
    """Writes a long trace of some 300 kB a step and reads it in a process of its own."""
    path = tmp_path / f"{steps}.json"
    ops = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mul", "pid": 1, "tid": 1, "ts": 0, "dur": 0.5,
         "args": {"External id": 7, "Input Dims": [[8, 8], [8, 8]], "Fill": "x" * 40}}
    ] * 1500  # fmt: skip
    mark = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "dur": 2000}
    body = ", ".join(json.dumps(op, indent=1).replace('"ts": 0', '"ts": %d') for op in ops)
    with path.open("w") as stream:
        stream.write('{"traceEvents": [')
        for step in range(steps):
            stream.write(json.dumps({**mark, "ts": step * 2000}) + ", ")
            stream.write(body % tuple(range(step * 2000, step * 2000 + 1500)) + ", ")
        stream.write("{}]}")
    code = (
        "import resource, sys; from pathlib import Path; from laptime.trace import summarize;"
        "summarize(Path(sys.argv[1]), in_memory=20000);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    return float(done.stdout)
