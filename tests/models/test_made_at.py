"""Where tensors are made: `sy.at(worker)`, `with bob:`, and the forward of a model that was sent."""

from __future__ import annotations

import copy
import gc
import logging
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import syft as sy
from syft.core.place import PLACE
from syft.exceptions import TensorsNotCollocatedException, WorkerNotFoundException
from syft.messaging.message import ObjectMessage, Operation
from syft.operations.table import is_admitted
from syft.policy.permissions import Policy
from syft.tensors.made_at import makes_of_numbers, uses_metadata_only
from syft.tensors.pointer import PointerTensor


def is_at(tensor: Any, worker: Any) -> bool:
    return isinstance(getattr(tensor, "child", None), PointerTensor) and tensor.child.location is worker


def value_of(pointer: Any, place: Any) -> torch.Tensor:
    """The value at a worker, also one that nobody may fetch."""
    if isinstance(place, sy.VirtualWorker):
        return place._objects[pointer.child.id_at_location]
    return pointer.detach().clone().get()


@pytest.fixture(params=["open", "denying", "network", "denying network"])
def place(request: Any, hook: Any, me: Any, make_worker: Any) -> Iterator[Any]:
    """A worker of each kind."""
    options: dict[str, Any] = {"policy": Policy(allows_by_default="denying" not in request.param)}
    if "network" not in request.param:
        yield make_worker("there", **options)
        return
    with sy.NetworkServerWorker(hook, "tcp://127.0.0.1:0", id="there", **options) as server:
        with sy.connect(server.address) as client:
            yield client


# -- every function that makes tensors ----------------------------------------------------------------


def overloads() -> Iterator[Any]:
    """Every overload of aten that makes a tensor of numbers and that Python code can reach as torch.<name>."""
    for name in aten_names():
        if not name.startswith("_") and hasattr(torch, name):
            packet = getattr(torch.ops.aten, name)
            for overload in (getattr(packet, name) for name in packet.overloads()):
                if torch._C._dispatch_has_kernel(overload.name()):
                    yield overload


def aten_names() -> list[str]:
    names = (name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names())
    return sorted({name.removeprefix("aten::") for name in names if name.startswith("aten::")})


def argument(kind: str, name: str, function: str) -> Any:
    """A value that fits a parameter of a schema."""
    if "Generator" in kind:
        return torch.Generator().manual_seed(4)
    if "ScalarType" in kind or name == "dtype":
        return (
            torch.int64
            if "randi" in function or "perm" in function or "indices" in function
            else torch.float64
        )
    if "List" in kind or "[]" in kind:
        return [3, 1] if name == "stride" else [2, 3]
    if name in ("high", "n", "row", "col", "m", "steps", "window_length", "end"):
        return 5
    if kind.startswith("bool"):
        return True
    if kind.startswith(("float", "number", "Scalar")):
        return 1.0
    if kind.startswith(("int", "SymInt")):
        return 1
    raise NotImplementedError(kind)


#: Not functions of a program: other layouts and packed numbers, files, names of dimensions, and probes of the compiler.
LEFT_OUT = ("sparse", "quantized", "from_file", ".names", ".out", "sym_", "cudnn", "Dimname")


def factories() -> list[Any]:
    return [
        f
        for f in overloads()
        if makes_of_numbers(f)
        and not any(part in str(f) for part in LEFT_OUT)
        and "names" not in f._overloadname
    ]


def call_of(function: Any) -> tuple[Any, list[Any], dict[str, Any]]:
    """The public function of an overload, with arguments for it."""
    args, kwargs = [], {}
    for parameter in function._schema.arguments:
        if parameter.name in ("layout", "device", "pin_memory", "memory_format"):
            continue
        value = argument(str(parameter.type).replace("Optional[", ""), parameter.name, function._opname)
        if parameter.kwarg_only:
            kwargs[parameter.name] = value
        elif parameter.name == "physical_layout":
            args.append([1, 0])
        else:
            args.append(value)
    return getattr(torch, function._opname), args, kwargs


def test_the_schemas_name_the_functions_that_everybody_knows() -> None:
    names = {f._opname for f in factories()}
    assert names >= set(
        """arange bartlett_window blackman_window empty empty_permuted empty_strided eye full hamming_window hann_window
        kaiser_window linspace logspace normal ones rand randint randn randperm scalar_tensor tril_indices triu_indices
        zeros""".split()
    )
    likes = {f._opname for f in every_like()}
    assert likes >= set("empty_like full_like ones_like rand_like randint_like randn_like zeros_like".split())
    assert likes >= set("new_empty new_empty_strided new_full new_ones new_zeros".split())


