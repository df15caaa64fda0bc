"""`WantedCompression`: the scheme that a client's user named, and whether the worker of a session can read it.

The client offers it in its greeting, and the worker compresses replies with it if it can. The welcome tells what the
worker reads; commands are compressed only with that. Each session asks anew: after a restart another worker may answer.
"""

from __future__ import annotations

import logging

from syft import serde
from syft.transport.session_records import Welcome

logger = logging.getLogger("syft.worker")


class WantedCompression:
    """One per link. !! CompressionNotFoundException, DependencyError for a scheme that does not work here"""

    def __init__(self, scheme: str | None) -> None:
        self._scheme = serde.compression_at_hand(scheme)
        self._has_told = False

    @property
    def offered(self) -> list[str]:
        """What the worker may compress with: what its client can read, and asked for."""
        return [] if self._scheme is None else [self._scheme]

    def agreed_with(self, welcome: Welcome, name: str) -> str | None:
        """What to compress with in the session of this welcome; if the worker cannot read it, the log says so, once."""
        if self._scheme is None or self._scheme in welcome.compressions:
            return self._scheme
        if not self._has_told:
            self._has_told = True
            logger.warning(
                "%s does not read %s (it reads: %s), so what is sent is not compressed. Name another scheme, or ask its "
                "owner to install the package.",
                name,
                self._scheme,
                ", ".join(welcome.compressions) or "none",
            )
        return None
