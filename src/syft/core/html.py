"""What notebooks show: small tables in HTML, with everything escaped.

One duty: markup. It shows what `repr` shows and never a value of a tensor. Imports nothing of ours.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

_LONGEST = 300


def cell(value: Any) -> str:
    """A value as escaped text, cut where it is long: tags and descriptions are other people's."""
    text = str(value)
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + " ..."
    return html.escape(text).replace("\n", "<br>")


def table(title: str, head: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """A table with a heading; numbers are aligned by the notebook's own style."""
    parts = [f"<b>{cell(title)}</b>", "<table>"]
    if head:
        parts.append("<tr>" + "".join(f"<th>{cell(one)}</th>" for one in head) + "</tr>")
    parts += [
        "<tr>" + "".join(f'<td style="text-align: left">{cell(one)}</td>' for one in row) + "</tr>"
        for row in rows
    ]
    return "\n".join([*parts, "</table>"])


class Found(list[Any]):
    """What a search found: a list of pointers that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = [
            (
                getattr(one, "id_at_location", ""),
                getattr(getattr(one, "location", None), "id", ""),
                " ".join(sorted(getattr(one, "tags", None) or ())),
                tuple(shape) if (shape := getattr(one, "shape", None)) is not None else "",
                getattr(one, "description", None) or "",
            )
            for one in self
        ]
        return table(f"{len(rows)} found", ("id", "worker", "tags", "shape", "description"), rows)
