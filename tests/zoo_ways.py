"""The ways in which a model of the zoo is run. Each raises if the model cannot go that way, or comes out differently."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import syft as sy
from syft.dp.dpsgd import make_private
from syft.dp.private_models import replace_batch_norm
from syft.execution.protobuf import plan_pb2
from zoo import Entry


class NotFor(Exception):
    """A way that has no meaning for a model, and why."""


def at(worker: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """A batch with its tensors at a worker."""
    return {k: v.clone().send(worker) if isinstance(v, torch.Tensor) else v for k, v in batch.items()}


def value(tensor: Any) -> torch.Tensor:
    return tensor.detach().clone().get() if type(tensor) is sy.Wrapper else tensor.detach()


def loss_of(entry: Entry, output: Any) -> Any:
    """The loss of an output, also of one that travelled as a dict."""
    if isinstance(output, dict) and not hasattr(output, "loss"):
        output = type("Fields", (), output)
    return entry.loss(output)


def assert_close(found: torch.Tensor, wanted: torch.Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def remote_forward(entry: Entry, bob: Any, *_others: Any) -> None:
    model, batch = entry.make(), entry.batch()
    wanted = entry.loss(model(**batch))
    model.send(bob)
    assert torch.equal(value(entry.loss(model(**at(bob, batch)))), wanted.detach())


def train(entry: Entry, model: nn.Module, batch: dict[str, Any], steps: int = 3) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(5)
    for _ in range(steps):
        optimizer.zero_grad()
        entry.loss(model(**batch)).backward()
        optimizer.step()


def assert_same_state(found: nn.Module, wanted: nn.Module) -> None:
    for name, tensor in wanted.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name


def remote_training(entry: Entry, bob: Any, *_others: Any) -> None:
    batch = entry.batch()
    here, there = entry.make().train(), entry.make().train()
    train(entry, here, batch)
    there.send(bob)
    train(entry, there, at(bob, batch))
    assert_same_state(there.get(), here)


@cache
def plan_of(entry: Entry) -> tuple[Any, dict[str, Any], torch.Tensor]:
    """A plan of a model, a batch, and the loss that the model has on it. Building takes most of the time: once."""
    model, batch = entry.make(), entry.batch()
    wanted = entry.loss(model(**batch)).detach()
    return sy.func2plan()(model).build(**batch), batch, wanted


def plan_here(entry: Entry, *_others: Any) -> None:
    plan, batch, wanted = plan_of(entry)
    assert_close(value(entry.loss(plan.copy()(**batch))), wanted)


def plan_remote(entry: Entry, bob: Any, *_others: Any) -> None:
    plan, batch, wanted = plan_of(entry)
    assert_close(value(entry.loss(plan.send(bob, force=True)(**at(bob, batch)))), wanted)


def plan_serialised(entry: Entry, *_others: Any) -> None:
    plan, batch, wanted = plan_of(entry)
    message = sy.Plan.bufferize(sy.local_worker, plan).SerializeToString()
    for again in (
        sy.serde.deserialize(sy.serde.serialize(plan)),
        sy.Plan.unbufferize(sy.local_worker, plan_pb2.PlanPB.FromString(message)),
    ):
        assert_close(value(loss_of(entry, again(**batch))), wanted)


def training_plan(entry: Entry, bob: Any, *_others: Any) -> None:
    batch = entry.batch()
    here, there = entry.make().train(), entry.make().train()
    train(entry, here, batch)
    optimizer = torch.optim.AdamW(there.parameters(), lr=1e-2)
    plan = sy.Plan.training(there, entry.loss, optimizer).build(batch)
    remote = plan.send(bob)
    torch.manual_seed(5)
    for _ in range(3):
        remote(at(bob, batch))
    plan.get_()
    for name, tensor in here.named_parameters():
        assert_close(dict(there.named_parameters())[name], tensor, 1e-4)


def encrypted_forward(entry: Entry, bob: Any, alice: Any, carol: Any) -> None:
    model, batch = entry.make(), entry.inputs()
    with torch.no_grad():
        wanted = entry.outputs(model(**batch))
        holders = {"crypto_provider": carol}
        model.fix_precision(precision_fractional=5).share(alice, bob, **holders)
        given = {
            k: v.fix_precision(precision_fractional=5).share(alice, bob, **holders) if _is_private(v) else v
            for k, v in batch.items()
        }
        found = entry.outputs(model(**given)).get().float_precision()
    assert_close(found, wanted, 2e-3)


def _is_private(argument: Any) -> bool:
    return isinstance(argument, torch.Tensor) and argument.is_floating_point()


#: Models whose tensors are no batches of examples, or whose loss is of a batch as a whole, or that are refused.
NOT_PER_EXAMPLE = {
    "Mamba": "its library notes what packages there are while it trains, which is refused as kept state",
    "CLIP": "its loss compares the examples of a batch with each other",
    "Graph convolution": "its rows are the nodes of one graph, and no examples",
}


class _Rows(Dataset[Any]):
    """The rows of a batch, several times."""

    def __init__(self, rows: dict[str, torch.Tensor]) -> None:
        self.rows, self.count = rows, len(next(iter(rows.values())))

    def __len__(self) -> int:
        return 8 * self.count

    def __getitem__(self, index: int) -> Any:
        return {name: value[index % self.count] for name, value in self.rows.items()}, index % 2


class _Scored(nn.Module):
    """A model whose output is one tensor."""

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self.model, self.outputs = entry.make(), entry.outputs

    def forward(self, **rows: torch.Tensor) -> torch.Tensor:
        return self.outputs(self.model(**rows))


def private_training(entry: Entry, *_others: Any) -> str | None:
    if (why := NOT_PER_EXAMPLE.get(entry.name)) is not None:
        raise NotFor(why)
    rows = entry.inputs()
    model = _Scored(entry).train()
    normalised = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in model.modules())
    if normalised:
        model = replace_batch_norm(model)
    model(**rows)  # libraries fill caches and install hooks at the first call, which has to be before
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = [p.detach().clone() for p in model.parameters()]
    training = make_private(
        model,
        optimizer,
        DataLoader(_Rows(rows), batch_size=4),
        loss_fn=lambda output, target: (output.flatten(1).mean(1) - target).square().mean(),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    for data, target in training.loader:
        training.step(data, target)
    assert any(not torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    return "yes, with GroupNorm in place of BatchNorm" if normalised else None


WAYS: dict[str, Callable[..., str | None]] = {
    "remote forward": remote_forward,
    "remote training": remote_training,
    "plan": plan_here,
    "remote plan": plan_remote,
    "serialised plan": plan_serialised,
    "training plan": training_plan,
    "encrypted forward": encrypted_forward,
    "DP-SGD": private_training,
}


def tried(way: str, entry: Entry, *workers: Any) -> str:
    """ "yes", or why not."""
    torch.manual_seed(0)
    try:
        return WAYS[way](entry, *workers) or "yes"
    except Exception as error:  # noqa: BLE001  (whatever it is, it stands in the table)
        return reason(error)


def reason(error: Exception) -> str:
    """What stands in the table for an error: its first sentence. A file in it is named without its folder."""
    sentence = re.sub(r"\S*/(\w+\.py)", r"\1", re.split(r"(?<=[.:]) ", str(error).strip().split("\n")[0])[0])
    return f"no: {sentence[:160]}".replace("|", "/")
