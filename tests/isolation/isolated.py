"""An isolated worker in a process of its own: `python isolated.py SETTINGS`, in JSON; it ends with a SIGTERM."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any


def main(options: dict[str, Any]) -> None:
    import torch
    from torch.utils.data import TensorDataset

    import syft as sy
    from syft.dp.release import serve_book
    from syft.identity.tokens import TokenVerifier
    from syft.isolation.broker import Broker
    from syft.isolation.sealed import Sealed
    from syft.policy.audit import AuditLog
    from syft.policy.owner_policy import OwnerPolicy, read_rules
    from syft.workers.network.server_worker import NetworkServerWorker, stopped_by_signals

    logging.basicConfig(level=logging.WARNING)
    torch.set_num_threads(1)
    hook = sy.TorchHook(torch, verbose=False)
    folder = Path(options["folder"])
    policy = OwnerPolicy(read_rules(options["policy"]))
    policy.audit_sink = AuditLog(folder / "audit.jsonl", "hospital")
    sealed = Sealed()
    data = [torch.tensor(rows).tag(tag) for tag, rows in options["data"].items()]  # type: ignore[attr-defined]
    data += [
        torch.tensor(rows).tag(tag).private_tensor(released_only=True)  # type: ignore[attr-defined]
        for tag, rows in options["released"].items()
    ]
    data = [sealed.take(tensor) for tensor in data]
    worker = NetworkServerWorker(
        hook,
        "tcp://127.0.0.1:0",
        id="hospital",
        data=data,
        tokens=TokenVerifier.open(folder / "tokens", "hospital"),
        policy=policy,
        directory=folder / "kept",
    )
    rows, labels = torch.arange(24.0).reshape(8, 3) / 24, torch.arange(8) % 2
    worker.add_dataset(TensorDataset(rows, labels), "rows")
    worker.add_dataset(sy.BaseDataset(rows, labels), "anns", allowed_users=["ann"])
    worker.add_dataset(TensorDataset(rows, labels), "asked", on_request=True)
    for obj in worker.current_objects().values():
        if {"#patients", "#inputs"} & set(obj.tags):
            worker.entry_of(obj.id).person_column = 0
    worker.keep_requests(folder / "requests.db")
    if options.get("budgets"):
        serve_book(worker, options["budgets"])
    broker = Broker(worker, sealed, 1, options["module"])
    with stopped_by_signals(worker):
        worker.start(block=False)
        broker.wait_until_ready()
        print(json.dumps(worker.addresses), flush=True)
        worker.wait()
        worker.stop()
        broker.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
