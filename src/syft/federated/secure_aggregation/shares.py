"""`ShareAggregation`: updates summed as additive shares at two or more holders.

One duty: the way of the "secure aggregation" tutorials, behind the Trainer's `aggregation`. Each update is encoded
in fixed precision and split where it is; holders add up the shares they have; only the sum is put together. No
drop-out is repaired, and all holders together could open everything: they must not collude. Imports `encoding`, `mpc`
(through the names that the hook adds to tensors).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from syft.federated.secure_aggregation.encoding import Encoding
from syft.federated.secure_aggregation.masked_sum import check_updates
from syft.mpc.fixed_methods import fix_precision, float_precision
from syft.mpc.methods import share


class ShareAggregation:
    """Sums updates through shares.

    holders          two or more workers that do not collude; they may be clients themselves
    crypto_provider  the worker that is none of them; the local one if not given. A sum needs nothing of it
    clip             values are clamped to [-clip, clip]
    max_weight       the largest weight

    An update may be a pointer: it is then weighted, encoded and split on the worker that has it.
    """

    def __init__(
        self,
        holders: Sequence[Any],
        crypto_provider: Any = None,
        *,
        clip: float = 1024.0,
        max_weight: float = 2.0**20,
    ) -> None:
        if not isinstance(holders, Sequence) or isinstance(holders, str):
            raise TypeError(
                f"ShareAggregation was given a {type(holders).__name__} as holders. Give a list of two workers or more."
            )
        if len(holders) < 2:
            raise ValueError(
                f"Shares of an update are held by two workers or more, got {len(holders)}: one holder would have it all."
            )
        self.holders, self.crypto_provider = tuple(holders), crypto_provider
        self.clip, self.max_weight = clip, max_weight

    def weighted_sum(self, updates: Mapping[str, torch.Tensor], weights: Mapping[str, float]) -> torch.Tensor:
        """The sum of weight * update."""
        _length, dtype = check_updates(updates, weights)
        encoding = self._encoding(len(updates))
        total: Any = None
        with torch.no_grad():
            for name, update in updates.items():
                shared = self._shared(name, update, float(weights[name]), encoding)
                total = shared if total is None else total + shared
            return float_precision(total.get()).to(dtype)

    def step_for(self, clients: int) -> float:
        """Numbers of a client of weight 1 are rounded to multiples of it, in a sum of so many clients."""
        return 1.0 / self._encoding(clients).units

    def _encoding(self, clients: int) -> Encoding:
        return Encoding.fitting(self.clip, self.max_weight, clients)

    def _shared(self, name: str, update: Any, weight: float, encoding: Encoding) -> Any:
        encoding.check_weight(weight)
        is_here = type(update) in (torch.Tensor, torch.nn.Parameter)
        if is_here and not bool(update.isfinite().all()):
            raise ValueError(
                f"The update of {name!r} has values that are NaN or infinite. Leave this client out of the round."
            )
        weighted = update.detach().double().clamp(-encoding.clip, encoding.clip) * weight
        fixed = fix_precision(weighted, precision_fractional=encoding.fraction_bits, base=2)
        secret = share(fixed, *self.holders, crypto_provider=self.crypto_provider)
        # What was split on a worker is a pointer to the secret; the first `get` is the secret itself, and opens nothing.
        return secret if is_here else secret.get()
