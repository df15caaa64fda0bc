"""What the hook adds to `torch.Tensor`, `torch.nn.Module` and `torch.optim.Optimizer` for fixed precision.

    x.fix_precision()            Wrapper > FixedPrecisionTensor > integers; `fix_prec` is the same
    x.float_precision()          back to floating point; `float_prec` is the same
    x.fix_precision_()           in place: whoever holds x holds the fixed-precision tensor

A leaf gives a leaf, a tensor with a history stays connected to it: the gradient of both steps is the other
step. `TENSOR_METHODS`, `MODULE_METHODS` and `OPTIMIZER_METHODS` are the names to add.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper, new_wrapper
from syft.core.identity import identity_of, known_identity
from syft.core.levels import step_down, step_up
from syft.core.swap import become
from syft.exceptions import ChainError, UnsupportedOperationError
from syft.mpc.fixed_numbers import fix_numbers, float_numbers
from syft.mpc.foreach import choose_foreach, restore_foreach
from syft.mpc.made_there import is_open_there, made_there
from syft.mpc.node_methods import FIELD, check_values, checked_field
from syft.mpc.precision import (
    DEFAULT_BASE,
    DEFAULT_PRECISION,
    ENCODE_LIMIT,
    FixedPrecisionTensor,
    encode_integers,
    node_above,
)
from syft.mpc.rules import fixed_fine
from syft.mpc.rules.registry import on_children
from syft.mpc.storage import encoded_in, stored
from syft.tensors.autograd import AutogradTensor
from syft.tensors.pointer import PointerTensor
from syft.tensors.private import PrivateTensor
from syft.tensors.sending import put_back
from syft.tensors.transfer import without_autograd_node

aten = torch.ops.aten


# -- one tensor -----------------------------------------------------------------------------------------


def _encoded(tensor: torch.Tensor, template: FixedPrecisionTensor, there: bool = False) -> Wrapper:
    """A tensor in the precision of a template, where it is: nothing is fetched to be encoded.

    `there`: the worker that has it keeps the node, too, if it serves no strangers.
    """
    if type(tensor) is not Wrapper:
        return new_wrapper(template.like(encode_integers(tensor, template.scale)))
    if there and is_open_there(tensor):
        digits, field = template.precision_fractional, None if template.field == FIELD else template.field
        return made_there(
            tensor, "fix_precision", digits, template.base, dtype=template.presented_dtype, field=field
        )
    node: AbstractTensor = tensor.child
    made = template.like(None)
    # NB: no range check: values that are elsewhere are not looked at.
    if node.dtype.is_floating_point:
        wide = on_children(aten._to_copy.default, node, dtype=torch.float64)
        scaled = on_children(aten.mul.Tensor, wide, template.scale)
        made.child = on_children(
            aten._to_copy.default, on_children(aten.round.default, scaled), dtype=torch.int64
        )
    else:
        whole = on_children(aten._to_copy.default, node, dtype=torch.int64)
        made.child = on_children(aten.mul.Tensor, whole, template.scale)
    return new_wrapper(made)


def _decoded(tensor: Any) -> torch.Tensor:
    """A fixed-precision chain in floating point, where it is; anything else as it is."""
    if format_there(tensor) is not None:
        if is_open_there(tensor):
            return made_there(tensor, "float_precision")
        return _decoded(new_wrapper(node_above(tensor.child)))
    if _is_below(tensor):
        return float_precision(tensor.detach())
    if type(tensor) is not Wrapper or not isinstance(tensor.child, FixedPrecisionTensor):
        return tensor
    node = tensor.child
    if isinstance(node.child, torch.Tensor) or hasattr(node.child, "truncate"):
        return node.decode()  # of shares: says what to call first
    if not node.is_real:
        return new_wrapper(on_children(aten._to_copy.default, node.child, dtype=node.presented_dtype))
    wide = on_children(aten._to_copy.default, node.child, dtype=torch.float64)
    quotient = on_children(aten.div.Tensor, wide, float(node.scale))
    return new_wrapper(on_children(aten._to_copy.default, quotient, dtype=node.presented_dtype))


class Encode(torch.autograd.Function):
    """To fixed precision; the gradient comes back in floating point."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, template: FixedPrecisionTensor, there: bool) -> torch.Tensor:
        return _encoded(tensor, template, there)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return (Decode.apply(grad) if _is_fixed(grad) or format_there(grad) else grad), None, None


