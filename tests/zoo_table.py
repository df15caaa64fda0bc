"""The table of the zoo on the page "Real models": read from it, and written into it by `python tests/zoo_table.py`."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "real_models.md"
BEGIN, END = "<!-- the zoo: made by tests/zoo_table.py -->", "<!-- end of the zoo -->"


def committed() -> dict[tuple[str, str], str]:
    """(model, way) -> what the page says."""
    text = PAGE.read_text()
    lines = [line for line in text[text.index(BEGIN) : text.index(END)].splitlines() if line.startswith("|")]
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {(row[0], way): cell for row in rows for way, cell in zip(header[1:], row[1:], strict=True)}


def written(cells: dict[tuple[str, str], str]) -> str:
    """The table as it stands on the page."""
    models, ways = (list(dict.fromkeys(key[place] for key in cells)) for place in (0, 1))
    rows = [["model", *ways], ["---"] * (len(ways) + 1)]
    rows += [[model, *(cells[model, way] for way in ways)] for model in models]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> None:
    import torch

    import syft as sy
    import zoo
    import zoo_ways

    hook = sy.TorchHook(torch)
    workers = [sy.VirtualWorker(hook, id=name) for name in ("bob", "alice", "carol")]
    cells = {}
    for entry in zoo.ALL:
        for way in zoo_ways.WAYS:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cells[entry.name, way] = zoo_ways.tried(way, entry, *workers)
            print(f"{entry.name}, {way}: {cells[entry.name, way]}", file=sys.stderr, flush=True)
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{written(cells)}\n\n{END}{after}")


if __name__ == "__main__":
    main()
