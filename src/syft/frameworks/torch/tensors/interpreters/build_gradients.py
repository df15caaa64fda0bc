"""The historical tool that writes the text of a gradient function from its definition.

    construct_grad_fn_class({"name": "mul(self, other)", "self": "grad * other", "other": "grad * self"})

The text is returned; nobody runs it here.
"""

from __future__ import annotations

import re

tab = "    "


def split_signature(signature: str) -> tuple[str, list[str]]:
    """The name and the names of the arguments of `name(first, second)`."""
    found = re.fullmatch(r"\s*(\w+)\s*\(([^()]*)\)\s*", signature)
    if found is None:
        raise ValueError(f"{signature!r} is not a signature. Write it as name(first, second).")
    return found[1], [part.strip() for part in found[2].split(",") if part.strip()]


def construct_grad_fn_class(grad_def: dict[str, str]) -> str:
    """The source of a GradFunc from a definition: `name` is its signature, and each argument has its gradient."""
    name, arguments = split_signature(grad_def["name"])
    safe = ["self_" if argument == "self" else argument for argument in arguments]
    lines = [
        f"class {name.capitalize()}Backward(GradFunc):",
        f"{tab}def __init__(self, {', '.join(safe)}):",
        f"{tab}{tab}super().__init__({', '.join(safe)})",
        *(f"{tab}{tab}self.{argument} = {argument}" for argument in safe),
        "",
        f"{tab}def gradient(self, grad):",
    ]
    gradients = []
    for argument, known in zip(arguments, safe, strict=True):
        if argument in grad_def:
            formula = re.sub(r"\bself\b", "self_", grad_def[argument])
            for other in safe:
                formula = re.sub(rf"\b{other}\b", f"self.{other}", formula)
            lines.append(f"{tab}{tab}grad_{known} = {formula}")
            gradients.append(f"grad_{known}")
    if not gradients:
        raise ValueError(
            f"The definition of {name!r} has no gradient. Add one per argument, e.g. {{'self': 'grad'}}."
        )
    lines.append(f"{tab}{tab}return ({', '.join(gradients)},)")
    return "\n".join(lines) + "\n"