def every_like() -> list[Any]:
    packets = [
        getattr(torch.ops.aten, n) for n in aten_names() if n.endswith("_like") or n.startswith("new_")
    ]
    every = [getattr(p, o) for p in packets for o in p.overloads() if "out" not in o]
    return [f for f in every if uses_metadata_only(f)]


def assert_made(function: str, made: torch.Tensor, here: torch.Tensor, may_differ: bool) -> None:
    assert made.dtype is here.dtype and made.shape == here.shape and made.stride() == here.stride(), function
    if not may_differ:
        assert torch.equal(made, here), function


@pytest.mark.parametrize("place", ["open", "denying", "network"], indirect=True)
def test_every_function_that_makes_a_tensor_of_numbers_makes_it_there(place: Any) -> None:
    count = 0
    for function in factories():
        public, args, kwargs = call_of(function)
        if function._opname == "range":
            continue  # torch deprecates it
        here = public(*args, **kwargs)
        kwargs = {k: torch.Generator().manual_seed(4) if k == "generator" else v for k, v in kwargs.items()}
        with sy.at(place):
            there = public(*args, **kwargs)
        assert is_at(there, place), function
        is_random = {"rand", "normal"} & {function._opname[:4], function._opname[:6]}
        draws_there = bool(is_random) and "generator" not in kwargs
        assert_made(str(function), value_of(there, place), here, draws_there or "empty" in function._opname)
        count += 1
    assert count >= 40


@pytest.mark.parametrize("place", ["open", "denying"], indirect=True)
def test_what_is_made_like_a_local_tensor_is_made_there(place: Any) -> None:
    here = torch.randn(3, 2, generator=torch.Generator().manual_seed(2)).t()
    names = {f._opname for f in every_like()} & set(dir(torch.Tensor)) | {f._opname for f in every_like()}
    given: dict[str, Any] = {
        "full_like": (7.0,),
        "randint_like": (9,),
        "new_full": ((2, 2), 7.0),
        "new_empty_strided": ((2, 2), (2, 1)),
    }
    count = 0
    for name in sorted(names):
        is_method = name.startswith("new_")
        public = getattr(torch.Tensor if is_method else torch, name, None)
        if public is None:
            continue
        rest = given.get(name, ((2, 2),) if is_method else ())
        with sy.at(place):
            there = public(here, *rest)
        assert is_at(there, place), name
        assert_made(name, value_of(there, place), public(here, *rest), "rand" in name or "empty" in name)
        count += 1
    assert count >= 11


VALUES = {
    "torch.tensor of a list": lambda: torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
    "torch.tensor of a number": lambda: torch.tensor(3, dtype=torch.int16),
    "torch.as_tensor": lambda: torch.as_tensor([1, 2]),
    "torch.asarray": lambda: torch.asarray([1.5]),
    "torch.Tensor": lambda: torch.Tensor([1.0, 2.0]),
    "torch.from_numpy": lambda: torch.from_numpy(np.arange(4)),
    "torch.signal.windows": lambda: torch.signal.windows.hann(5),
    "torch.fft.fftfreq": lambda: torch.fft.fftfreq(6),
    "nn.functional.one_hot": lambda: nn.functional.one_hot(torch.arange(3), 4),
    "an initialised parameter": lambda: nn.init.constant_(nn.Parameter(torch.empty(3)), 2.0),
    "a required gradient": lambda: torch.ones(2, requires_grad=True) * 2,
    "a layer that is made there": lambda: nn.init.eye_(nn.Linear(3, 3).weight),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_of_python_and_functions_made_of_others_are_made_there(name: str, bob: Any) -> None:
    here = VALUES[name]()
    with bob:
        there = VALUES[name]()
    assert is_at(there, bob)
    assert there.requires_grad == here.requires_grad
    assert torch.equal(there.detach().clone().get(), here.detach())


# -- the block ------------------------------------------------------------------------------------------


def test_nothing_outside_the_block_is_changed(bob: Any) -> None:
    before = torch._C._len_torch_dispatch_stack()
    with bob as same:
        assert same is bob and is_at(torch.zeros(2), bob)
    assert torch._C._len_torch_dispatch_stack() == before and PLACE.at is None
    assert type(torch.zeros(2)) is torch.Tensor
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), sy.at("bob"):
            raise error
        assert type(torch.zeros(2)) is torch.Tensor and torch._C._len_torch_dispatch_stack() == before


