"""Who is who: certificates for machines, signed tokens for users. Imports `exceptions` only.

Modules, in the order they import each other:

    names          what may be the name of a user
    files          files of secrets: readable by their owner alone, never half written
    certificates   a small authority, certificates of servers and clients, TLS contexts
    revocation     the list of tokens that were taken back
    tokens         signed, expiring tokens bound to a user name
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syft.identity.certificates import (
        CertificateError,
        CertificateFiles,
        client_context,
        make_certificate,
        make_client_certificate,
        server_context,
        user_of_certificate,
    )
    from syft.identity.names import check_user_name, is_user_name
    from syft.identity.revocation import RevocationList
    from syft.identity.tokens import Identity, TokenAuthority, TokenVerifier

__all__ = [
    "CertificateError",
    "CertificateFiles",
    "Identity",
    "RevocationList",
    "TokenAuthority",
    "TokenVerifier",
    "check_user_name",
    "client_context",
    "is_user_name",
    "make_certificate",
    "make_client_certificate",
    "server_context",
    "user_of_certificate",
]

#: Imported when they are first named: certificates need a library that takes 15 ms.
_HOMES = {
    **dict.fromkeys(("Identity", "TokenAuthority", "TokenVerifier"), "tokens"),
    **dict.fromkeys(("check_user_name", "is_user_name"), "names"),
    "RevocationList": "revocation",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES.get(name, 'certificates')}")
    return getattr(home, name)
