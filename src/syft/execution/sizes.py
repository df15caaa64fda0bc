"""Numbers that remember of which sizes of tensors they were computed.

While a function is traced, `x.shape[0]` is a `SymbolicInt`: an int with the value it has in this run, and with the
expression that gives its value in any run. Arithmetic keeps both. A decision (`if x.shape[0] > 3`) cannot be kept:
it is written down with its line, and refused if the size turns out to be one that may change.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from syft.execution.operation import Size


@dataclass(frozen=True, slots=True)
class Decision:
    """A comparison that user code made with a size; `is_of_sizes` if it was with another one, for equality."""

    value: Any
    other: Any
    line: str
    is_of_sizes: bool


class SizeLog:
    """The decisions of one traced run, and the sizes that became plain numbers (`len(x)`, `int(x.shape[0])`)."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.escapes: list[tuple[Any, Size]] = []


class _Symbolic:
    """What the two kinds of numbers share. `expression` is a Size, `log` where decisions are written down."""

    __slots__ = ()
    expression: Size
    log: SizeLog


def _expression(value: Any) -> Any:
    return value.expression if isinstance(value, _Symbolic) else value


def _plain(value: Any) -> Any:
    """The number itself. NB: not `int(value)`, which is what users write, and is noted."""
    if isinstance(value, SymbolicInt):
        return int.__add__(value, 0)
    return float.__add__(value, 0.0) if isinstance(value, SymbolicFloat) else value


def _escaped(symbolic: Any, made: Any) -> Any:
    symbolic.log.escapes.append((made, symbolic.expression))
    return made


def _symbolic(value: Any, expression: Size, log: SizeLog) -> Any:
    made: Any
    if type(value) is int:
        made = SymbolicInt(value)
    elif type(value) is float:
        made = SymbolicFloat(value)
    else:
        return value
    made.expression, made.log = expression, log
    return made


def symbolic_size(value: int, slot: int, dim: int, log: SizeLog) -> Any:
    """The size of a dimension of the tensor in a slot."""
    return _symbolic(_plain(value), Size("dim", slot, dim), log)


def _arithmetic(name: str, symbol: str, reflected: bool) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        base = int if isinstance(self, int) else float
        if type(other) not in (int, float, SymbolicInt, SymbolicFloat):
            return getattr(base, name)(_plain(self), other)
        value = getattr(base, name)(_plain(self), _plain(other))
        if value is NotImplemented:
            value = getattr(float, name)(float(_plain(self)), float(_plain(other)))
        left, right = (other, self) if reflected else (self, other)
        return _symbolic(value, Size(symbol, _expression(left), _expression(right)), self.log)

    method.__name__ = name
    return method


def _comparison(name: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        base: Any = int if isinstance(self, int) else float
        if isinstance(other, _Symbolic) and other.expression == self.expression:
            return name in ("__eq__", "__le__", "__ge__")
        _decide(self, other, isinstance(other, _Symbolic) and name in ("__eq__", "__ne__"))
        result = getattr(base, name)(_plain(self), _plain(other))
        if result is NotImplemented and isinstance(other, float):
            result = getattr(float, name)(float(_plain(self)), _plain(other))
        return result

    method.__name__ = name
    return method


def _decide(symbolic: Any, other: Any, is_of_sizes: bool = False) -> None:
    line = deciding_line()
    if line is not None:
        plain = _plain(other) if isinstance(other, (int, float)) else repr(type(other))
        symbolic.log.decisions.append(Decision(_plain(symbolic), plain, line, is_of_sizes))


class SymbolicInt(int, _Symbolic):
    """An int that knows how it was computed."""

    def __bool__(self) -> bool:
        _decide(self, 0)
        return bool(_plain(self) != 0)

    def __neg__(self) -> Any:
        return _symbolic(-_plain(self), Size("neg", self.expression, 0), self.log)

    def __hash__(self) -> int:
        return hash(_plain(self))

    def __int__(self) -> int:
        return _escaped(self, _plain(self))  # type: ignore[no-any-return]

    __trunc__ = __floor__ = __ceil__ = __int__

    def __float__(self) -> float:
        return _escaped(self, float(_plain(self)))  # type: ignore[no-any-return]

    def __round__(self, ndigits: Any = None) -> int:
        return _escaped(self, _plain(self))  # type: ignore[no-any-return]

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class SymbolicFloat(float, _Symbolic):
    """A float that was computed of sizes."""

    def __bool__(self) -> bool:
        _decide(self, 0.0)
        return bool(_plain(self) != 0.0)

    def __neg__(self) -> Any:
        return _symbolic(-_plain(self), Size("neg", self.expression, 0), self.log)

    def __hash__(self) -> int:
        return hash(_plain(self))

    def __float__(self) -> float:
        return _escaped(self, _plain(self))  # type: ignore[no-any-return]


for _name, _symbol in {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "floordiv": "//",
    "mod": "%",
    "truediv": "/",
    "pow": "**",
}.items():
    for _kind in (SymbolicInt, SymbolicFloat):
        setattr(_kind, f"__{_name}__", _arithmetic(f"__{_name}__", _symbol, False))
        setattr(_kind, f"__r{_name}__", _arithmetic(f"__r{_name}__", _symbol, True))
for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
    for _kind in (SymbolicInt, SymbolicFloat):
        setattr(_kind, _name, _comparison(_name))


# -- whose line it is ------------------------------------------------------------------------------


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in ("torch", "syft")


def user_line() -> str:
    """File and line of the innermost code that is neither torch's nor ours."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if not _is_ours(str(frame.f_globals.get("__name__", ""))):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "an unknown line"


def deciding_line() -> str | None:
    """The line that compares a size; None if it is a line of torch's own, which checks arguments that way."""
    frame: Any = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")) == __name__:
        frame = frame.f_back
    if frame is None or _is_ours(str(frame.f_globals.get("__name__", ""))):
        return None
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