class Decode(torch.autograd.Function):
    """To floating point; the gradient goes back in fixed precision."""

    @staticmethod
    def forward(ctx: Any, tensor: Any) -> torch.Tensor:
        known = format_there(tensor)
        ctx.template = tensor.child if known is None else FixedPrecisionTensor(*known, tensor.dtype)
        ctx.there = known is not None
        return _decoded(tensor)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad if _is_fixed(grad) or format_there(grad) else Encode.apply(grad, ctx.template, ctx.there)


def _is_fixed(tensor: Any) -> bool:
    return type(tensor) is Wrapper and isinstance(tensor.child, FixedPrecisionTensor)


def _is_below(tensor: Any) -> bool:
    """Whether the fixed-precision node stands below one that leaves values as they are."""
    node = tensor.child if type(tensor) is Wrapper else None
    return isinstance(node, (AutogradTensor, PrivateTensor)) and isinstance(node.child, AbstractTensor)


def _template(tensor: torch.Tensor, base: int, precision_fractional: int, dtype: Any) -> FixedPrecisionTensor:
    presented = dtype if isinstance(dtype, torch.dtype) and dtype.is_floating_point else None
    if presented is None and tensor.is_floating_point():
        presented = tensor.dtype
    if tensor.is_complex():
        raise ValueError(
            "Complex numbers have no fixed-precision form. Encode real and imaginary part apart."
        )
    return FixedPrecisionTensor(base, precision_fractional, presented)


def fix_precision(
    self: Any,
    precision_fractional: int = DEFAULT_PRECISION,
    base: int = DEFAULT_BASE,
    dtype: Any = None,
    field: int | None = None,
    *,
    storage: str = "auto",
    no_wrap: bool = False,
    **options: Any,
) -> Any:
    """The tensor as integers of 1 / base ** precision_fractional; !! ValueError for what does not fit.

    `storage` says what holds the integers, with the options of each: see `syft.mpc.storage`. `no_wrap`: the node itself.
    `field`: the integers are checked to fit a field of that size (NOTE [The field] in syft.mpc.node_methods), which is
    noted as `x.child.field`; values that are elsewhere cannot be checked.

    A pointer is encoded where the value is. `dtype`: the floating-point dtype to present, by default the
    tensor's own; the integers of this type are always int64 (so `dtype="long"` changes nothing).
    """
    other = encoded_in(self, storage, precision_fractional, base, {"field": field, **options})
    if other is not None:
        return other.child if no_wrap else other
    made = _fixed(self, precision_fractional, base, dtype, field, there=True)
    return made.child if no_wrap else made


def _fixed(
    self: Any,
    precision_fractional: int,
    base: int,
    dtype: Any = None,
    field: int | None = None,
    there: bool = False,
) -> Any:
    """`fix_precision` with int64; `there`: see `_encoded`."""
    known = format_there(self) or (
        (self.child.base, self.child.precision_fractional) if _is_fixed(self) else None
    )
    if known is not None:
        raise ChainError(
            f"This tensor is in fixed precision already (base={known[0]}, precision_fractional={known[1]}). Call "
            "float_precision() first to change it."
        )
    follow_precision()
    template = _template(self, base, precision_fractional, dtype)
    if field is not None:
        template.field = checked_field(field)
        if not (there and is_open_there(self)):
            _check_field(self, template)
    if self.requires_grad and torch.is_grad_enabled() and not self.is_leaf:
        return Encode.apply(self, template, there)
    made = _encoded(self, template, there)
    if isinstance(made.child, FixedPrecisionTensor):
        made.child.field = template.field
    if self.requires_grad:
        made.requires_grad_()
        if self.is_leaf and self.grad is not None:
            made.grad = _encoded(self.grad, template, there) if not _is_fixed(self.grad) else self.grad
    return _as_parameter_of(self, made)


def _as_parameter_of(tensor: Any, made: Any) -> Any:
    """What was made of a parameter is a parameter."""
    if isinstance(tensor, torch.nn.Parameter):
        if type(made) is torch.Tensor:
            made, plain = torch.nn.Parameter(made.detach(), made.requires_grad), made
            made.grad = plain.grad
        else:
            made._is_param = True
    return made


def _check_field(tensor: Any, template: FixedPrecisionTensor) -> None:
    """!! ValueError for values that the template's field cannot hold, or that nobody here can see."""
    if type(tensor) is Wrapper:
        raise ValueError(
            f"fix_precision(field={template.field}) checks that the values fit, and these are not here. Leave field "
            "out, or encode before sending."
        )
    check_values(encode_integers(tensor, template.scale), template.field)


