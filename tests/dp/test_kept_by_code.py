"""What a model's own code keeps (its class, what its methods use, arrays, references) is seen like an attribute."""

from __future__ import annotations

import array
import contextlib
import contextvars
import ctypes
import functools
import logging
import random
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

from syft.dp.kept_state import KeptStateError, unchanged
from syft.dp.own_code import is_own
from syft.dp.per_sample import factors

torch.set_num_threads(1)

SEEN: list[Tensor] = []
ALIVE: list[Any] = []
#: A name that methods use as an attribute, and a program as a variable.
training: dict[str, int] = {"steps": 0}
LOGGER = logging.getLogger(__name__)


def plain(x: Any) -> Tensor:
    """The numbers of a mapped tensor, as code that means to keep them would get at them."""
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return x.detach().clone()  # type: ignore[no-any-return]


class Own(nn.Module):
    """A model whose forward calls what it was made with."""

    kept: Any = None

    def __init__(self, keep: Callable[[Any, Tensor], None]) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        type(self).keep = staticmethod(keep)  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> Tensor:
        type(self).keep(self, x)  # type: ignore[attr-defined]
        return self.layer(x)  # type: ignore[no-any-return]


def made(keep: Callable[[Any, Tensor], None]) -> nn.Module:
    return type("OwnOfATest", (Own,), {"__module__": __name__})(keep)  # type: ignore[no-any-return]


def in_the_class() -> nn.Module:
    return made(lambda model, x: setattr(type(model), "kept", plain(x)))


def in_a_list_of_the_class() -> nn.Module:
    model = made(lambda model, x: model.all_of_them.append(1))
    type(model).all_of_them = []  # type: ignore[attr-defined]
    return model


def in_a_default() -> nn.Module:
    def keep(model: Any, x: Tensor, kept: list[Tensor] = []) -> None:  # noqa: B006
        kept.append(plain(x))

    return made(keep)


def in_a_global() -> nn.Module:
    def keep(model: Any, x: Tensor) -> None:
        SEEN.append(plain(x))

    return made(keep)


def in_a_global_of_a_helper() -> nn.Module:
    def helper(x: Tensor) -> None:
        SEEN.append(plain(x))

    return made(lambda model, x: helper(x))


def in_a_module() -> nn.Module:
    own = types.ModuleType("a_module_of_a_test")
    own.last = None  # type: ignore[attr-defined]
    return made(lambda model, x: setattr(own, "last", plain(x)) or own.last)  # type: ignore[func-returns-value]


def by_a_partial() -> nn.Module:
    kept: list[Tensor] = []
    return made(functools.partial(lambda kept, model, x: kept.append(plain(x)), kept))


def by_a_method_of_a_list() -> nn.Module:
    append = list[Tensor]().append
    return made(lambda model, x: append(plain(x)))


def by_a_property() -> nn.Module:
    store: dict[str, Tensor] = {}
    model = made(lambda model, x: setattr(model, "last", plain(x)))
    type(model).last = property(lambda _: store.get("x"), lambda _, x: store.update(x=x))  # type: ignore[attr-defined]
    return model


def by_a_generator() -> nn.Module:
    def remember() -> Any:
        last = None
        while True:
            last = yield last

    generator = remember()
    next(generator)
    return made(lambda model, x: generator.send(plain(x)))


def by_a_weak_reference() -> nn.Module:
    box = Table()
    ALIVE.append(box)
    to_it = weakref.ref(box)
    return made(lambda model, x: setattr(to_it(), "last", plain(x)))


def by_its_code() -> nn.Module:
    def one() -> int:
        return 1

    def two() -> int:
        return 2

    return made(lambda model, x: setattr(one, "__code__", two.__code__))


def by_a_cache() -> nn.Module:
    @functools.lru_cache
    def first(key: int) -> int:
        return key

    return made(lambda model, x: first(3) and None)


