"""`syft new`: a project to begin with."""

from __future__ import annotations

import random
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

OWNERS = ("north", "east", "south")
_ROWS = 120
_FILES = {"train.py": "train.py.txt", "places.py": "places.py.txt", "README.md": "README.md.txt"}


def new(
    name: Annotated[str, typer.Argument(help="The folder that is made.")],
) -> None:
    """Make a project: a program that trains on the data of three owners, and made-up data for it.

    It runs in one process, in processes, and against machines, by a change of one line.
    """
    folder = Path(name)
    if folder.exists():
        raise ValueError(f"{folder} is there already, and nothing is overwritten. Choose another name.")
    template = resources.files("syft.cli") / "template"
    folder.mkdir(parents=True)
    for file, source in _FILES.items():
        text = (template / source).read_text(encoding="utf-8").replace("# NAME", f"# {folder.name}")
        (folder / file).write_text(text, encoding="utf-8")
    for number, owner in enumerate(OWNERS):
        place = folder / "data" / owner
        place.mkdir(parents=True)
        (place / "patients.csv").write_text(_patients(number), encoding="utf-8")
        (place / "patients.toml").write_text((template / "patients.toml.txt").read_text(encoding="utf-8"))
    print(f"made {folder}. Try it: cd {folder} && python train.py")


def _patients(seed: int) -> str:
    """Made-up patients: who is old and heavy is sick, as a rule."""
    chance = random.Random(seed)  # noqa: S311  (made-up data, the same every time)
    lines = ["age,weight,sex,sick"]
    for _ in range(_ROWS):
        age, weight, sex = chance.gauss(0, 1), chance.gauss(0, 1), chance.choice("fm")
        sick = age + weight + 0.5 * (sex == "m") + chance.gauss(0, 0.3) > 0.25
        lines.append(f"{age:.3f},{weight:.3f},{sex},{'yes' if sick else 'no'}")
    return "\n".join(lines) + "\n"
