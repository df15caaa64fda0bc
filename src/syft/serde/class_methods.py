"""`simplify` and `detail` as static methods of the classes that travel, as `Plan` has them.

    SomeType.simplify(worker, obj)       what `obj` consists of, as a tuple
    SomeType.detail(worker, contents)    the object again; !! SerdeError if the contents are not those of a SomeType

The contents are those of the simple form: `serde.simplify(worker, obj)` is the code of the type, and these behind it. A
class that has such methods of its own keeps them, and the classes of others are left alone: they are not ours to change.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from syft.serde import simple_form
from syft.serde.errors import SerdeError

_OURS = __name__.partition(".")[0]

_ERROR, _TENSOR = ("e", "error_tuple"), ("tensor", "tensor_tuple")
_POINTER, _MESSAGE = ("ptr", "tensor_tuple"), ("ptr", "msg_tuple")
#: Class -> the documented names of the second parameter of `simplify` and of `detail`; messages have those of `_MESSAGE`.
PARAMETERS: dict[str, tuple[str, str]] = {
    "ResponseSignatureError": _ERROR,
    "SendNotPermittedError": _ERROR,
    "GetNotPermittedError": _ERROR,
    "LoggingTensor": _TENSOR,
    "AdditiveSharingTensor": _TENSOR,
    "AutogradTensor": _TENSOR,
    "CRTPrecisionTensor": _TENSOR,
    "FixedPrecisionTensor": _TENSOR,
    "PaillierTensor": _TENSOR,
    "PrivateTensor": _TENSOR,
    "MultiPointerTensor": _TENSOR,
    "PointerTensor": _POINTER,
    "PointerPlan": _POINTER,
    "PointerProtocol": _POINTER,
    "ObjectPointer": ("ptr", "object_tuple"),
    "ObjectWrapper": ("obj", "obj_wrapper_tuple"),
    "String": ("string", "simple_obj"),
    "TrainConfig": ("train_config", "train_config_tuple"),
}


def add_class_methods(cls: Any, code: str) -> None:
    """Give a class that was registered under `code` the two methods, if it is one of this house and has none."""
    if cls.__module__.partition(".")[0] != _OURS or {"simplify", "detail"} & cls.__dict__.keys():
        return

    def simplify(worker: Any, obj: Any) -> tuple[Any, ...]:
        simple = simple_form.simplify(worker, obj) if isinstance(obj, cls) else ()
        if simple[:1] != (code,):  # also a subclass that travels in a way of its own
            raise SerdeError(
                f"{cls.__name__}.simplify was given a {type(obj).__name__}. Use syft.serde.simplify, which takes "
                "everything that travels."
            )
        return simple[1:]

    def detail(worker: Any, contents: tuple[Any, ...]) -> Any:
        made = simple_form.detail(worker, (code, *contents))
        if not isinstance(made, cls):
            raise SerdeError(
                f"{cls.__name__}.detail was given what {type(made).__name__}.simplify returns. Use syft.serde.simplify "
                "and syft.serde.detail, which note the type."
            )
        return made

    simplify.__doc__ = f"What a {cls.__name__} consists of, as a tuple of its contents in simple form."
    detail.__doc__ = f"A {cls.__name__} from what `simplify` returns. !! SerdeError"
    is_message = cls.__module__ == "syft.messaging.message"
    names = PARAMETERS.get(cls.__name__, _MESSAGE if is_message else ("obj", "contents"))
    for method, name in zip((simplify, detail), names, strict=True):
        method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
        setattr(cls, method.__name__, staticmethod(with_parameter(method, name)))


def with_parameter(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The method with another name for its second parameter."""
    first, second = inspect.signature(method).parameters.values()
    if second.name == name:
        return method

    def renamed(*args: Any, **kwargs: Any) -> Any:
        bound = renamed.__signature__.bind(*args, **kwargs)  # type: ignore[attr-defined]
        return method(*bound.args)

    renamed.__name__, renamed.__qualname__, renamed.__doc__ = (
        method.__name__,
        method.__qualname__,
        method.__doc__,
    )
    renamed.__signature__ = inspect.Signature([first, second.replace(name=name)])  # type: ignore[attr-defined]
    return renamed