def test_blocks_nest_and_the_innermost_decides(bob: Any, alice: Any) -> None:
    with bob:
        with alice:
            with bob:
                assert is_at(torch.ones(1), bob)
            assert is_at(torch.ones(1), alice)
            with sy.at(sy.local_worker):
                assert type(torch.ones(1)) is torch.Tensor
            assert is_at(torch.ones_like(torch.ones(1)), alice)
        assert is_at(torch.ones(1), bob)


def test_an_unknown_worker_is_named() -> None:
    with pytest.raises(WorkerNotFoundException, match="nobody-here"):
        sy.at("nobody-here")


def test_operations_on_local_tensors_stay_here_and_mixing_is_still_an_error(bob: Any) -> None:
    x = torch.ones(3)
    with bob:
        assert type(x + 1) is torch.Tensor and type(x.clone()) is torch.Tensor
        with pytest.raises(TensorsNotCollocatedException):
            torch.zeros(3) + x


def test_a_generator_is_respected_and_a_seed_is_that_of_the_worker(bob: Any) -> None:
    with bob:
        drawn = [torch.randn(4, generator=torch.Generator().manual_seed(9)) for _ in range(2)]
        torch.manual_seed(3)
        free = torch.rand(2)
        order = torch.randperm(6, generator=torch.Generator().manual_seed(9))
    wanted = torch.randn(4, generator=torch.Generator().manual_seed(9))
    assert all(torch.equal(d.get(), wanted) for d in drawn)
    torch.manual_seed(3)  # a virtual worker draws from the generator of its process
    assert torch.equal(free.get(), torch.rand(2))
    assert torch.equal(order.get(), torch.randperm(6, generator=torch.Generator().manual_seed(9)))


def test_a_device_is_kept_and_a_tensor_without_values_stays_here(make_worker: Any) -> None:
    dan = make_worker("dan", log_msgs=True)
    with sy.at(dan):
        torch.zeros(2, device="cpu")
        meta = torch.zeros(2, device="meta")
        like = torch.zeros_like(meta)
    (made,) = [m for m in dan.msg_history if type(m) is Operation]
    assert made.cmd_kwargs["device"] == torch.device("cpu")
    assert meta.is_meta and type(meta) is torch.Tensor and like.is_meta


def test_only_what_is_asked_for_travels(make_worker: Any) -> None:
    dan = make_worker("dan", log_msgs=True)
    with sy.at(dan):
        torch.arange(10_000)
        torch.zeros(100, 100).fill_(2)
    assert not [m for m in dan.msg_history if type(m) is ObjectMessage]  # made there, not sent


def test_what_syft_makes_for_itself_stays_here(bob: Any, alice: Any, make_worker: Any) -> None:
    carol = make_worker("carol")
    x = torch.tensor([1.5, -2.0])
    with bob:
        secret = x.fix_precision().share(alice, carol, crypto_provider=bob)
        assert torch.equal((secret * secret).get().float_precision(), x * x)
        plan = sy.func2plan(args_shape=[(-1,)])(lambda t: t + torch.ones(1))
        assert torch.equal(plan(x.send(alice)).get(), x + 1)


def test_a_callable_at_a_worker_makes_its_tensors_as_if_on_another_machine(bob: Any) -> None:
    add = sy.ObjectWrapper(lambda t: t + torch.ones(2), id="add").send(bob)
    with bob:
        made = add(torch.zeros(2))
        lstm = nn.LSTM(2, 2)
        states = lstm(torch.zeros(1, 1, 2))[0]
    assert torch.equal(made.get(), torch.ones(2)) and is_at(states, bob)


def test_threads_do_not_share_a_block(bob: Any) -> None:
    made = []
    with bob:
        thread = threading.Thread(target=lambda: made.append(torch.zeros(1)))
        thread.start()
        thread.join()
    assert type(made[0]) is torch.Tensor


# -- models -----------------------------------------------------------------------------------------------


