"""Prints what an image installs, one requirement a line, out of the pyproject.toml of the working directory.

    requirements.py [--only NAME]... [--extra EXTRA]...

Without `--only` all of the project's dependencies are meant; `--extra` adds those of an extra.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path


def main() -> int:
    """Writes the requirements; a name or an extra that the file doesn't have is an error of the image."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--extra", action="append", default=[])
    wanted = parser.parse_args()
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = {re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]: line for line in project["dependencies"]}
    chosen = [lines[name] for name in wanted.only or lines]
    for extra in wanted.extra:
        chosen += project["optional-dependencies"][extra]
    sys.stdout.write("\n".join(chosen) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
