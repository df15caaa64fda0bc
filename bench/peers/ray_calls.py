"""Ray: the chain of additions, each a task that takes the result of the one before. Runs in the environment `ray`."""

from __future__ import annotations

import time
from typing import Any

from bench.peer import answer_jobs

ADDS = 1000


def main() -> None:
    import ray  # type: ignore[import-not-found, unused-ignore]
    import torch

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)

    @ray.remote
    class Holder:
        def __init__(self) -> None:
            torch.set_num_threads(1)

        def add(self, held: Any, number: int) -> Any:
            return held + number

    holder = Holder.remote()

    def chain(adds: int) -> None:
        x: Any = torch.zeros(10)
        for _ in range(adds):
            x = holder.add.remote(x, 1)
        ray.get(x)

    def answer(job: str, calls: int) -> dict[str, float]:
        adds = int(job.rpartition("_")[2])
        began = time.perf_counter()
        for _ in range(calls):
            chain(adds)
        return {"seconds": (time.perf_counter() - began) / calls}

    chain(10)
    answer_jobs(answer, version=ray.__version__)


if __name__ == "__main__":
    main()
