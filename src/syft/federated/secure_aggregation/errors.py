"""What a round of secure aggregation raises.

    SecureAggregationError (RuntimeError)
    ├── TooFewClientsError        fewer than the threshold are left: nothing can, or may, be opened
    └── ProtocolViolationError    a message that must not be answered: replayed, foreign, tampered with, out of turn

All of them travel. Imports `exceptions`, `serde`.
"""

from __future__ import annotations

from syft.exceptions import SyftError
from syft.serde import register_exception


class SecureAggregationError(SyftError, RuntimeError):
    """A round of secure aggregation ended without a sum. No single update was opened."""


class TooFewClientsError(SecureAggregationError):
    """Fewer clients than the threshold are left."""

    def __init__(self, stage: str, found: int, threshold: int) -> None:
        self.stage, self.found, self.threshold = stage, found, threshold
        super().__init__(
            f"{found} client{'' if found == 1 else 's'} {stage}, and the threshold of this round is {threshold}. "
            "The round is over and opened nothing: start another one, with more clients or a lower threshold."
        )


class ProtocolViolationError(SecureAggregationError):
    """A message that an honest party would not have sent, now or at all."""


register_exception(SecureAggregationError)
register_exception(TooFewClientsError, "stage", "found", "threshold")
register_exception(ProtocolViolationError)
