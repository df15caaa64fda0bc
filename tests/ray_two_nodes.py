"""A training on a cluster of two Ray nodes, on this machine. Run as a program: it prints what it found, as JSON.

In a process of its own, because Ray is in a process once, and `RayEngine`'s other tests start one that listens on the
loopback interface only. So do these nodes.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from pathlib import Path
from typing import Any

os.environ |= {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}

import torch
from torch import nn

import ray_parts
from syft.federated.engines import RayEngine
from syft.federated.trainer import Trainer
from trainer_parts import classes, line, net


def trained(engine: Any) -> dict[str, torch.Tensor]:
    model = net()
    options: dict[str, Any] = {"seed": 7, "batch_size": 10, "drop_last": True}
    history = Trainer(model, nn.CrossEntropyLoss(), classes(clients=8), engine=engine, **options).fit(2)
    assert len(history.rounds[-1].accepted) == 8, history.rounds[-1]
    return model.state_dict()


def main() -> None:
    torch.set_num_threads(1)
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 100 << 20, "node_ip_address": "127.0.0.1"}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    second = cluster.add_node(**node)
    try:
        with RayEngine(address=cluster.address, actors=2) as engine, tempfile.TemporaryDirectory() as folder:
            far, near = trained(engine), trained("serial")
            clients = {f"client {n}": ray_parts.SaysWhere(folder) for n in range(12)}
            trainer = Trainer(line(0.0), nn.MSELoss(), clients, engine=engine)
            trainer.fit(1)
            nodes = {path.read_text() for path in Path(folder).iterdir()}
            cluster.remove_node(second, allow_graceful=False)  # with the actor on it
            after = trainer.fit(2).rounds[-1]
            print(
                json.dumps(
                    {
                        "is_same": all(torch.equal(far[name], near[name]) for name in near),
                        "nodes": len(nodes),
                        "accepted": len(trainer.history.rounds[0].accepted),
                        "after": len(after.accepted),
                        "failed": [failure.kind for failure in after.failures],
                    }
                )
            )
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