def float_precision(self: Any) -> Any:
    """The values in floating point; !! ChainError for a tensor that is not in fixed precision here."""
    head = stored(self)
    if head is not None:
        return head.decode()
    if _is_below(self):
        if isinstance(self.child, AutogradTensor):
            return float_precision(without_autograd_node(self) if self.is_leaf else step_down(self))
        return step_up(self.child, float_precision(step_down(self)))
    if not _is_fixed(self) and format_there(self) is None:
        raise ChainError(
            "float_precision() was called on a tensor that is not in fixed precision. Use it as it "
            "is; only what "
            "fix_precision() returned, or was computed from it, has to be decoded."
        )
    if self.requires_grad and torch.is_grad_enabled() and not self.is_leaf:
        return Decode.apply(self)
    made = _decoded(self)
    if self.requires_grad:
        made = made.detach().requires_grad_()
        if self.is_leaf and self.grad is not None:
            made.grad = _decoded(self.grad)
    return _as_parameter_of(self, made)


def format_there(tensor: Any) -> tuple[int, int] | None:
    """The format of the remote chain in fixed precision that a pointer points to; None for any other tensor."""
    node = tensor.child if type(tensor) is Wrapper else None
    return node.spec.number_format if isinstance(node, PointerTensor) else None


def fix_precision_(self: Any, *args: Any, **kwargs: Any) -> Any:
    """`fix_precision` in place; returns self, under the same id."""
    return _become(self, fix_precision(self, *args, **kwargs))


def float_precision_(self: Any) -> Any:
    """`float_precision` in place; returns self, under the same id."""
    return _become(self, float_precision(self))


def _become(tensor: Any, made: Any) -> Any:
    known = tensor.child if type(tensor) is Wrapper else known_identity(tensor)
    if known is not None and made is not tensor:
        identity_of(made).id = known.id
    return become(tensor, made)


# -- modules ----------------------------------------------------------------------------------------------


def _reals(module: torch.nn.Module) -> Iterator[Any]:
    """Parameters and floating-point buffers; counters such as num_batches_tracked stay as they are."""
    yield from module.parameters()
    yield from (buffer for buffer in module.buffers() if buffer.is_floating_point())


def fix_module(
    self: Any, precision_fractional: int = DEFAULT_PRECISION, base: int = DEFAULT_BASE, **options: Any
) -> Any:
    """Parameters, their gradients and buffers to fixed precision, in place; returns self."""
    follow_precision()
    if not options:
        _fix_variances(self, precision_fractional, base)
    for tensor in _reals(self):
        if _is_fixed(tensor):
            continue
        # NB: the nodes of a model that was sent stay here, where its optimizer finds them.
        if options:
            fix_precision_(tensor, precision_fractional, base, **options)
        else:
            _become(tensor, _fixed(tensor, precision_fractional, base))
    return self


def _fix_variances(module: torch.nn.Module, precision_fractional: int, base: int) -> None:
    """Running variances keep twice the digits (NOTE [Fine tensors]): a deviation of 0.01 is a variance of 0.0001."""
    for layer in module.modules():
        variance = getattr(layer, "running_var", None)
        if type(variance) is not torch.Tensor or not isinstance(layer, torch.nn.modules.batchnorm._NormBase):
            continue
        template = _template(variance, base, precision_fractional, None)
        digits = fixed_fine.digits_of_variance(template)
        if float(variance.max()) < ENCODE_LIMIT / base**digits and digits > precision_fractional:
            become(variance, _encoded(variance, fixed_fine.fine(None, template, digits)))


def float_module(self: Any) -> Any:
    """Back to floating point, in place; returns self."""
    for tensor in _reals(self):
        if _is_fixed(tensor):
            float_precision_(tensor)
    return self


# -- optimizers ---------------------------------------------------------------------------------------------

