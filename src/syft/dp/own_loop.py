"""Private training in the loop that people write for plain torch.

One duty: `own_loop(training)`: a model, an optimizer, a criterion and a loader for

    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()

Imports `dpsgd`, `per_sample`, `poisson_loader`.

NOTE [What runs when]
A loss that is computed from the outputs of a batch can mix examples, and nobody could tell whose gradient is clipped. So
`model(x)` computes nothing: it notes what the model is called with. `criterion` computes what `training.step` does, one
example at a time: losses, and the sum of clipped gradients. `backward()` hands that sum to the optimizer, and
`optimizer.step()` charges, adds noise and steps. Each batch of the loader is used once, as a whole. Everything that would
make another gradient than that (a scaled loss, a second backward, gradients that were changed in between, an older
gradient that is still there, two batches for one step) is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from syft.dp.dpsgd import PrivateTraining
from syft.dp.per_sample import mapped_outputs
from syft.dp.poisson_loader import PoissonLoader


class PrivateOutputs:
    """What `model(x)` gives in a private loop: it is for the criterion alone."""

    def __init__(self, loop: _Loop, inputs: Any) -> None:
        self._loop, self._inputs = loop, inputs

    def detach(self) -> Any:
        """The outputs as tensors, for an accuracy: another pass over the model. They are private."""
        return mapped_outputs(self._loop.training.model, self._inputs)

    @classmethod
    def __torch_function__(cls, function: Any, *_: Any) -> Any:
        raise TypeError(
            f"{getattr(function, '__name__', 'torch')}() got the outputs of a private loop, which only its criterion "
            "takes: a loss of a whole batch could mix examples, and no bound on one example would hold. Put the "
            "computation into the model or into loss_fn=, or look at outputs.detach()."
        )

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"Outputs of a private loop have no {name!r}: only the criterion takes them. Put the computation into the "
            "model or into loss_fn=, or look at outputs.detach()."
        )


class PrivateModel:
    """The model of a private loop: called in training it gives outputs for the criterion, else it is the model itself."""

    def __init__(self, loop: _Loop) -> None:
        self._loop = loop

    def __call__(self, *args: Any, **named: Any) -> Any:
        model = self._loop.training.model
        if not model.training or not torch.is_grad_enabled():
            return model(*args, **named)
        if args and named:
            raise TypeError(
                "The model of a private loop was called with inputs by position and by name. Use one of the two."
            )
        return PrivateOutputs(self._loop, named or (args[0] if len(args) == 1 else args))

    def __getattr__(self, name: str) -> Any:
        model = self._loop.training.model
        found = getattr(model, name)
        if getattr(found, "__self__", None) is not model:
            return found

        def call(*args: Any, **named: Any) -> Any:
            made = found(*args, **named)
            return self if made is model else made  # model.train(), model.to(...)

        return call

    def __repr__(self) -> str:
        return f"PrivateModel({self._loop.training.model!r})"


class OwnLoop(NamedTuple):
    """What a loop of one's own uses."""

    model: PrivateModel
    optimizer: torch.optim.Optimizer
    criterion: _Loop
    loader: PoissonLoader


@dataclass
class _Ready:
    """The clipped sum of a batch, on its way from the criterion to the optimizer."""

    total: dict[str, Tensor]
    batch: int
    marks: dict[str, tuple[Tensor, int]] | None = None
    """What stands as `.grad` of each parameter since backward(), and how often that was written to."""


