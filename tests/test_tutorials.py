"""The tutorials run as they are written, assert what they claim, and their notebooks are made of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from forked_runs import ROOT, run

SCRIPTS = sorted((ROOT / "docs/tutorials").glob("[0-9]*.py"))
TITLES = [
    "First pointers",
    "Remote training",
    "Federated learning in five minutes",
    "Three real processes",
    "Strategies and drop-outs",
    "Secure aggregation",
    "Plans and training plans",
    "Encrypted inference of a CNN, with its bill",
    "Encrypted training",
    "A Hugging Face model: remote, federated, encrypted",
    "DP-SGD with an epsilon curve",
    "Budgets and releases",
    "PATE: learning from teachers who vote",
    "Your own tensor type",
    "Running a worker for your hospital",
]

#: Nothing is shown on a screen, whatever the machine has; small tensors need one thread, here and in other processes.
BEFORE = """
import os
os.environ["OMP_NUM_THREADS"] = "1"
import torch
torch.set_num_threads(1)
import matplotlib
matplotlib.use("Agg")
import warnings
warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
"""
#: What most tutorials use.
IMPORTS = ("matplotlib.pyplot", "syft.dp.accounting")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_tutorial_runs_and_what_it_claims_is_so(script: Path, tmp_path: Path) -> None:
    source = script.read_text()
    assert source.count("assert ") >= 2, "a tutorial asserts what it claims"
    status, printed = run(tmp_path, BEFORE + source, *IMPORTS)
    assert status == 0, printed


def test_a_claim_that_does_not_hold_is_noticed(tmp_path: Path) -> None:
    source = SCRIPTS[0].read_text()
    assert source.count("temperatures * 2)") == 1
    status, printed = run(tmp_path, BEFORE + source.replace("temperatures * 2)", "temperatures * 3)"))
    assert status == 1 and "AssertionError" in printed


def test_there_are_fifteen_tutorials_with_these_titles() -> None:
    titles = [re.search(r"^# # (\d+)\. (.+)$", script.read_text(), re.MULTILINE) for script in SCRIPTS]
    assert [(int(found[1]), found[2]) for found in titles if found] == list(enumerate(TITLES, start=1))


def cells_of_script(script: Path) -> list[tuple[str, str]]:
    """Kind and text of every cell of a script in jupytext's "percent" format."""
    body = script.read_text().split("# ---\n", 2)[2]
    cells = []
    for part in re.split(r"^# %%", body, flags=re.MULTILINE)[1:]:
        head, _, text = part.partition("\n")
        if head.strip() == "[markdown]":
            lines = [line.removeprefix("#").removeprefix(" ") for line in text.strip("\n").split("\n")]
            cells.append(("markdown", "\n".join(lines)))
        else:
            cells.append(("code", text.strip("\n")))
    return cells


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_has_the_cells_of_its_script_and_their_output(script: Path) -> None:
    notebook = json.loads(script.with_suffix(".ipynb").read_text())
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    assert cells == cells_of_script(script), "run `make notebooks`"
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs and not [output for output in outputs if output["output_type"] == "error"]
    drawn = sum("image/svg+xml" in output.get("data", {}) for output in outputs)
    assert drawn == script.read_text().count("plt.show()")


def test_no_notebook_tells_where_it_was_made() -> None:
    for script in SCRIPTS:
        text = script.with_suffix(".ipynb").read_text()
        assert not re.search(r"/work/|/home/|/root/|/Users/|site-packages", text), script.stem
