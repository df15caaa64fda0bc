"""Training on data sets that the owner offers, as commands of the programs of `guarded_worlds`.

Three offers, with the values of the world: `rows` to everybody, `anns` to another user, `sums` for sums alone. Of `rows`
the owner gives away the trained model and figures, and with them whether a training failed; nothing more. Of the two
others nothing is given away, a failure neither.
"""

from __future__ import annotations

import copy
import re
from functools import lru_cache
from typing import Any

import torch
from calls import tensor_of
from guarded_worlds import GuardedWorld, f, i

from syft.execution.program import Input
from syft.federated.dataset import BaseDataset
from syft.federated.federated_client import FederatedClient
from syft.federated.layout import read_state
from syft.federated.plan_module import PlanModule, SentModule, traced_loss, traced_module
from syft.federated.records import EvaluateInstructions, FitInstructions
from syft.messaging.message import (
    EvaluateMessage,
    FitMessage,
    ObjectMessage,
    OffersMessage,
    RoundMessage,
    SecureStepMessage,
    TrainConfigMessage,
)

KEYS = ("rows", "rows", "anns", "sums", "sums", "none")
#: What is said of a training that failed on data which is given away to be trained on.
WITHHELD = re.compile(
    r"RemoteError: the (training|evaluation) failed on the worker with a \w+\. The message is withheld"
)


@lru_cache(maxsize=1)
def traced() -> tuple[PlanModule, PlanModule]:
    """A model that fails where a value is above 3, and its loss, which fails for classes that there are not."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            weight = torch.ones(1).index_select(0, (x > 3).any().long().reshape(1))
            return self.layer(x) * weight

    rows, labels = Input((-1, 3), torch.float32), Input((-1,), torch.int64)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = traced_module(Model(), [rows])
    return model, traced_loss(torch.nn.functional.cross_entropy, model, [rows], labels)


def offer(world: GuardedWorld) -> None:
    """The owner offers data sets, once per world."""
    if world.worker.extension(FederatedClient).datasets:
        return
    for key, terms in (("rows", {}), ("anns", {"allowed_users": ["ann"]}), ("sums", {"least_in_sum": 2})):
        rows, labels = (tensor_of(r, world.kind, world.hidden) for r in (f(6, 3), i(6, most=1)))
        world.worker.add_dataset(BaseDataset(rows, labels), key, **terms)


def send_model(world: GuardedWorld) -> list[int]:
    ids = []
    for module in traced():
        ids.append(world.new_id())
        world.say(ObjectMessage(SentModule(copy.deepcopy(module), ids[-1]), ids[-1]))
    return ids


def hear(world: GuardedWorld, message: Any, key: str) -> None:
    """Say it; of what is given away, only that it was is noted."""
    if key != "rows":
        world.say(message)
        return
    world.say(message, lambda _reply: "given away")
    heard, *rest = world.log[-1]
    if isinstance(heard, str) and WITHHELD.match(heard):
        world.log[-1] = (_given_away(), *rest)


def _given_away() -> Any:
    from guarded_worlds import _bytes_of

    return _bytes_of("given away")


def fit(world: GuardedWorld) -> None:
    """`fit` and `evaluate` with a config that the user sends."""
    offer(world)
    rng, key = world.rng, world.rng.choice(KEYS)
    model, loss = send_model(world)
    settings = TrainConfigMessage(model, loss, rng.choice((2, 6, 0)), 1, "SGD", {"lr": 0.1}, -1, False, 5)
    world.say(settings)
    hear(world, FitMessage(key), key)
    hear(world, EvaluateMessage(key, rng.random() < 0.5, 4), key)
    world.say(OffersMessage(None))
    for obj_id in (model, loss):  # what was trained is given away; nothing more is asked of it
        world.worker.force_rm_obj(obj_id)


def training_round(world: GuardedWorld) -> None:
    """A client's part of a round of a Trainer, and a step of a secure sum of what it kept."""
    offer(world)
    rng, key = world.rng, world.rng.choice(KEYS)
    model, loss = send_model(world)
    state = read_state(traced()[0])
    if rng.random() < 0.15:
        state = {name: torch.ones(1) for name in state}
    fit_it = FitInstructions(1, 7, state, 1, rng.choice((2, 6)), optimizer_args={"lr": 0.1}, shuffle=False)
    keep = rng.randbytes(16) if rng.random() < 0.7 else None
    hear(world, RoundMessage(model, loss, {}, key, fit_it, keep), key)
    hear(world, RoundMessage(model, loss, {}, key, EvaluateInstructions(1, state)), key)
    if keep is not None and key != "rows":  # of which the user knows whether anything was kept
        world.say(SecureStepMessage(keep, "reveal", None))
    for obj_id in (model, loss):
        world.worker.force_rm_obj(obj_id)


TRAINING = ((fit, 10), (training_round, 10))
