"""Secure aggregation: a round of 20 clients with a million numbers each, all parties in one process, one thread."""

from __future__ import annotations

import torch

from bench.harness import Figure, benchmark, side_by_side


@benchmark
def secure_aggregation() -> list[Figure]:
    import syft as sy
    from syft.core.session import session
    from syft.federated.secure_aggregation import MaskedSum, ShareAggregation

    clients, length = 20, 1_000_000
    updates = {f"client-{k:02}": torch.randn(length) for k in range(clients)}
    weights = {name: 10.0 + k for k, name in enumerate(updates)}
    gone = sorted(updates)[:: clients // 6][:6]
    hook = session.hook
    holders = [sy.VirtualWorker(hook, id=f"holder-{k}") for k in range(2)]
    provider = sy.VirtualWorker(hook, id="provider")

    def plain() -> torch.Tensor:
        total = torch.zeros(length)
        for name, update in updates.items():
            total.add_(update, alpha=weights[name])
        return total

    masked = MaskedSum()
    repaired = MaskedSum(threshold=14, dropouts=lambda step, _present: gone if step == "input" else ())
    signed = MaskedSum(signed=True)
    shared = ShareAggregation(holders, provider)
    base, *times = side_by_side(
        plain,
        lambda: masked.weighted_sum(updates, weights),
        lambda: repaired.weighted_sum(updates, weights),
        lambda: signed.weighted_sum(updates, weights),
        lambda: shared.weighted_sum(updates, weights),
        rounds=3,
    )
    names = ("masked", "masked, 6 drop out", "masked, signed", "shares, 2 holders")
    targets = ("<= 1.5 s", "", "", "")
    return [
        Figure(f"sum, 20 x 1e6, {name}", ours, base, "plain sum", target, ours <= 1.5 if target else None)
        for name, ours, target in zip(names, times, targets, strict=True)
    ]
