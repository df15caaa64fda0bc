"""Hooks of MkDocs: pages of the site that are made of other files.

- SECURITY.md, CHANGELOG.md and CONTRIBUTING.md of the repository become pages.
- Each notebook of docs/tutorials becomes a page: text, code, output, drawings.

Links in them are turned into links of the site, so that a strict build checks them as well.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
REPOSITORY_PAGES = {
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
}
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def on_files(files: Files, config: Any) -> Files:
    for page, source in REPOSITORY_PAGES.items():
        text = re.sub(r"\]\(docs/", "](", (ROOT / source).read_text())
        for other, its_source in REPOSITORY_PAGES.items():
            text = text.replace(f"]({its_source})", f"]({other})")
        files.append(File.generated(config, page, content=text))
    for notebook in sorted((ROOT / "docs/tutorials").glob("[0-9]*.ipynb")):
        drawings: dict[str, str] = {}
        text = page_of_notebook(json.loads(notebook.read_text()), notebook.stem, drawings)
        files.append(File.generated(config, f"tutorials/{notebook.stem}.md", content=text))
        for name, drawing in drawings.items():
            files.append(File.generated(config, f"tutorials/{name}", content=drawing))
    return files


def page_of_notebook(notebook: dict[str, Any], stem: str, drawings: dict[str, str]) -> str:
    """The notebook as Markdown; its drawings are added to `drawings` by the names they have in it."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"\]\((\d\d_\w+)\.ipynb\)", r"](\1.md)", source))
            if len(parts) == 1:
                parts.append(
                    f"Download: [notebook]({stem}.ipynb){{ download }}, [script]({stem}.py){{ download }}."
                )
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            drawing = output.get("data", {}).get("image/svg+xml")
            if drawing is not None:
                name = f"{stem}-{len(drawings) + 1}.svg"
                drawings[name] = "".join(drawing)
                parts.append(f"![Figure {len(drawings)}]({name}){{ .figure }}")
                continue
            text = "".join(output.get("text") or output.get("data", {}).get("text/plain") or "")
            if text.strip():
                parts.append(f"```{{ .text .output }}\n{_COLOURS.sub('', text).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"