class Positions(nn.Module):
    """What modern models do: positions, masks and tables made on the way, and tensors that are no buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.inner = Rotary()
        self.head = nn.Linear(8, 5)
        self.scale = torch.full((8,), 0.5)
        self.tables = {"shift": [torch.arange(8.0)]}

    def forward(self, ids: torch.Tensor, *, flip: bool = False) -> dict[str, torch.Tensor]:
        length = ids.shape[1]
        mask = torch.full((length, length), float("-inf"), device=ids.device).triu(1)
        x = self.embed(ids) + self.embed(torch.arange(length)) * self.scale + self.tables["shift"][0]
        x = self.inner(x)
        weights = torch.softmax(x @ x.transpose(1, 2) / 8 + mask, -1)
        return {"logits": self.head(weights @ x), "weights": weights}


class Rotary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(x.shape[1]).unsqueeze(1) * torch.linspace(0, 1, x.shape[2])
        return x * torch.cos(angles) * self.weight


def batch(rows: int = 2, length: int = 9) -> torch.Tensor:
    return torch.randint(50, (rows, length), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def model() -> Positions:
    torch.manual_seed(0)
    return Positions()


def test_a_sent_model_makes_its_tensors_where_it_is(model: Any, place: Any) -> None:
    ids = batch()
    wanted = model(ids)
    model.send(place)
    given = ids.send(place)
    for context in (torch.no_grad(), torch.enable_grad()):
        with context:
            found = model(given)
        assert set(found) == {"logits", "weights"} and all(is_at(t, place) for t in found.values())
    loss = found["logits"].square().mean()
    loss.backward()
    assert all(is_at(p.grad, place) for p in model.parameters() if p.grad is not None)
    if not place.admits_only_table:
        assert torch.equal(found["logits"].detach().clone().get(), wanted["logits"])
        model.get()
        wanted["logits"].square().mean().backward()
        assert torch.equal(model(ids)["logits"], wanted["logits"])


def test_tensors_that_are_no_buffers_travel_and_come_back_and_the_log_names_them(
    model: Any, bob: Any, alice: Any, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = model(batch())["logits"]
    scale = model.scale
    with caplog.at_level(logging.INFO, "syft"):
        model.send(bob)
    said = [r.getMessage() for r in caplog.records if "no buffer" in r.getMessage()]
    assert len(said) == 2 and "'scale'" in said[0] and "'tables'" in said[1] and "Positions" in said[0]
    assert model.scale is scale and is_at(scale, bob) and is_at(model.tables["shift"][0], bob)
    model.move(alice)
    assert is_at(scale, alice) and model.location is alice
    assert torch.equal(model(batch().send(alice))["logits"].get(), wanted)
    model.get()
    assert type(scale) is torch.Tensor and torch.equal(scale, torch.full((8,), 0.5))
    assert torch.equal(model(batch())["logits"], wanted)


def test_parts_copies_and_hooks_run_there_too(model: Any, bob: Any) -> None:
    x = torch.randn(2, 9, 8)
    wanted = model.inner(x)
    model.send(bob)
    assert torch.equal(model.inner(x.send(bob)).get(), wanted)
    twin = copy.deepcopy(model)
    model.get()
    assert torch.equal(model.inner(x), wanted)  # here again, and its copy is still there
    seen = []
    twin.register_forward_pre_hook(lambda m, args: seen.append(torch.zeros(1)))
    twin.register_forward_hook(lambda m, args, out: {**out, "logits": out["logits"] + torch.ones(5)})
    twin.head.register_forward_hook(lambda m, args, out: out * torch.ones(5))
    twin.head.register_full_backward_hook(lambda m, gi, go: seen.append(torch.zeros(1)))
    found = twin(batch().send(bob))["logits"]
    found.sum().backward()
    assert len(seen) == 2 and all(is_at(t, bob) for t in seen)  # also the one that backward made
    assert torch.equal(found.detach().clone().get(), model(batch())["logits"] + 1)


class Scaled(torch.autograd.Function):
    """A function of one's own, whose backward makes a tensor."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * torch.full((9, 8), 2.0)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad * torch.full((9, 8), 2.0)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.reentrant = Rotary(), reentrant
        self.linear = nn.Linear(8, 8)

    def _part(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(torch.tanh(self.linear(x)) + torch.arange(9.0).unsqueeze(1) * torch.ones(9, 8))

    def forward(self, x: torch.Tensor) -> Any:
        return Scaled.apply(checkpoint(self._part, x, use_reentrant=self.reentrant))


@pytest.mark.parametrize("reentrant", [True, False])
def test_the_backward_pass_makes_its_tensors_there(reentrant: bool, make_worker: Any) -> None:
    bob = make_worker("dan", log_msgs=True)
    torch.manual_seed(0)
    model, x = Checkpointed(reentrant), torch.randn(2, 9, 8)

    def gradients(m: Any, given: Any) -> Any:
        m(given.requires_grad_()).square().sum().backward()
        return given.grad

    wanted = gradients(model, x.clone())
    by_parameter = [p.grad.clone() for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    model.send(bob)
    there = x.clone().send(bob)
    bob.msg_history.clear()
    found = gradients(model, there)
    assert not [m for m in bob.msg_history if type(m) is ObjectMessage]  # nothing was made here and sent
    assert torch.equal(found.copy().get(), wanted)
    assert all(
        torch.equal(p.grad.copy().get(), w) for p, w in zip(model.parameters(), by_parameter, strict=True)
    )
    assert type(torch.zeros(1)) is torch.Tensor


class AddsConstant(nn.Module):
    def __init__(self, constant: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(constant.shape))
        self.constant = lambda: constant  # nobody finds it when the model is sent

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.constant()


def test_small_constants_of_a_model_are_sent_along_and_larger_ones_are_refused(bob: Any) -> None:
    for size, is_taken in ((1, True), (63, True), (64, False)):
        model = AddsConstant(torch.arange(float(size))).send(bob)
        x = torch.zeros(size).send(bob)
        if is_taken:
            assert torch.equal(model(x).get(), torch.arange(float(size)))
        else:
            with pytest.raises(TensorsNotCollocatedException, match="buffer"):
                model(x)
        with pytest.raises(TensorsNotCollocatedException):
            x + torch.arange(float(size))  # outside of the model the error stays
    trained = AddsConstant(torch.ones(2, requires_grad=True)).send(bob)
    with pytest.raises(TensorsNotCollocatedException):
        trained(torch.ones(2).send(bob))


def test_local_arguments_of_a_sent_model_are_refused_however_small(bob: Any) -> None:
    model = nn.Sequential(nn.Linear(2, 2)).send(bob)
    with pytest.raises(TensorsNotCollocatedException):
        model(torch.ones(1, 2))
    gated = AddsConstant(torch.ones(2)).send(bob)
    with pytest.raises(TensorsNotCollocatedException):
        gated(torch.ones(2))


def test_code_inside_a_sent_model_is_told_that_values_cannot_be_looked_at(bob: Any) -> None:
    class Careful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.says: list[bool] = []

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.says.append(torch.compiler.is_compiling())
            if not torch.compiler.is_compiling() and (x == 0).all():
                return x
            return x * self.weight

    model = Careful()
    model(torch.ones(2))
    model.send(bob)
    model(torch.ones(2).send(bob))
    with pytest.raises(RuntimeError):
        model(torch.ones(3).send(bob))  # also after an error
    assert model.says == [False, True, True] and not torch.compiler.is_compiling()
    model.get()
    model(torch.ones(2))
    assert model.says[-1] is False


def test_a_sent_model_goes_with_its_last_reference(bob: Any) -> None:
    gc.collect()
    gc.disable()
    try:
        before = len(bob._objects)
        model = Positions().send(bob)
        model(batch().send(bob))
        assert len(bob._objects) > before
        del model
        assert len(bob._objects) == before
    finally:
        gc.enable()


def test_many_steps_leave_no_object_behind(model: Any, bob: Any) -> None:
    model.send(bob)
    ids = batch().send(bob)
    optimizer = torch.optim.AdamW(model.parameters())
    counts = set()
    for step in range(5):
        optimizer.zero_grad()
        model(ids)["logits"].square().mean().backward()
        optimizer.step()
        if step >= 2:
            counts.add(len(bob._objects))
    assert len(counts) == 1


def test_every_admitted_factory_is_run_by_the_worker_and_others_are_made_here_and_sent() -> None:
    admitted = [f for f in factories() if is_admitted(str(f))]
    assert len(admitted) >= 15 and torch.ops.aten.arange.default in admitted