#: Optimizers of which fix_precision() was asked, with what it was asked with.
_fixed_optimizers: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()
_registered: list[Any] = []
#: Moving averages that need more digits than their parameter.
FINE_STATE = {
    "exp_avg": fixed_fine.digits_of_average,
    "exp_avg_sq": fixed_fine.digits_of_squares,
    "max_exp_avg_sq": fixed_fine.digits_of_squares,
    "square_avg": fixed_fine.digits_of_squares,
    "acc_delta": fixed_fine.digits_of_squares,
    "sum": fixed_fine.digits_of_squares,
    "grad_avg": fixed_fine.digits_of_average,
    "exp_inf": fixed_fine.digits_of_average,
}
#: The moving averages that an optimizer makes on its first step, with the setting that asks for them.
_AVERAGES: dict[type, dict[str, str | None]] = {
    torch.optim.Adam: {"exp_avg": None, "exp_avg_sq": None, "max_exp_avg_sq": "amsgrad"},
    torch.optim.NAdam: {"exp_avg": None, "exp_avg_sq": None},
    torch.optim.RAdam: {"exp_avg": None, "exp_avg_sq": None},
    torch.optim.Adamax: {"exp_avg": None, "exp_inf": None},
    torch.optim.RMSprop: {"square_avg": None, "momentum_buffer": "momentum", "grad_avg": "centered"},
    torch.optim.Adadelta: {"square_avg": None, "acc_delta": None},
}
#: Optimizers whose steps depend on what fixed precision has not, with the reason.
_REFUSED: dict[type, str] = {
    torch.optim.LBFGS: "it decides by the values of the loss and of gradients, which nobody sees",
    torch.optim.Rprop: "it goes by the signs of products of gradients, which vanish in fixed precision",
    torch.optim.Adafactor: "it divides by products of averages that vanish in fixed precision",
    torch.optim.SparseAdam: "gradients of secrets are dense",
}


def fix_optimizer(
    self: Any, precision_fractional: int = DEFAULT_PRECISION, base: int = DEFAULT_BASE, **options: Any
) -> Any:
    """Make an optimizer fit parameters in fixed precision; returns self.

    Its hyper-parameters that are floats become numbers in fixed precision (`syft.mpc.fixed_numbers`). State that exists
    already (momentum) is brought to the precision of its parameter, and follows it from then on.
    """
    if options:
        raise TypeError(
            f"Optimizer.fix_precision() takes precision_fractional and base, and got {', '.join(sorted(options))}."
        )
    _fixed_optimizers[self] = {"precision_fractional": precision_fractional, "base": base}
    FixedPrecisionTensor(base, precision_fractional)  # refuses what describes no numbers
    for group in self.param_groups:
        fix_numbers(group, base, precision_fractional)
    follow_precision()
    bring_state(self)
    return self


def float_optimizer(self: Any) -> Any:
    """Undo `fix_precision`: plain numbers again, and state follows parameters back to floating point; returns self."""
    _fixed_optimizers.pop(self, None)
    for group in self.param_groups:
        float_numbers(group)
    bring_state(self)
    return self


def precision_of(optimizer: Any) -> dict[str, Any] | None:
    """What `Optimizer.fix_precision` was called with, or None."""
    return _fixed_optimizers.get(optimizer)


def follow_precision() -> None:
    """From the first model in fixed precision on, every optimizer step looks at the form of its
    parameters.
    """
    if not _registered:
        _registered.append(register_optimizer_step_pre_hook(_before_step))
        _registered.append(register_optimizer_step_post_hook(restore_foreach))


def _before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    if bring_state(optimizer):
        choose_foreach(optimizer)


def bring_state(optimizer: torch.optim.Optimizer) -> bool:
    """Bring the state of every parameter to the form its parameter has; whether one is in fixed precision.

    What cannot be brought is refused before anything that is plain is changed.
    """
    has_fixed = False
    to_encode: list[tuple[dict[str, Any], str, Any]] = []
    for group, parameter in [(one, p) for one in optimizer.param_groups for p in one["params"]]:
        if _is_fixed(parameter):
            has_fixed = True
            _refuse(optimizer)
            _begin(optimizer, group, parameter)
        elif type(parameter) is not Wrapper and _is_fixed(parameter.grad) and _is_torchs(optimizer):
            raise _secret_gradient(optimizer)
        state = optimizer.state.get(parameter) or {}
        for name, value in state.items():
            if not isinstance(value, torch.Tensor) or name in _PLAIN_STATE:
                continue
            made = _in_form_of(parameter, value, name)
            if type(value) is Wrapper:
                state[name] = made
            elif made is not value:
                to_encode.append((state, name, made))
    for state, name, made in to_encode:
        state[name] = made
    return has_fixed


