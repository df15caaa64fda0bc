"""`make notebooks`: run the tutorials' scripts and write their notebooks, with outputs.

python tools/notebooks.py             all of docs/tutorials/*.py
python tools/notebooks.py 03 11       those whose names begin so
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "docs" / "tutorials"

#: Figures are SVG; the ids inside one do not change from run to run.
KERNEL_CONFIG = """
c.InlineBackend.figure_formats = {"svg"}
c.InlineBackend.rc = {"svg.hashsalt": "resyft", "figure.dpi": 100, "savefig.bbox": "tight"}
"""


def make_notebook(script: Path) -> None:
    """Run one script, cell by cell, and write the notebook beside it."""
    notebook = jupytext.read(script)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}
        ).execute()
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [_cleaned(output) for output in cell.outputs]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = {"kernelspec": kernel, "jupytext": {"formats": "py:percent,ipynb"}}
    nbformat.write(notebook, script.with_suffix(".ipynb"))


def _cleaned(output: Any) -> Any:
    """An output without the places of this machine, and drawings without the time."""
    if "text" in output:
        output.text = re.sub(r"/tmp/\S+?(?=[:\s'\"])", "/tmp/...", output.text)
    drawing = output.get("data", {}).get("image/svg+xml")
    if drawing is not None:
        output.data["image/svg+xml"] = re.sub(r"\s*<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
        output.data.pop("text/plain", None)
    return output


def main(chosen: list[str]) -> None:
    scripts = [
        script
        for script in sorted(FOLDER.glob("[0-9]*.py"))
        if not chosen or any(script.name.startswith(start) for start in chosen)
    ]
    with tempfile.TemporaryDirectory() as settings:
        profile = Path(settings) / "profile_default"
        profile.mkdir()
        (profile / "ipython_kernel_config.py").write_text(KERNEL_CONFIG)
        # Warnings are errors where the tests run the same scripts; here they would tell about this machine.
        os.environ |= {"IPYTHONDIR": settings, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        for script in scripts:
            make_notebook(script)
            print(f"{script.stem}.ipynb", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