class _Loss(torch.autograd.Function):
    """The mean loss, whose backward() hands the clipped sum over."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, value: Tensor, loop: _Loop, ready: _Ready) -> Tensor:
        ctx.loop, ctx.ready = loop, ready
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        ctx.loop.take_over(ctx.ready, gradients[0])
        return None, None, None, None


class _Loop:
    """The criterion of a private loop, and what is between it and the optimizer."""

    def __init__(self, training: PrivateTraining) -> None:
        self.training = training
        self.ready: _Ready | None = None

    def __call__(self, outputs: Any, targets: Any) -> Tensor:
        """The mean loss of the batch, which is NOT private."""
        if not isinstance(outputs, PrivateOutputs) or outputs._loop is not self:
            raise TypeError(
                f"The criterion of a private loop got a {type(outputs).__name__}. Call it with what the model of the "
                "same own_loop() gave, in training: model.train(), and not under torch.no_grad()."
            )
        training, inputs = self.training, outputs._inputs
        rows = training.check_step(inputs, targets)
        total, loss = training.clipped_sums(inputs, targets)
        # NB: made now: who has the batch may write to it before the optimizer steps.
        ready = _Ready(dict(total), training.loader.drawn)
        anchor = next(p for p in training.model.parameters() if p.requires_grad)
        value = anchor.new_tensor(loss / max(rows, 1))
        # NB: of its own, so that autograd writes no gradient into a parameter.
        made: Tensor = _Loss.apply(torch.zeros((), requires_grad=True), value, self, ready)
        return made

    def take_over(self, ready: _Ready, scale: Tensor) -> None:
        """Called by backward(). !! ValueError where the gradient would be another than that of the mean loss"""
        if self.ready is not None:
            raise ValueError(
                "backward() was called twice before optimizer.step(). A step of private training is on one whole batch "
                "of the loader: for large batches give make_private(physical_batch=...) instead of adding up gradients."
            )
        if ready.batch != self.training.loader.drawn or self.training.loader.outstanding is None:
            raise ValueError(
                "backward() was called for another batch than the loader's last, or for one that was stepped on already. "
                "Step once on each batch."
            )
        if not bool(scale == 1):
            raise ValueError(
                f"backward() of a loss times {float(scale):g}: gradients are clipped before that factor, so that it "
                "would do nothing, or break the bound. Put factors into loss_fn= or the learning rate; for mixed "
                "precision leave the GradScaler out."
            )
        trained = {n: p for n, p in self.training.model.named_parameters() if p.requires_grad}
        if any(p.grad is not None and bool(p.grad.count_nonzero()) for p in trained.values()):
            raise ValueError(
                "backward() found gradients of an earlier step, and the new ones would be added to them. Call "
                "optimizer.zero_grad() in each step."
            )
        marks = {}
        for name, parameter in trained.items():
            # NB: it takes no memory, and shows at step() whether anybody touched the gradient.
            mark = torch.zeros((), dtype=parameter.dtype, device=parameter.device).expand(parameter.shape)
            parameter.grad = mark
            marks[name] = (parameter.grad, parameter.grad._version)
        ready.marks, self.ready = marks, ready

    def before_step(self, *_: Any) -> None:
        """Called by optimizer.step(): charge, and put the noisy gradients in place."""
        training = self.training
        if training.is_stepping:
            return
        ready, self.ready = self.ready, None
        parameters = dict(training.model.named_parameters())
        marks = {} if ready is None or ready.marks is None else ready.marks
        if ready is None or all(parameters[name].grad is None for name in marks):
            raise ValueError(
                "optimizer.step() without a gradient of this private loop: call criterion(model(x), y).backward() before "
                "it, with the model and the criterion of own_loop(), and zero_grad() before backward()."
            )
        for name, (mark, version) in marks.items():
            if parameters[name].grad is not mark or mark._version != version:
                raise ValueError(
                    f"The gradient of {name} was changed between backward() and optimizer.step(). Private gradients are "
                    "clipped for each example (max_grad_norm=), and noise is added in step(): leave out clip_grad_norm_ "
                    "and whatever else changes .grad."
                )
        if ready.batch != training.loader.drawn or training.loader.outstanding is None:
            raise ValueError(
                "optimizer.step() after another batch was taken from the loader. Step once on each batch of it: epsilon "
                "is computed for its random choice of rows. For large batches give make_private(physical_batch=...)."
            )
        training.charge_step()
        training.set_noisy_gradients(ready.total)


def own_loop(training: PrivateTraining) -> OwnLoop:
    """Model, optimizer, criterion and loader for a loop of one's own, of what `make_private` made.

    The optimizer is the one that `make_private` was given: from now on its `step()` charges and adds noise. `criterion`
    is the `loss_fn` of `make_private`, called for each example alone. What was spent is in `training`, as ever.
    """
    if not isinstance(training, PrivateTraining):
        raise TypeError(f"own_loop takes what make_private gave, got a {type(training).__name__}.")
    reduction = getattr(training.loss_fn, "reduction", "mean")
    if reduction != "mean":
        raise ValueError(
            f"own_loop got a loss with reduction={reduction!r}. A private step is on the sum of clipped gradients over "
            'the expected size of a batch, the mean: make the loss with reduction="mean", and multiply the learning rate '
            "if you want the sum."
        )
    if training.in_own_loop:
        raise ValueError(
            "own_loop() was called a second time for one training. Use what the first call returned."
        )
    training.in_own_loop = True
    loop = _Loop(training)
    training.optimizer.register_step_pre_hook(loop.before_step)
    return OwnLoop(PrivateModel(loop), training.optimizer, loop, training.loader)
