"""What an error of the library advises to write in Python, as options of the command.

The library is called by people who write Python, and says so in its errors. Whoever typed a command needs the same advice
in words that can be typed.
"""

from __future__ import annotations

#: (in Python, on the command line); the longer phrases first, of which shorter ones are parts.
_PHRASES = (
    ("certificate=... and key=...", "--tls DIR (or --cert FILE and --key FILE)"),
    (
        "tokens=... or client_ca=..., and not anonymous=True",
        "--tokens DIR or --client-ca FILE",
    ),
    ("Choose another name, or pass overwrite=True", "Choose another name (--name), or pass --overwrite"),
    ("TokenAuthority.create(directory)", "`syft token new USER --dir DIR`"),
    ("make_client_certificate(directory, user)", "`syft cert client USER DIR`"),
    ("make_certificate(directory)", "`syft cert make DIR`"),
    ("what `issue` returned", "what `syft token new` printed"),
    ("`TokenAuthority.revoke`", "`syft token revoke`"),
    ("both `cert` and `key`", "both --cert and --key"),
    ("days is a whole number", "--days is a whole number"),
    ("overwrite=True", "--overwrite"),
    ("certificate=...", "--cert FILE"),
    ("client_ca=...", "--client-ca FILE"),
    ("tokens=...", "--tokens DIR"),
    ("token_file=... (or token=...)", "--token-file FILE (or set SYFT_TOKEN)"),
    ("token_file=...", "--token-file FILE"),
    ("token=...", "--token TOKEN (or set SYFT_TOKEN)"),
    ("key=...", "--key FILE"),
    ("ca=...", "--ca FILE"),
)


def in_options(message: str) -> str:
    """A sentence of the library, with its cure as somebody at a shell can follow it."""
    for in_python, typed in _PHRASES:
        message = message.replace(in_python, typed)
    return message
