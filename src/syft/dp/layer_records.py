"""Models as data: the layers of a closed list, their settings and tensors, as records that travel.

One duty: `record_of(model)` and `model_of(record)`. What arrives names layers of the list below and nothing else, and
no memory is taken for tensors that a record announces and does not bring. Imports `serde`.

NOTE [Layers that stand twice]
One layer object may stand in several places, and one parameter in several layers (tied weights). A record has a layer
for every place. A parameter travels with the first place it stands in; further places name that one, and it is one
parameter again where the record is read. So what is trained there, and written back here, is the same model.
"""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from syft.exceptions import ReleaseNotPermittedError
from syft.serde import register_record

_CONVOLUTION = (
    "in_channels",
    "out_channels",
    "kernel_size",
    "stride",
    "padding",
    "dilation",
    "groups",
    "bias",
    "padding_mode",
)
_POOL = ("kernel_size", "stride", "padding", "ceil_mode")

#: Layers that work on one example at a time and never raise because of a value, and the settings they are made with.
SETTINGS: dict[type[nn.Module], tuple[str, ...]] = {
    nn.Sequential: (),
    nn.Identity: (),
    nn.Linear: ("in_features", "out_features", "bias"),
    nn.Conv1d: _CONVOLUTION,
    nn.Conv2d: _CONVOLUTION,
    nn.ReLU: ("inplace",),
    nn.LeakyReLU: ("negative_slope", "inplace"),
    nn.ELU: ("alpha", "inplace"),
    nn.GELU: ("approximate",),
    nn.SiLU: ("inplace",),
    nn.Tanh: (),
    nn.Sigmoid: (),
    nn.Softplus: ("beta", "threshold"),
    nn.Flatten: (),
    nn.MaxPool2d: (*_POOL, "dilation"),
    nn.AvgPool2d: (*_POOL, "count_include_pad", "divisor_override"),
    nn.AdaptiveAvgPool2d: ("output_size",),
    nn.LayerNorm: ("normalized_shape", "eps", "elementwise_affine", "bias"),
    nn.GroupNorm: ("num_groups", "num_channels", "eps", "affine"),
}
_BY_NAME = {cls.__name__: cls for cls in SETTINGS}
_WITH_TENSORS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.LayerNorm, nn.GroupNorm)

Setting = bool | int | float | str | None | tuple[int | None, ...]


class LayerRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One layer: its name in the list, what it is made with, its tensors, which of them are trained, what is in it.

    `tied`: name of a tensor -> where the same one stood before, such as "0.weight".
    """

    kind: str
    settings: dict[str, Setting]
    tensors: dict[str, Tensor]
    trained: tuple[str, ...]
    children: dict[str, Any]
    tied: dict[str, str] = {}


register_record(LayerRecord)


def is_plain(layer: nn.Module) -> bool:
    """Whether a layer is of the list and does what its type says."""
    hooks = (value for name, value in vars(layer).items() if name.endswith("_hooks"))
    own = all(type(p) is nn.Parameter for p in layer._parameters.values() if p is not None)
    if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1):
        return False
    if isinstance(layer, nn.MaxPool2d) and layer.return_indices:
        return False
    return type(layer) in SETTINGS and not any(hooks) and own and "forward" not in vars(layer)


def check_layers(model: nn.Module) -> None:
    """!! ReleaseNotPermittedError that names every layer which does not run beside private data."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"train_privately got a {type(model).__name__} as a model. A model is made of these layers: "
            f"{', '.join(sorted(_BY_NAME))}."
        )
    faults = [
        f"{name or 'the model'} ({type(layer).__name__})"
        for name, layer in model.named_modules()
        if not is_plain(layer)
    ]
    # NB: `named_modules` knows a layer that stands twice, or in itself, by its first place.
    faults += [
        f"{name + '.' if name else ''}{key} (nothing, where a layer is expected)"
        for name, layer in model.named_modules()
        for key, child in layer._modules.items()
        if child is None
    ]
    if faults:
        raise ReleaseNotPermittedError(
            f"train_privately does not run {', '.join(faults)} beside private data. A model is made of these layers, as "
            f"they come and without hooks: {', '.join(sorted(_BY_NAME))}."
        )


def record_of(model: nn.Module) -> LayerRecord:
    """A model of plain layers as a record. !! ReleaseNotPermittedError"""
    check_layers(model)
    return _record_of(model, "", {}, ())


