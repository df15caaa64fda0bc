"""Runs calls and prints a digest of all memory that they hand out. `test_filled_memory.py` starts it.

    MALLOC_PERTURB_=85 python tests/gate/filled_memory.py calls-per-row mutations [--fill]

glibc fills what it hands out and what it gets back with a pattern made of MALLOC_PERTURB_; `--fill` lets torch fill what
it allocates with NaN and the largest integers. `--canary` prints the digest of memory that nobody wrote instead.
"""

from __future__ import annotations

import hashlib
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from calls import emptied, recorded_calls, tensors_of
from mutations import mutated
from worlds import admitted

from syft.core.nested import found_in
from syft.operations import all_rows, run, running

_LARGEST = 2**24


def digest_of(value: Any) -> str:
    """A digest of the memory behind tensors, with what lies between their elements."""
    digest = hashlib.sha256()
    for tensor in found_in(value, torch.Tensor):
        memory = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
        digest.update(memory.numpy().tobytes())
    return digest.hexdigest()[:16]


def chosen_calls(per_row: int, mutations: int) -> Any:
    rng = random.Random(4)
    for name, row in all_rows().items():
        if row.inner:
            continue
        calls = recorded_calls()[name]
        for call in calls[:: max(1, len(calls) // per_row)][:per_row]:
            yield call
            nothing = emptied(call)
            if nothing is not None:
                yield nothing
        for _ in range(mutations):
            yield mutated(rng.choice(calls), rng)


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    running.new_seed = lambda: 7
    if "--fill" in sys.argv:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = True
    if "--canary" in sys.argv:
        print("canary", digest_of([torch.empty(n) for n in (3, 100, 10_000, 1_000_000)]))
        return
    for call in chosen_calls(int(sys.argv[1]), int(sys.argv[2])):
        admission = admitted(call)
        if admission is None or admission.memory > _LARGEST or admission.work > 2**26:
            continue
        for world in ("recorded", "nan"):
            try:
                args, kwargs = tensors_of(call, world, 1)
            except (RuntimeError, TypeError):
                continue  # values that such a type does not have
            outcome = run(admission, args, kwargs)
            print(call[0], digest_of((outcome.results, args, kwargs)), outcome.failure is not None, call[1:])


if __name__ == "__main__":
    main()
