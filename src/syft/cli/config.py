"""`syft worker --config worker.toml`: the options of the command line in a file, checked as those are.

    id = "hospital"
    listen = ["wss://0.0.0.0:8777"]
    data = "/srv/hospital/data"
    metrics-port = 9100

A key is an option without its dashes. The file becomes arguments in front of the others, so that each is checked as on
the command line, and what is given there as well counts; options that may be given several times add up.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

_OPTION = "--config"
#: Options that do not stand in a file.
_NOT_IN_FILES = ("config", "data_on_stdin", "help")


def expanded(app: typer.Typer, arguments: Sequence[str]) -> list[str]:
    """The arguments with those of the file in the place of `--config FILE`, if they are a worker's. !! ValueError"""
    given = list(arguments)
    if given[:1] != ["worker"]:
        return given
    for place, argument in enumerate(given):
        if argument == _OPTION and place + 1 < len(given):
            file, rest = given[place + 1], given[1:place] + given[place + 2 :]
        elif argument.startswith(f"{_OPTION}="):
            file, rest = argument.partition("=")[2], given[1:place] + given[place + 1 :]
        else:
            continue
        group: Any = typer.main.get_command(app)
        return ["worker", *read_config(Path(file), group.commands["worker"].params), *rest]
    return given


def read_config(file: Path, parameters: Sequence[Any]) -> list[str]:
    """The options that a file holds, as arguments. !! ValueError"""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"{_OPTION} {file} cannot be read: {error}.") from error
    options = {
        option.lstrip("-"): parameter
        for parameter in parameters
        if parameter.name not in _NOT_IN_FILES
        for option in parameter.opts
        if option.startswith("--")
    }
    made: list[str] = []
    for key, value in found.items():
        name = key.replace("_", "-")
        if name not in options:
            near = difflib.get_close_matches(name, options, 1)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"{_OPTION} {file}: there is no option {key[:40]!r}.{meant} The keys are {', '.join(sorted(options))}."
            )
        texts = _texts(f"{_OPTION} {file}: {key}", value, bool(options[name].multiple))
        made += [f"--{name}={text}" for text in texts]
    return made


def _texts(where: str, value: Any, is_list: bool) -> list[str]:
    values = value if isinstance(value, list) else [value]
    if is_list != isinstance(value, list):
        raise ValueError(f"{where} takes {'a list, in brackets' if is_list else 'one value'}.")
    if not all(type(one) in (str, int, float) for one in values):
        raise ValueError(f"{where} takes texts and numbers, and was given {str(value)[:60]!r}.")
    return [str(one) for one in values]


def refuse_late(file: Path | None) -> None:
    """The option itself is never seen where `main` has read the file. !! ValueError"""
    if file is not None:
        raise ValueError(f"{_OPTION} {file} stands once, and is read by the command `syft` alone.")
