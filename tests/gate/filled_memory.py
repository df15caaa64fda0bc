"""Runs calls and programs, and prints a digest of all memory that they hand out. `test_filled_memory.py` starts it.

    MALLOC_PERTURB_=85 python tests/gate/filled_memory.py calls-per-row mutations programs [--fill]

glibc fills what it hands out and what it gets back with a pattern made of MALLOC_PERTURB_; `--fill` lets torch fill what
it allocates with NaN and the largest integers. `--canary` prints the digest of memory that nobody wrote first.
"""

from __future__ import annotations

import hashlib
import logging
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
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    running.new_seed = lambda: 7
    if "--fill" in sys.argv:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = True
    if "--canary" in sys.argv:
        print("canary", digest_of([torch.empty(n) for n in (3, 100, 10_000, 1_000_000)]))
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
    run_programs(int(sys.argv[3]))


def run_programs(count: int) -> None:
    """Programs on a denying worker: all that its user hears, and the memory of all that it holds afterwards."""
    from guarded_worlds import COMMANDS, ROWS, GuardedWorld, counted_ids, run_program

    import syft as sy

    hook = sy.TorchHook(torch)
    # Noise and the masks of shares are drawn from the operating system.
    commands = [(c, w) for c, w in COMMANDS if c.__name__ not in ("release", "shares")]
    for number in range(count):
        with counted_ids():
            world = GuardedWorld(hook, "recorded" if number % 2 else "nan", number)
            run_program(world, 1 + number % 6, ROWS[number % len(ROWS)], commands)
        heard = hashlib.sha256(repr(world.log).encode()).hexdigest()[:16]
        stored = [entry.value for entry in world.worker._entries.values()]
        print("program", number, heard, digest_of(stored))


if __name__ == "__main__":
    main()