def _record_of(layer: nn.Module, path: str, places: dict[int, str], around: tuple[int, ...]) -> LayerRecord:
    """`places`: where each parameter stood first, by its id. `around`: the layers that this one stands in."""
    if id(layer) in around:
        raise ReleaseNotPermittedError(
            f"train_privately does not run {path.removesuffix('.')} ({type(layer).__name__}), which stands in itself. "
            "Put another layer there."
        )
    held = {name: p for name, p in layer._parameters.items() if p is not None}
    tied = {name: places[id(p)] for name, p in held.items() if id(p) in places}
    for name, p in held.items():
        places.setdefault(id(p), path + name)
    inside = {
        name: _record_of(child, f"{path}{name}.", places, (*around, id(layer)))
        # NB: not `named_children`, which leaves out a layer that stood there before.
        for name, child in layer._modules.items()
        if child is not None
    }
    return LayerRecord(
        type(layer).__name__,
        {name: _setting(layer, name) for name in SETTINGS[type(layer)]},
        {name: p.detach() for name, p in held.items() if name not in tied},
        tuple(name for name, p in held.items() if p.requires_grad and name not in tied),
        inside,
        tied,
    )


def _setting(layer: nn.Module, name: str) -> Any:
    value = vars(layer).get(name)
    if name == "bias":
        return layer._parameters.get("bias") is not None
    return tuple(value) if isinstance(value, (list, tuple)) else value


def model_of(record: Any) -> nn.Module:
    """The model that a record describes. !! ReleaseNotPermittedError, ValueError"""
    return _model_of(record, "", {})


def _model_of(record: Any, path: str, made: dict[str, nn.Parameter]) -> nn.Module:
    """`made`: the parameters so far, by their places."""
    if not isinstance(record, LayerRecord):
        raise ValueError(f"A model is described by a LayerRecord, not by a {type(record).__name__}.")
    cls: Any = _BY_NAME.get(record.kind)
    if cls is None:
        raise ReleaseNotPermittedError(
            f"There is no layer {record.kind[:60]!r} that runs beside private data. There are: "
            f"{', '.join(sorted(_BY_NAME))}."
        )
    if set(record.settings) != set(SETTINGS[cls]):
        raise ValueError(
            f"A {record.kind} is made with {', '.join(SETTINGS[cls]) or 'nothing'}; others were given."
        )
    if record.children and cls is not nn.Sequential:
        raise ValueError(f"A {record.kind} has no layers inside.")
    try:
        # On "meta" no memory is taken: the tensors that came take the places.
        layer: nn.Module = (
            cls(**record.settings, device="meta") if cls in _WITH_TENSORS else cls(**record.settings)
        )
    except (TypeError, RuntimeError, OverflowError) as error:
        raise ValueError(f"A {record.kind} cannot be made with {record.settings}: {error}.") from error
    _give_tensors(layer, record, path, made)
    for name, child in record.children.items():
        if not name.isidentifier() and not name.isdecimal():
            raise ValueError(f"A layer in a Sequential has a name or a number, not {name[:60]!r}.")
        layer.add_module(name, _model_of(child, f"{path}{name}.", made))
    return layer


def _give_tensors(layer: nn.Module, record: LayerRecord, path: str, made: dict[str, nn.Parameter]) -> None:
    places = {name: p for name, p in layer._parameters.items() if p is not None}
    if sorted(places) != sorted([*record.tensors, *record.tied]):
        raise ValueError(f"A {record.kind} has the tensors {', '.join(places) or 'none'}; others were sent.")
    for name, place in places.items():
        if name in record.tied:
            earlier = made.get(record.tied[name])
            if earlier is None or earlier.shape != place.shape:
                raise ValueError(
                    f"The {name} of a {record.kind} is tied to {record.tied[name][:60]!r}: that is no parameter in the "
                    f"shape {tuple(place.shape)} that came before it."
                )
            layer._parameters[name] = made[path + name] = earlier
            continue
        tensor = record.tensors[name]
        if type(tensor) is not Tensor or tensor.shape != place.shape or not tensor.is_floating_point():
            raise ValueError(
                f"The {name} of a {record.kind} has real numbers in the shape {tuple(place.shape)}; others were sent."
            )
        own = tensor.detach().clone(memory_format=torch.contiguous_format)
        layer._parameters[name] = made[path + name] = nn.Parameter(own, requires_grad=name in record.trained)
