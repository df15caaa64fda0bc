"""Names in code that is made of plans.

NOTE [Code of strangers]
A plan may come from anybody, and code that is made of it is run by somebody: torch.fx runs the code of its graphs, and
the text of `plan.code` may end up in a file. So nothing in it but values is written as it came: functions have names
of the vocabulary, keywords have to be identifiers, variables and attributes have names that we make, and texts are
written as `repr` writes them.
"""

from __future__ import annotations

import keyword
import re
from typing import Any

from syft.execution.errors import InvalidProgramError


def identifier(text: str, instead: str) -> str:
    """A text as a Python name, with `instead` before it if it begins with a digit, or for it if nothing is left."""
    cleaned = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    if not cleaned:
        return instead
    return f"{instead}_{cleaned}" if cleaned[0].isdigit() else cleaned


def is_attribute(text: str) -> bool:
    """Whether a text can stand after a dot in code, or is the number of a module in a list of modules."""
    is_name = text.isascii() and text.isidentifier() and not keyword.iskeyword(text)
    return is_name or (text.isascii() and text.isdigit())


def checked_keyword(name: Any) -> str:
    """The name of an argument, which has to be one; !! InvalidProgramError."""
    if type(name) is not str or not name.isidentifier() or keyword.iskeyword(name):
        raise InvalidProgramError(f"A plan passes an argument named {str(name)[:60]!r}, which is no name.")
    return name