def by_an_autograd_function() -> nn.Module:
    class Kept(torch.autograd.Function):
        generate_vmap_rule = True
        seen: list[Tensor] = []

        @staticmethod
        def forward(x: Tensor) -> Tensor:  # type: ignore[override]
            return x * 1

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            Kept.seen.append(plain(ctx.saved_tensors[0]))
            return grads[0]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.layer = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(Kept.apply(self.one(x)))  # type: ignore[no-any-return]

    return Model()


def holding(value: Any, write: Callable[[Any, float], None]) -> nn.Module:
    model = made(lambda model, x: write(model.value, float(plain(x).sum())))
    model.value = value
    return model


class Slots:
    __slots__ = ("__hidden",)

    def keep(self, number: float) -> None:
        self.__hidden = number


class Table(dict[str, float]):
    last = 0.0


def put(place: Any, number: float) -> None:
    place[0] = number


KEEPERS: dict[str, Callable[[], nn.Module]] = {
    function.__name__: function
    for function in (
        in_the_class,
        in_a_list_of_the_class,
        in_a_default,
        in_a_global,
        in_a_global_of_a_helper,
        in_a_module,
        by_a_partial,
        by_a_method_of_a_list,
        by_a_property,
        by_a_generator,
        by_a_weak_reference,
        by_its_code,
        by_a_cache,
        by_an_autograd_function,
    )
} | {
    "numpy": lambda: holding(np.zeros(3), put),
    "numpy, large": lambda: holding(np.zeros(100_000), put),
    "numpy objects": lambda: holding(np.array([None, [0.0]], dtype=object), lambda a, n: put(a[1], n)),
    "array": lambda: holding(array.array("d", [0.0]), put),
    "memoryview": lambda: holding(memoryview(bytearray(3)), lambda m, n: put(m, int(n) % 7 + 1)),
    "ctypes": lambda: holding(ctypes.c_double(0), lambda c, n: setattr(c, "value", n)),
    "context variable": lambda: holding(contextvars.ContextVar("kept"), lambda c, n: c.set(n)),
    "random generator": lambda: holding(random.Random(0), lambda r, n: r.seed(int(n))),
    "numpy generator": lambda: holding(np.random.default_rng(0), lambda r, n: r.random()),
    "numpy state": lambda: holding(np.random.RandomState(0), lambda r, n: r.seed(int(abs(n)))),
    "iterator": lambda: holding(iter([1, 2, 3, 4] * 9), lambda i, n: next(i)),
    "map": lambda: holding(map(abs, iter([1, 2, 3, 4] * 9)), lambda i, n: next(i)),
    "slots": lambda: holding(Slots(), lambda s, n: s.keep(n)),
    "attribute of a dict": lambda: holding(Table(), lambda t, n: setattr(t, "last", n)),
    "attribute of a tensor": lambda: holding(torch.zeros(3), lambda t, n: setattr(t, "mine", n)),
    "storage": lambda: holding(torch.zeros(3).untyped_storage(), lambda s, n: put(s, int(n) % 7 + 1)),
    "values of a large tensor": lambda: holding(torch.zeros(70_001), lambda t, n: put(t.data, n)),
    "the last number of a large tensor": lambda: holding(
        torch.zeros(70_001), lambda t, n: t.data[-1:].fill_(n)
    ),
    "places in a large tensor": lambda: holding(torch.arange(70_001.0), lambda t, n: t.data.copy_(t.flip(0))),
    "values of a frozen parameter": lambda: holding(
        nn.Parameter(torch.zeros(3), requires_grad=False), lambda p, n: put(p.data, n)
    ),
    "values of a large frozen parameter": lambda: holding(
        nn.Parameter(torch.zeros(5000), requires_grad=False), lambda p, n: put(p.data, n)
    ),
    "seed": lambda: holding(None, lambda _, n: torch.manual_seed(int(n) % 1000 + 5) and None),
}


@pytest.fixture(autouse=True)
def _as_before() -> Any:
    seed = torch.initial_seed()
    yield
    torch.manual_seed(seed)
    SEEN.clear()
    ALIVE.clear()


