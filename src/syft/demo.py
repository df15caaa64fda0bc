"""`make demo`: a tour of what works, each step a few lines of ordinary torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

import syft as sy

STEPS: list[Callable[[Any], None]] = []


def step(function: Callable[[Any], None]) -> Callable[[Any], None]:
    STEPS.append(function)
    return function


@step
def chain(hook: Any) -> None:
    """A tensor can carry a chain of types that interpret what is done to it"""
    x = sy.LoggingTensor().on(sy.PlusIsMinusTensor().on(torch.tensor([1.0, 2.0, 3.0])))
    print(f"  {x}")
    print(f"  x + 1 = {x + 1}")
    print(f"  relu  = {F.relu(x - 5)}")


@step
def extend(hook: Any) -> None:
    """A tensor type of your own is a class, one overload, one registration"""

    class Cautious(sy.AbstractTensor):
        @sy.overloaded.method
        def log(self: Any, _self: Any) -> Any:
            return _self.clamp(min=1e-6).log()

    sy.hook_args.default_register_tensor(Cautious)
    x = Cautious().on(torch.tensor([0.0, 1.0])).requires_grad_()
    x.log().sum().backward()
    print(f"  log  = {x.log().detach()}")
    print(f"  grad = {x.grad}")


@step
def pointers(hook: Any) -> None:
    """A tensor can live on somebody else's machine; you hold a pointer and write plain torch"""
    bob = sy.VirtualWorker(hook, id="demo-bob")
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).tag("#x").describe("four numbers").send(bob)  # type: ignore[attr-defined]
    w = torch.eye(2, requires_grad=True).send(bob)  # type: ignore[attr-defined]
    print(f"  {x}")
    (x @ w).relu().sum().backward()
    print(f"  gradient of w, fetched: {w.grad.get().tolist()}")
    try:
        x + torch.ones(2, 2)
    except sy.exceptions.TensorsNotCollocatedException as error:
        print(f"  x + a local tensor: {error}")


@step
def training(hook: Any) -> None:
    """A model is trained where the data is, and equals local training to the last bit"""
    bob = sy.VirtualWorker(hook, id="demo-bob")
    torch.manual_seed(0)
    data, target = torch.randn(64, 20), torch.randint(3, (64,))

    def train(where: Any) -> tuple[list[float], Any]:
        torch.manual_seed(1)
        model: Any = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        x: Any = data
        y: Any = target
        if where is not None:
            model.send(where)
            x, y = x.send(where), y.send(where)
        losses = []
        for _ in range(30):
            optimizer.zero_grad()
            loss: Any = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append((loss.get() if where is not None else loss).item())
        return losses, model.get() if where is not None else model

    there, remote = train(bob)
    here, local = train(None)
    same = all(torch.equal(a, b) for a, b in zip(remote.parameters(), local.parameters(), strict=True))
    print(f"  loss {there[0]:.3f} -> {there[-1]:.3f}; weights equal local training: {same and there == here}")
    print(f"  left behind on the worker: {len(bob._objects)} objects")


@step
def permissions(hook: Any) -> None:
    """The owner of data says who may have it; what is computed from it inherits that"""
    hospital = sy.VirtualWorker(hook, id="demo-hospital")
    data: Any = torch.tensor([61.0, 70.0, 58.0])
    hospital.load_data([data.private_tensor(allowed_users=("dr_ada",)).tag("#ages")])
    (ages,) = hospital.search("#ages")
    mean = ages.mean()
    try:
        mean.copy().get(user="mallory")
    except sy.exceptions.GetNotPermittedError as error:
        print(f"  mallory: {error}")
    print(f"  dr_ada: {mean.get(user='dr_ada').item():.1f}")


