"""Images and sets of unusual size: what is decoded at a time, by whom, and what is asked of each of 100,000 files."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from box_samples import coco_of, write_json
from data_samples import write_image
from PIL import Image

from laptime.data import decode_pool
from laptime.data.boxes import coco as box_coco
from laptime.data.boxes.coco import read_coco
from laptime.data.boxes.files import ending
from laptime.data.decode import Shape, decode_all, read_image, size_said, sizes_of
from laptime.data.decode_pool import in_blocks
from laptime.data.fetch import fetch
from laptime.errors import DataError

R = TypeVar("R")


class Pool(ThreadPoolExecutor):
    """Threads in place of processes, which note what they are given."""

    given: list[list[str]]

    running = 0

    def __init__(self, workers: int, *_: object) -> None:
        super().__init__(workers)
        Pool.running += 1

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See ThreadPoolExecutor."""
        Pool.running = 0
        super().shutdown(wait, cancel_futures=cancel_futures)

    def submit(self, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """See ThreadPoolExecutor."""
        Pool.given.append(args[0])
        return super().submit(fn, *args, **kwargs)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> type[Pool]:
    """The pool on two cores, with nothing given yet."""
    Pool.given = []
    monkeypatch.setattr(decode_pool, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(decode_pool, "allowed_cores", lambda: 2)
    return Pool


def heavy(path: Path, nbytes: int = 3 << 20) -> Path:
    """A file with an image's name that takes so many bytes, and no room."""
    with path.open("wb") as file:
        file.truncate(nbytes)
    return path


def test_a_block_holds_less_of_what_costs_more(tmp_path: Path) -> None:
    large, small = str(heavy(tmp_path / "a.jpg")), str(heavy(tmp_path / "b.jpg", 1000))
    assert [len(block) for block in in_blocks([small] * 1100)] == [512, 512, 76]
    assert in_blocks([large, large, small, large]) == [[large], [large, small], [large]]
    assert [len(block) for block in in_blocks([small] * 5, nbytes=16 << 20)] == [2, 2, 1]
    assert in_blocks([small] * 2, nbytes=1 << 40) == [[small], [small]]
    assert in_blocks([large, str(tmp_path / "gone.jpg")]) == [[large, str(tmp_path / "gone.jpg")]]


def test_blocks_of_large_sizes_are_small(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", 1)
    blocks = list(decode_all(tmp_path, ["a.png"] * 12, Shape((1024, 1024), resize=True)))
    assert sum(map(len, blocks)) == 12
    assert max(block.nbytes for block in blocks) <= 32 << 20


def test_few_photographs_are_decoded_by_all_cores(tmp_path: Path, pool: type[Pool]) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1024, 1200, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.png", compress_level=0)
    (block, *more) = decode_all(tmp_path, ["a.png"] * 6, Shape((8, 8), resize=True))
    assert [len(given) for given in pool.given] == [1] * 6
    assert all(np.array_equal(block, other) for other in more)


def test_photographs_with_boxes_are_read_by_all_cores(
    photographs: Path, home: Path, pool: type[Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_pool, "_FILES_BYTES", 1)
    said: list[str] = []
    digest = fetch("detection", str(photographs), home, lambda what, done, total: said.append(what)).digest
    assert list(dict.fromkeys(said)) == ["looking through", "reading"]
    assert sorted(Path(path).name for given in pool.given for path in given) == [f"{i}.png" for i in range(5)]
    monkeypatch.setattr(decode_pool, "allowed_cores", lambda: 1)
    assert fetch("detection", str(photographs), home / "other").digest == digest


def test_an_error_about_a_box_ends_the_pool(
    photographs: Path, home: Path, pool: type[Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_pool, "_FILES_BYTES", 1)
    found = coco_of(photographs)
    (photographs / "boxes.csv").unlink()
    for image in found["images"]:
        del image["width"], image["height"]  # so that only the image itself tells
    found["annotations"][0]["bbox"] = [5, 4, 500, 20]
    write_json(photographs, found, "boxes.json")
    with pytest.raises(DataError, match="xmax 505 is outside of") as caught:
        fetch("detection", str(photographs), home)
    assert pool.given
    assert not pool.running
    assert caught.tb is not None


def test_an_image_that_is_cut_off_is_named_by_whoever_reads_it(tmp_path: Path, pool: type[Pool]) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(6)]
    for path in paths:
        write_image(path, 1, (600, 900))
    paths[3].write_bytes(paths[3].read_bytes()[:200])
    with pytest.raises(DataError, match=r"3\.png is unreadable or cut off"):
        list(sizes_of(paths))


@pytest.mark.parametrize("turn", [None, 3, 6, 8])
def test_the_size_of_a_jpeg_is_that_of_its_first_bytes(tmp_path: Path, turn: int | None) -> None:
    exif = Image.Exif()
    if turn:
        exif[0x0112] = turn
    path = tmp_path / "a.jpg"
    Image.new("RGB", (90, 60)).save(path, exif=exif)
    expected = read_image(path).shape[:2]
    assert size_said(path) == expected == ((90, 60) if turn in (6, 8) else (60, 90))
    path.write_bytes(path.read_bytes()[:-20])  # its pixels are not looked at here
    assert size_said(path) == expected


def test_the_size_of_a_png_is_that_of_all_of_it(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png", 1, (60, 90))
    assert size_said(tmp_path / "a.png") == read_image(tmp_path / "a.png").shape[:2]
    (tmp_path / "a.png").write_bytes(b"none")
    with pytest.raises(DataError, match="unreadable"):
        size_said(tmp_path / "a.png")


def test_the_place_of_an_annotation_is_made_without_looking_for_secrets(
    photographs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = coco_of(photographs)
    asked: list[str] = []
    monkeypatch.setattr(box_coco, "shorten", lambda text, *_: asked.append(text) or text)
    write_json(photographs, found, "boxes.json")
    assert len(read_coco(photographs / "boxes.json").boxes) > 5
    assert asked == ["boxes.json"]


def test_files_are_listed_without_a_call_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b/2.TXT", "a-c/1.txt", "a/1.txt", "a/txt", "a/.h.txt", ".git/1.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    asked: list[Path] = []
    is_file = Path.is_file
    monkeypatch.setattr(Path, "is_file", lambda path: asked.append(path) or is_file(path))
    (tmp_path / "c.txt").symlink_to("a/1.txt")
    (tmp_path / "d.txt").symlink_to("nowhere")
    (tmp_path / "e.txt").symlink_to("e.txt")
    (tmp_path / "f.txt").mkdir()
    found = [path.relative_to(tmp_path).as_posix() for path in ending(tmp_path, ".txt")]
    assert found == ["a/1.txt", "a-c/1.txt", "b/2.TXT", "c.txt"]
    assert {path.name for path in asked} == {"c.txt", "d.txt", "e.txt"}
