"""Secure aggregation: 20 clients with a million numbers each, and 10 to 1,000 with a thousand each; one thread."""

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


@benchmark
def secure_aggregation_many() -> list[Figure]:
    """Rounds of more and more clients: all are neighbours, or a sparse graph; processor time of all parties together."""
    import time

    from syft.federated.secure_aggregation import MaskedSum, SparseGraph

    figures = []
    for clients in (10, 100, 300, 1000):
        updates = {f"client-{k:04}": torch.randn(1000) for k in range(clients)}
        alike = dict.fromkeys(updates, 1.0)
        for name, sparse in (("all neighbours", None), ("sparse", SparseGraph())):
            if (sparse is None and clients > 100) or (sparse is not None and clients < 100):
                continue
            masked = MaskedSum(sparse=sparse, clip=8.0, max_weight=1.0, word_bits=32)
            began = time.process_time()
            masked.weighted_sum(updates, alike)
            seconds = time.process_time() - began
            target = "<= 30 s" if clients == 1000 else ""
            met = seconds <= 30 if target else None
            figures.append(Figure(f"sum, {clients} x 1e3, {name}", seconds, None, "", target, met))
    return figures