def _is_torchs(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the step is one of torch's own: who writes another may know what to do with secret gradients."""
    return type(optimizer).step.__module__.startswith("torch.optim.")


def _secret_gradient(optimizer: torch.optim.Optimizer) -> UnsupportedOperationError:
    return UnsupportedOperationError(
        f"{type(optimizer).__name__}.step on a plain parameter whose gradient is a secret",
        FixedPrecisionTensor,
        "The parameter would have to become one. Call `model.fix_precision()` (and `.share(...)`) before the forward "
        "pass, or fetch the gradients, where you may see them: "
        "`parameter.grad = parameter.grad.get().float_precision()`.",
    )


def _refuse(optimizer: torch.optim.Optimizer) -> None:
    reason = next((why for kind, why in _REFUSED.items() if isinstance(optimizer, kind)), None)
    if reason is not None:
        raise UnsupportedOperationError(
            f"{type(optimizer).__name__}.step",
            FixedPrecisionTensor,
            f"Of parameters in fixed precision {reason}. Use SGD, Adam, AdamW, NAdam, RAdam, Adamax, RMSprop, Adagrad, "
            "Adadelta or ASGD.",
        )


def _in_form_of(parameter: Any, value: Any, name: str) -> Any:
    """State of an optimizer in the precision, and at the place, of its parameter."""
    if not _is_fixed(parameter):
        if not _is_fixed(value) or type(parameter) is Wrapper:
            return value
        return _decoded(new_wrapper(_brought(value.child, None)))
    if type(value) is not Wrapper:
        template = parameter.child
        if name in FINE_STATE:
            template = _fine(None, template, name)
        value = _encoded(value, template)
    if not _is_fixed(value):
        return value
    node = value.child
    if name in FINE_STATE and not node.is_fine:
        made = _fine(None, node, name)
        made.child = fixed_fine.at(node, made.precision_fractional)
        node = made
    return new_wrapper(_brought(node, parameter.child.child))


def _brought(node: FixedPrecisionTensor, place: Any) -> Any:
    """A node whose integers are where those of `place` are: here, at a worker, or shared among its holders."""
    if not isinstance(place, AbstractTensor):
        return node if isinstance(node.child, torch.Tensor) else node.like(_fetched(node.child))
    if _where(node.child) == _where(place):
        return node
    here = node.child if isinstance(node.child, torch.Tensor) else _fetched(node.child)
    return node.like(put_back(place, here))


def _fetched(child: Any) -> Any:
    """The integers of a pointer or a secret; NOTE [The first get] is about what users fetch."""
    if getattr(child, "was_shared_there", False):
        child.was_shared_there = False
    return child.get()


def _where(child: Any) -> Any:
    """Who has the integers: None for here."""
    if isinstance(child, torch.Tensor):
        return None
    holders = getattr(child, "locations", None)
    return [id(w) for w in holders] if holders is not None else id(child.location)


#: State that is a number and no tensor like the parameter.
_PLAIN_STATE = frozenset({"step", "mu_product", "eta", "mu"})


def _begin(optimizer: torch.optim.Optimizer, group: dict[str, Any], parameter: Any) -> None:
    """The state an optimizer would make on its first step, with fine moving averages (NOTE [Fine tensors])."""
    averages = next((names for kind, names in _AVERAGES.items() if isinstance(optimizer, kind)), None)
    state = optimizer.state[parameter] if averages is not None else {}
    if averages is None or state or parameter.grad is None or group.get("capturable"):
        return
    state["step"] = torch.tensor(0.0, dtype=torch.get_default_dtype())
    if isinstance(optimizer, torch.optim.NAdam):
        state["mu_product"] = torch.tensor(1.0, dtype=torch.get_default_dtype())
    for name, setting in averages.items():
        if setting is None or group.get(setting):
            zeros = on_children(aten.zeros_like.default, parameter.child.child)
            made = _fine(zeros, parameter.child, name) if name in FINE_STATE else parameter.child.like(zeros)
            state[name] = new_wrapper(made)


def _fine(child: Any, like: FixedPrecisionTensor, name: str) -> FixedPrecisionTensor:
    return fixed_fine.fine(child, like, FINE_STATE[name](like))


TENSOR_METHODS: dict[str, Any] = {
    "fix_precision": fix_precision,
    "fix_prec": fix_precision,
    "fix_precision_": fix_precision_,
    "fix_prec_": fix_precision_,
    "float_precision": float_precision,
    "float_prec": float_precision,
    "float_precision_": float_precision_,
    "float_prec_": float_precision_,
}
MODULE_METHODS: dict[str, Any] = {
    "fix_precision": fix_module,
    "fix_prec": fix_module,
    "fix_precision_": fix_module,
    "float_precision": float_module,
    "float_prec": float_module,
    "float_precision_": float_module,
}
OPTIMIZER_METHODS: dict[str, Any] = {
    "fix_precision": fix_optimizer,
    "float_precision": float_optimizer,
}
