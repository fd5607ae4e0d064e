"""What says the boxes of a folder, and how it is read: a CSV, COCO's JSON, or a folder of VOC's or YOLO's files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from laptime.data.boxes.box import check_pixels, names_of_boxes, read_boxes
from laptime.data.boxes.coco import coco_names, is_coco, lack_of_coco, read_coco
from laptime.data.boxes.columns import HOW
from laptime.data.boxes.files import ending
from laptime.data.boxes.read import Annotated
from laptime.data.boxes.voc import read_voc, voc_names, without_voc
from laptime.data.boxes.yolo import lack_of_yolo, read_yolo, without_yolo, yolo_names
from laptime.errors import DataError, shorten

FORMS = "a CSV, COCO's JSON, Pascal VOC's XML or YOLO's text files"
_NONE = (
    "{} holds no boxes in a form that is read: add {}, which CVAT, Label Studio and Roboflow export and "
    "labelme2coco makes of LabelMe's; {}."
)


def find_table(root: Path) -> Path:
    """The one file of boxes in a folder, wherever it lies, or the folder where each image has a file of its own.

    Raises:
        DataError: there is none, or several.
    """
    tables = ending(root, ".csv")
    if not any(map(names_of_boxes, tables)):
        tables = tables_of(root) or _folder(root) or tables
    if not tables:
        raise DataError(_lack(root) or _NONE.format(root, FORMS, HOW))
    if len(tables) > 1:
        names = [str(p.relative_to(root)) for p in tables]
        form = "CSV files" if tables[0].suffix.lower() == ".csv" else "JSON files of boxes"
        raise DataError(
            f"{root} holds {len(tables)} {form} ({', '.join(map(shorten, names[:4]))}): name the one that says the "
            f"boxes with --data '{root}#boxes={min(names, key=lambda name: _likely(root, name))}'."
        )
    return tables[0]


def _lack(root: Path) -> str:
    """What is there in the place of boxes and what it lacks; empty where nothing is like a form that is read."""
    return next(filter(None, map(lack_of_coco, ending(root, ".json"))), "") or lack_of_yolo(root)


def tables_of(root: Path) -> list[Path]:
    """The files of a folder that say boxes of many images each: CSVs, or where there is none those of COCO's form."""
    tables = [path for path in ending(root, ".csv") if names_of_boxes(path)]
    return tables or [path for path in ending(root, ".json") if is_coco(path)]


def _folder(root: Path) -> list[Path]:
    """The folder, where its images have files of their own, as a list."""
    return [] if without_voc(root) and without_yolo(root, root) else [root]


def _likely(root: Path, name: str) -> tuple[bool, bool, bool]:
    """Lowest of the file that is meant most likely: one with boxes, that of a training, COCO's own of whole things."""
    is_csv = name.lower().endswith(".csv")
    return (
        is_csv and not names_of_boxes(root / name),
        "train" not in "/".join(Path(name).parts[-2:]).lower(),
        "instances" not in name.lower(),
    )


def read_table(root: Path, table: Path) -> Annotated:
    """Reads what says the boxes of a folder, by the form that its name says; raises DataError with file and place."""
    if table.is_dir():
        found = read_yolo(root, table) if without_voc(table) else read_voc(root, table)
    elif table.suffix.lower() == ".json":
        found = read_coco(table)
    else:
        found = Annotated("", read_boxes(table), "background")
    check_pixels(found.boxes)
    return found


def named_by_others(root: Path, tables: Sequence[Path]) -> Iterator[tuple[Path, list[str]]]:
    """What else of the same form a folder holds, and what it calls its images; none of one without boxes."""
    first = tables[0]
    if first.is_dir():
        yield from yolo_names(root, first) if without_voc(first) else voc_names(root, first)
        return
    is_json = first.suffix.lower() == ".json"
    for other in ending(root, ".json" if is_json else ".csv"):
        if other not in tables:
            yield other, coco_names(other) if is_json else names_of_boxes(other)


def saying(root: Path) -> list[Path]:
    """The files in a folder that may say boxes, or whose an image is; raises DataError."""
    return ending(root, ".csv", ".json", ".xml", ".txt", ".yaml", ".yml", ".names", ".labels")
