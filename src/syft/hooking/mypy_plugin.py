"""A plugin of mypy that knows the names which `TorchHook` adds to torch: `tensor.send(bob)` type-checks.

In the settings of your project:

    [tool.mypy]
    plugins = ["syft.hooking.mypy_plugin"]

One duty: the table `ADDED`, and telling mypy of it. mypy imports this module; nothing of ours does.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.nodes import ARG_STAR, ARG_STAR2, Argument, Var
from mypy.plugin import ClassDefContext, Plugin
from mypy.plugins.common import add_attribute_to_class, add_method_to_class
from mypy.types import AnyType, TypeOfAny
from mypy.typevars import fill_typevars

_RETURNS_SELF = (
    "send get move copy tag describe remote_get mid_get remote_send get_ "
    "fix_precision fix_prec float_precision float_prec share encrypt decrypt private_tensor"
).split()

#: Class -> names of methods that return an object of the same class, and names of anything else.
ADDED: dict[str, tuple[list[str], list[str]]] = {
    "torch._tensor.Tensor": (
        _RETURNS_SELF,
        ["id", "owner", "location", "id_at_location", "child", "tags", "description"],
    ),
    "torch.nn.modules.module.Module": (
        [
            "send",
            "get",
            "move",
            "copy",
            "fix_precision",
            "fix_prec",
            "float_precision",
            "float_prec",
            "share",
            "encrypt",
            "decrypt",
        ],
        ["location"],
    ),
    "torch.utils.data.dataset.Dataset": ([], ["federate"]),
}


def _add_names(context: ClassDefContext) -> None:
    methods, others = ADDED[context.cls.fullname]
    anything = AnyType(TypeOfAny.explicit)
    present = context.cls.info.names
    for name in methods:
        if name not in present:
            arguments = [
                Argument(Var("args", anything), anything, None, ARG_STAR),
                Argument(Var("kwargs", anything), anything, None, ARG_STAR2),
            ]
            add_method_to_class(context.api, context.cls, name, arguments, fill_typevars(context.cls.info))
    for name in others:
        if name not in present:
            add_attribute_to_class(context.api, context.cls, name, anything)


class SyftPlugin(Plugin):
    """Adds the names of `ADDED` to the classes of torch."""

    def get_customize_class_mro_hook(self, fullname: str) -> Callable[[ClassDefContext], None] | None:
        return _add_names if fullname in ADDED else None


def plugin(version: str) -> type[Plugin]:
    """Called by mypy."""
    return SyftPlugin
