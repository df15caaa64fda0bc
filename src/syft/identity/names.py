"""What may be the name of a user: it is printed, logged, compared, and written into files and certificates."""

from __future__ import annotations

from typing import Any

MAX_USER_NAME = 128
#: Prefix of the names given to anonymous users. No token or certificate can prove such a name.
ANONYMOUS = "anonymous:"


def is_user_name(name: Any) -> bool:
    """1 to 128 printable characters, without blanks at either end."""
    # NB: `isprintable` is False for control characters, line separators, direction marks and lone surrogates.
    return (
        type(name) is str and 0 < len(name) <= MAX_USER_NAME and name.isprintable() and name == name.strip()
    )


def check_user_name(name: Any) -> str:
    """The name; !! ValueError if it is none."""
    if not is_user_name(name):
        raise ValueError(
            f"The name of a user is 1 to {MAX_USER_NAME} printable characters without blanks at either end; "
            f"got {str(name)[:160]!r}."
        )
    return str(name)
