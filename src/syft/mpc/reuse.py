"""What is remembered of a secret so that its second use is cheap: its masked forms, and secrets computed from it.

NOTE [Versions]
A tensor and its views stand for one piece of memory at every holder, and share one `Remembered`. Whatever writes into
that memory by an operation on secrets (an optimizer's step, `copy_`, `load_state_dict`, an assignment to a view) calls
`written` first, and everything that was remembered of the values is gone. A new tensor in the place of the old one
(`set_`, `.data = `, sharing again) has a `Remembered` of its own. Holders on a network check once more: a masked operand
is refused when the memory of its share was written to by any way at all. In one process torch counts no writes of
workers, so a write to a single share by the pointer to it is not noticed there.

NOTE [Which operands are kept masked]
Masking an operand for later costs no message in its first product (`beaver.multiply_keeping`), but memory at the
holders: twice its size. It is done for what users shared (weights, data) at the first product, for everything else at
the second, or at once if another product waits for it (`rules.later`) or if it goes into a layer while gradients are on.
A parameter that is written to after every use, as in training, is treated as everything else from then on.
`MOST_FORMS` masked forms are kept, and all go with the last reference to the secret.

NOTE [Transposed operands]
A layer multiplies by the transpose of its weight, and its backward by the weight; the gradient of a weight is the product
of one operand of the layer, transposed, with what came back. A product with the transpose of a matrix is made as that of
the matrix, transposed on the way, so both use one masked form.

Imports the lower half, and knows nodes by their methods only.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from syft.exceptions import SyftError
from syft.mpc import halves
from syft.mpc.correlations import Triple
from syft.mpc.kernels import Bilinear, is_on_cuda
from syft.mpc.protocols import beaver, crossed, scaled

if TYPE_CHECKING:
    from syft.mpc.drivers import Shares

MOST_FORMS = 4
MOST_DERIVED = 8


class MaskedFormOutdatedError(SyftError, RuntimeError):
    """A holder was asked to use the masked form of a secret whose share was written to since."""


class Masked:
    """One operand in its masked form: what each holder has of it, valid as long as the group is (`epoch`)."""

    __slots__ = ("epoch", "operands", "place", "uses")

    def __init__(self, epoch: Any, operands: Shares, place: Any) -> None:
        self.epoch, self.operands, self.place, self.uses = epoch, operands, place, 0


class GivenMasked:
    """An argument of a program: a secret whose masked form the holders have. Permissions are those of the secret."""

    __slots__ = ("masked", "node")

    def __init__(self, node: Any, masked: Masked) -> None:
        self.node, self.masked = node, masked

    @property
    def pointers(self) -> Any:
        return self.node.pointers


class Remembered:
    """See the top of this file."""

    __slots__ = (
        "__weakref__",
        "derived",
        "is_lasting",
        "is_normalised",
        "masked",
        "pending",
        "riders",
        "used",
        "version",
    )

    def __init__(self, is_lasting: bool = False) -> None:
        self.version = 0
        self.is_lasting = is_lasting
        #: Masked forms by the path from the memory to the view.
        self.masked: dict[Hashable, Masked] = {}
        self.used: set[Hashable] = set()
        self.derived: dict[Hashable, tuple[Any, Any]] = {}
        #: Whether a norm came after a convolution with it, None if that is not known: NOTE [Folding] in
        #: `rules.fixed_folding`.
        self.is_normalised: bool | None = None
        #: What was not computed yet, of values as they are now: `force()` is called before they change.
        self.pending: weakref.WeakSet[Any] = weakref.WeakSet()
        #: What was not computed yet and may be in any program with these values: NOTE [Undone losses] in `rules.later`.
        self.riders: weakref.WeakSet[Any] = weakref.WeakSet()

    def written(self) -> None:
        """The values are about to change. NOTE [Versions]"""
        for one in list(self.pending):
            one.force()
        self.version += 1
        if self.masked:
            self.is_lasting = any(masked.uses for masked in self.masked.values())
            self.masked.clear()
        self.used.clear()
        self.derived.clear()

    def forget(self) -> None:
        """Be as if the values had just been shared: their next uses mask and derive anew."""
        self.written()
        self.is_lasting, self.is_normalised = True, None


def remembered(node: Any) -> Remembered:
    """The `Remembered` of a secret, made when it is first asked for."""
    found: Remembered | None = node._remembered
    if found is None:
        found = node._remembered = Remembered()
    return found


def note_view(func: Any, position: int, args: Any, kwargs: dict[str, Any], source: Any, made: Any) -> None:
    """`made` is result number `position` of an operation whose results are views of `source`."""
    try:
        path = (*source._path, (str(func), position, _hashable(args), _hashable(tuple(kwargs.items()))))
        hash(path)
    except TypeError:  # an argument that is no public constant: a view all the same, with a form of its own
        path = (*source._path, object())
    made._remembered, made._path = remembered(source), path
    if func is torch.ops.aten.t.default and len(source.shape) == 2:
        made.transpose_of = weakref.ref(source)


def _hashable(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(part) for part in value)
    if hasattr(value, "child"):
        return None  # the source itself
    return value


# -- products ----------------------------------------------------------------------------------------------


def multiply(x: Any, y: Any, op: Bilinear, divisor: int = 1, bias: Any = None) -> Any:
    """op(x, y) / divisor + bias of two secrets with the same holders, opening only what has not been opened. NOTE [Which
    operands are kept masked]

    What was dealt ahead of time is used first; None if that is for a product alone, and there is more to do.
    """
    group = x.group
    with group.issuing():
        epoch = group.epoch()
        given = {"x": x, "y": y}
        shapes = tuple(x.shape), tuple(y.shape)
        is_ready = group.driver.provider.ready
        is_split = halves.pay_for(len(group.holders), op, *shapes)
        for split in {False, is_split}:
            if is_ready(Triple(op, *shapes, split=split)):
                return x.run_masked(beaver.spdz_mul, x, y, op, not split) if divisor == 1 else None
        if divisor != 1 and is_ready(scaled.ScaledTriple(op, *shapes, divisor=divisor, split=is_split)):
            return _product(given, [x, y], op, divisor, "", bias)
        x, y, op = straightened(x, y, op)
        is_training = bias is not None and op.name == "matmul" and torch.is_grad_enabled()
        args, keep = prepared((x, y), epoch, group, is_training)
        if (
            not keep
            and bias is None
            and not any(isinstance(one, GivenMasked) for one in args)
            and _is_crossed(x, y, op, divisor)
        ):
            return x.run(crossed.multiply_crossed, y, divisor.bit_length() - 1)
        return _product({"x": x, "y": y}, args, op, divisor, keep, bias)


def prepared(factors: Sequence[Any], epoch: Any, group: Any, is_training: bool) -> tuple[list[Any], str]:
    """The factors of a product as arguments of a program, masked where they are already, and which to keep masked.

    The first is kept `is_training`: the gradient of the second is a product with it.
    """
    x, keeps_x = as_factor(factors[0], epoch, group, uses=-1 if is_training else 0)
    y, keeps_y = as_factor(factors[1], epoch, group)
    return [x, y], "x" * (keeps_x and x is not y) + "y" * keeps_y


def as_factor(node: Any, epoch: Any, group: Any, uses: int = 0) -> tuple[Any, bool]:
    """A factor as an argument of a program, masked if it is already, and whether to keep it masked otherwise.

    `uses`: how much of what waits for it is computed now.
    """
    form = _form(node, epoch, group)
    if form is not None:
        return GivenMasked(node, form), False
    return node, _is_worth_keeping(node, uses)


def straightened(x: Any, y: Any, op: Bilinear) -> tuple[Any, Any, Bilinear]:
    """The same product of the matrices whose transposes the operands are. NOTE [Transposed operands]"""
    if op != beaver.MATMUL or x.device.type != "cpu":
        return x, y, op
    given = {"x": x, "y": y}
    found = {name: node.transpose_of() for name, node in given.items() if node.transpose_of is not None}
    found = {name: source for name, source in found.items() if source is not None}
    if not found:
        return x, y, op
    given |= found
    return given["x"], given["y"], Bilinear.of("matmul", **{f"transpose_{name}": True for name in found})


def _is_crossed(x: Any, y: Any, op: Bilinear, divisor: int) -> bool:
    """Whether a product is made as `crossed` says: of large tensors, where they lie on the CPU."""
    holders = len(x.group.holders)
    return crossed.pays_for(holders, op, tuple(x.shape), tuple(y.shape), divisor) and not lies_on_device(x)


def lies_on_device(secret: Any) -> bool:
    """Whether shares lie on a device, here or at a holder on a network."""
    return is_on_cuda(secret) or any(getattr(holder, "keeps_on", "") for holder in secret.locations)


def _product(given: dict[str, Any], args: list[Any], op: Bilinear, divisor: int, keep: str, bias: Any) -> Any:
    x = given["x"]
    if divisor != 1:
        product, *kept = x.run_masked(scaled.multiply_truncated, *args, op, divisor, bias, keep)
    elif keep:
        product, *kept = x.run_masked(beaver.multiply_keeping, *args, op, keep)
    else:
        return x.run_masked(beaver.spdz_mul, *args, op)
    for name, masked in zip(keep, kept, strict=True):
        remember(given[name], masked)
    return product


def _form(node: Any, epoch: Any, group: Any) -> Masked | None:
    """The masked form of a secret, if there is one of its values as they are now."""
    record = node._remembered
    found: Masked | None = None if record is None else record.masked.get(node._path)
    if found is None:
        return None
    if found.epoch != epoch or not group.is_current(node, found):
        if found.epoch == epoch:
            record.written()  # by who knows whom
        else:
            del record.masked[node._path]
        return None
    found.uses += 1
    return found


def _is_worth_keeping(node: Any, uses: int) -> bool:
    record = remembered(node)
    if record.is_lasting or node._path in record.used:
        return True
    if sum(not one.is_made and one.recipe is not None for one in record.pending) > uses:
        return True
    if len(record.used) < MOST_FORMS:
        record.used.add(node._path)
    return False


def remember(node: Any, masked: Masked) -> None:
    forms = remembered(node).masked
    while len(forms) >= MOST_FORMS:
        del forms[next(iter(forms))]
    forms[node._path] = masked


# -- secrets computed from secrets that do not change ------------------------------------------------------------


def derived(key: Hashable, sources: Sequence[Any], make: Callable[[], Any]) -> Any:
    """What `make` computes from these secrets and from public values that `key` names; once, until one is written to.

    Kept with the first of them. The others are held weakly: if one is gone, so is what was derived.
    """
    records = [remembered(node) for node in sources]
    state = tuple((weakref.ref(r), r.version, node._path) for r, node in zip(records, sources, strict=True))
    found = records[0].derived.get(key)
    if found is not None and found[0] == state:
        return found[1]
    value = make()
    kept = records[0].derived
    kept.pop(key, None)
    while len(kept) >= MOST_DERIVED:
        del kept[next(iter(kept))]
    kept[key] = (
        tuple((weakref.ref(r), r.version, node._path) for r, node in zip(records, sources, strict=True)),
        value,
    )
    return value