@step
def secrets(hook: Any) -> None:
    """A tensor can be split into secret shares: workers compute on what none of them can read"""
    alice, bob, carol = (sy.VirtualWorker(hook, id=f"demo-{name}") for name in ("alice", "bob", "carol"))
    salaries: Any = torch.tensor([31.5, 48.2, 27.9, 90.1])
    secret = salaries.fix_precision(base=2, precision_fractional=16).share(alice, bob, crypto_provider=carol)
    first, second = (p.location.get_obj(p.id_at_location) for p in secret.child.child.pointers)
    print(f"  what alice has: {first.tolist()[:2]} ...")
    print(f"  what bob has:   {second.tolist()[:2]} ...")
    print(f"  mean, opened:   {secret.mean().get().float_precision().item():.3f}")
    print(f"  the highest:    number {secret.argmax().get().float_precision().int().item()}")

    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    data, target = torch.randn(32, 4), torch.randn(32, 1)

    def shared(tensor: Any) -> Any:
        return tensor.fix_precision(base=2, precision_fractional=16).share(alice, bob, crypto_provider=carol)

    model.fix_precision(base=2, precision_fractional=16).share(alice, bob, crypto_provider=carol)
    x, y = shared(data), shared(target)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss: Any = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.get().float_precision().item())
    print(f"  a network trained on shares: loss {losses[0]:.3f} -> {losses[-1]:.3f}")


@step
def network(hook: Any) -> None:
    """A worker can be another process or machine: the same pointers, over a connection"""
    ages = torch.tensor([51.0, 62.0, 47.0]).tag("#ages")  # type: ignore[attr-defined]
    server = sy.WebsocketServerWorker(hook, "127.0.0.1", 0, id="demo-clinic", data=[ages]).start(block=False)
    with sy.WebsocketClientWorker(hook, "127.0.0.1", server.port, id="demo-clinic") as hospital:  # type: ignore[attr-defined]
        print(f"  {hospital}")
        x = torch.ones(3).send(hospital)  # type: ignore[attr-defined]
        started = time.perf_counter()
        for _ in range(500):
            x = x + 1
        issued = time.perf_counter() - started
        print(
            f"  500 operations issued in {issued * 1e3:.0f} ms, none waited for; then get(): {x.get().tolist()}"
        )
        (found,) = hospital.search("#ages")
        try:
            (found * 2).get()
        except sy.exceptions.GetNotPermittedError as error:
            print(f"  the owner's data: {error}")
    server.stop()


@step
def plans(hook: Any) -> None:
    """A function that travels: traced once, sent once, called with one message, for any batch size"""
    bob = sy.VirtualWorker(hook, id="demo-bob")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))

    @sy.func2plan(args_shape=[(-1, 4)])
    def scale(x: Any) -> Any:
        return F.relu(x * 2 - 1).view(x.shape[0], -1)

    print("  " + str(scale).replace("\n", "\n  "))
    remote = scale.send(bob)
    print(f"  {tuple(remote(torch.randn(7, 4).send(bob)).get().shape)}")  # type: ignore[attr-defined]
    training = sy.Plan.training(
        model,
        F.cross_entropy,
        torch.optim.SGD(model.parameters(), lr=0.5),
        args_shape=[(-1, 4), (-1,)],
        args_dtype=[torch.float32, torch.int64],
    )
    x, y = torch.randn(64, 4), torch.randint(2, (64,))
    there = training.send(bob)
    xs, ys = x.send(bob), y.send(bob)  # type: ignore[attr-defined]
    losses = [there(xs, ys).get().item() for _ in range(20)]
    print(f"  a training plan, one message a step: loss {losses[0]:.3f} -> {losses[-1]:.3f}")


@step
def federated(hook: Any) -> None:
    """Training in rounds where the data is, with masked updates: nobody sees a single one"""
    torch.manual_seed(0)
    data, weights = torch.randn(400, 5), torch.randn(5, 1)
    target = (data @ weights > 0).long().squeeze(1)
    clients = {f"clinic-{i}": torch.utils.data.TensorDataset(data[i::4], target[i::4]) for i in range(4)}
    trainer = sy.federated.Trainer(
        torch.nn.Linear(5, 2),
        F.cross_entropy,
        clients,
        strategy="fedavg",
        aggregation=sy.federated.MaskedSum(),
        optimizer_args={"lr": 0.5},
        seed=1,
    )
    history = trainer.fit(5)
    losses = [report.training["loss"] for report in history.rounds]
    print(f"  four clinics, five rounds: loss {losses[0]:.3f} -> {losses[-1]:.3f}")


def main() -> None:
    """Run all steps."""
    started = time.perf_counter()
    hook = sy.TorchHook(torch)
    for number, run in enumerate(STEPS, start=1):
        print(f"\n{number}. {run.__doc__}")
        run(hook)
    print(
        f"\nDone in {time.perf_counter() - started:.1f} s. Next: `syft --help`, help(syft) in Python, and the tutorials "
        "of the documentation (docs/tutorials in the source)."
    )


if __name__ == "__main__":
    main()