@pytest.mark.parametrize("name", KEEPERS)
def test_what_own_code_keeps_is_refused(name: str) -> None:
    torch.manual_seed(3)
    with pytest.raises(KeptStateError):
        factors(KEEPERS[name](), F.mse_loss, torch.randn(4, 3), torch.zeros(4, 2))


def test_a_hook_on_all_modules_is_seen() -> None:
    with pytest.raises(KeptStateError, match="global forward hooks"), unchanged(model=nn.Linear(2, 2)):
        handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    handle.remove()


def test_the_class_is_part_of_the_name() -> None:
    with pytest.raises(KeptStateError, match=r"model\.OwnOfATest\.kept"):
        factors(in_the_class(), F.mse_loss, torch.randn(4, 3), torch.zeros(4, 2))


@functools.lru_cache
def mask(size: int) -> Tensor:
    return torch.ones(size)


class Config:
    width = 3
    names = ("a", "b")


class Ordinary(nn.Module):
    """Reads globals, logs, has a cache by shape, and names an attribute as a program names its training."""

    scale: float = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(Config.width, 2)
        self.table, self.order = np.arange(3.0), iter([1, 2])

    @property
    def factor(self) -> float:
        return self.scale

    def forward(self, x: Tensor) -> Tensor:
        LOGGER.debug("forward of %s, training: %s", Config.names, self.training)
        training["steps"] = training["steps"] if self.training else 0
        return self.layer(x * mask(3)) * self.factor  # type: ignore[no-any-return]


@pytest.mark.parametrize("way", ["auto", "vmap"])
def test_ordinary_code_of_ones_own_keeps_nothing(way: str) -> None:
    mask(3)
    model = Ordinary()
    for _ in range(3):
        factors(model, nn.MSELoss(), torch.randn(4, 3), torch.zeros(4, 2), way)


class Attribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        assert self.training  # the attribute, not the variable of this file
        return self.layer(x)  # type: ignore[no-any-return]


def test_an_attribute_is_not_taken_for_a_global_of_its_name() -> None:
    with unchanged(model=Attribute()):
        training["steps"] += 1


def test_numbers_that_are_none_are_equal_to_themselves() -> None:
    model = nn.Linear(600, 2)
    model.register_buffer("small", torch.tensor([float("nan"), 1.0]))
    model.register_buffer("large", torch.full((70_000,), float("nan")))
    with torch.no_grad():
        model.weight.fill_(float("nan"))
        model.bias.fill_(float("nan"))
    with unchanged(model=model):
        pass


def test_own_code_is_told_from_that_of_packages() -> None:
    assert is_own(Ordinary) and is_own(plain) and is_own(types.ModuleType("made_here"))
    assert not any(
        map(is_own, (nn.Linear, F.relu, functools.partial, np.ndarray, logging, np, pytest.raises))
    )


def test_a_function_that_a_package_made_is_looked_into_and_one_of_its_own_is_not() -> None:
    kept: list[Tensor] = []
    made = np.vectorize(kept.append)  # an object of a package, which holds what it was given
    with pytest.raises(KeptStateError), unchanged(model=made):
        kept.append(torch.zeros(1))
    timed = contextlib.contextmanager(lambda: iter([kept]))
    with pytest.raises(KeptStateError), unchanged(model=timed):
        kept.append(torch.zeros(1))
    with unchanged(model=torch.utils.checkpoint.checkpoint):
        pass


def test_a_loss_may_name_the_training() -> None:
    from torch.utils.data import DataLoader, TensorDataset

    from syft.dp.dpsgd import make_private

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(output, target) / private.noise_multiplier

    model, data = nn.Linear(3, 2), TensorDataset(torch.randn(20, 3), torch.zeros(20, 2))
    private = make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        DataLoader(data, batch_size=10),
        loss_fn=loss,
        noise_multiplier=2.0,
    )
    for x, y in private.loader:
        private.step(x, y)
