"""After TorchHook, plain torch behaves as before."""

from __future__ import annotations

import copy
import io
import pickle
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import syft as sy

SOURCE = Path(sy.__file__).parent.parent

#: Starting the compiler makes torch use interfaces that it has itself deprecated.
compiles = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)


def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.relu(x @ y) + torch.tensor([1.0, 2.0]) - x.sum()


def arguments() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 3), torch.randn(3, 2)


@pytest.fixture
def tagged() -> torch.Tensor:
    tensor = torch.tensor([1.0, 2.0]).tag("#a").describe("d")
    tensor.id
    return tensor


class TestCompile:
    @compiles
    @pytest.mark.parametrize("backend", ["eager", "aot_eager"])
    def test_functions_and_modules(self, backend):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend=backend, fullgraph=True)
        torch.testing.assert_close(compiled(*arguments()), function(*arguments()))
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
        x = arguments()[0]
        torch.compile(model, backend=backend, fullgraph=True)(x).sum().backward()
        gradients = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model(x).sum().backward()
        for got, want in zip(gradients, model.parameters(), strict=True):
            torch.testing.assert_close(got, want.grad)

    @compiles
    def test_a_tensor_with_an_identity(self, tagged):
        torch._dynamo.reset()
        compiled = torch.compile(lambda x: x * 2 + 1, backend="eager", fullgraph=True)
        assert compiled(tagged).tolist() == [3.0, 5.0]

    @compiles
    @pytest.mark.slow
    @pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
    def test_inductor(self):
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True)
        torch.testing.assert_close(compiled(*arguments()), function(*arguments()))


class Scriptable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 1000:
            return x
        return self.layer(x) + torch.tensor([1.0, 2.0])


class TestJit:
    @pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # torch.tensor makes a constant
    def test_trace(self):
        traced = torch.jit.trace(function, arguments())
        torch.testing.assert_close(traced(*arguments()), function(*arguments()))

    def test_script_of_a_function_that_calls_torch_tensor(self):
        scripted = torch.jit.script(function)
        torch.testing.assert_close(scripted(*arguments()), function(*arguments()))

    def test_script_of_a_module_and_its_round_trip(self):
        model = Scriptable()
        file = io.BytesIO()
        torch.jit.save(torch.jit.script(model), file)
        file.seek(0)
        x = arguments()[0]
        torch.testing.assert_close(torch.jit.load(file)(x), model(x))


class TestSaving:
    def test_torch_save_of_tensors_and_parameters_with_an_identity(self, tagged):
        parameter = nn.Parameter(torch.ones(2)).tag("#p")
        parameter.id
        file = io.BytesIO()
        torch.save({"t": tagged, "p": parameter, "plain": torch.zeros(1)}, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=True)
        assert loaded["t"].tolist() == [1.0, 2.0] and type(loaded["t"]) is torch.Tensor
        assert type(loaded["p"]) is nn.Parameter and loaded["p"].requires_grad
        assert loaded["t"].id != tagged.id and loaded["t"].tags == set() and loaded["p"].tags == set()

    def test_what_was_saved_is_read_where_this_library_is_not(self, tagged, tmp_path):
        parameter = nn.Parameter(torch.ones(2))
        parameter.id
        torch.save([tagged, parameter], tmp_path / "tensors.pt")
        program = f"""
            import sys, torch
            t, p = torch.load({str(tmp_path / "tensors.pt")!r}, weights_only=True)
            assert t.tolist() == [1.0, 2.0] and p.tolist() == [1.0, 1.0]
            assert "syft" not in sys.modules
        """
        done = subprocess.run(
            [sys.executable, "-I", "-c", textwrap.dedent(program)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def test_state_dicts(self):
        model = nn.Linear(2, 2)
        model.weight.id
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        twin = nn.Linear(2, 2)
        twin.load_state_dict(torch.load(file, weights_only=True))
        assert torch.equal(twin.weight, model.weight)

    def test_pickle(self, tagged):
        for tensor in (torch.ones(2), tagged, nn.Parameter(torch.ones(2))):
            loaded = pickle.loads(pickle.dumps(tensor))
            assert torch.equal(loaded, tensor) and type(loaded) is type(tensor)
            assert loaded.id != tensor.id
        model = pickle.loads(pickle.dumps(nn.Linear(2, 1)))
        assert model(torch.ones(1, 2)).shape == (1, 1)

    def test_a_saved_untouched_tensor_is_byte_for_byte_what_it_was(self):
        program = """
            import io, sys, torch
            hooked = {hooked}
            if hooked:
                import syft
                syft.TorchHook(torch)
            file = io.BytesIO()
            torch.save({{"t": torch.arange(5), "p": torch.nn.Parameter(torch.ones(2))}}, file)
            sys.stdout.write(file.getvalue().hex())
        """
        made = [
            subprocess.run(
                [sys.executable, "-c", textwrap.dedent(program.format(hooked=hooked))],
                capture_output=True,
                text=True,
                check=True,
                env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"},
            ).stdout
            for hooked in (True, False)
        ]
        assert made[0] == made[1] and len(made[0]) > 100


class TestCopying:
    def test_deepcopy_of_tensors_parameters_and_modules(self, tagged):
        made = copy.deepcopy(tagged)
        assert torch.equal(made, tagged) and made.id != tagged.id and made.tags == {"#a"}
        made.add_(1)
        assert tagged.tolist() == [1.0, 2.0]
        parameter = nn.Parameter(torch.ones(1))
        parameter.id
        twin = copy.deepcopy(parameter)
        assert type(twin) is nn.Parameter and twin.id != parameter.id
        model = copy.deepcopy(nn.Linear(2, 1))
        assert model(torch.ones(1, 2)).shape == (1, 1)

    def test_copy_and_clone(self, tagged):
        assert torch.equal(copy.copy(tagged), tagged)
        assert tagged.clone().__dict__ == {}
        assert (tagged + 1).__dict__ == {} and tagged[0].__dict__ == {}


class TestNothingIsStored:
    def test_a_plain_tensor_has_no_attributes_until_somebody_asks(self):
        x = torch.tensor([1.0], requires_grad=True)
        model = nn.Linear(1, 1)
        repr(x), str(x), f"{x.sum():.2f}", x.is_wrapper, x.location
        model(x).sum().backward()
        for tensor in (x, x.grad, model.weight, model.weight.grad, torch.zeros(1), x * 2):
            assert tensor.__dict__ == {}
        x.id
        assert len(x.__dict__) == 1


class TestTorchFunc:
    def test_grad_vmap_and_jacobian(self):
        x = torch.tensor([1.0, 2.0])
        assert torch.func.grad(lambda t: (t * t).sum())(x).tolist() == [2.0, 4.0]
        assert torch.vmap(lambda t: t * torch.tensor(3.0))(x).tolist() == [3.0, 6.0]
        assert torch.func.jacrev(lambda t: t * t)(x).tolist() == [[2.0, 0.0], [0.0, 4.0]]


class TestDataLoader:
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")  # os.fork beside torch's threads
    def test_two_worker_processes(self):
        data = TensorDataset(torch.arange(10.0).view(10, 1), torch.arange(10))
        loader = DataLoader(data, batch_size=4, num_workers=2)
        batches = list(loader)
        assert [len(x) for x, _ in batches] == [4, 4, 2]
        assert torch.cat([y for _, y in batches]).tolist() == list(range(10))

    def test_a_tensor_with_an_identity_goes_through_a_queue(self, tagged):
        queue = torch.multiprocessing.get_context("fork").SimpleQueue()
        queue.put(tagged)
        assert queue.get().tolist() == [1.0, 2.0]


class TestSpeedAndOverrides:
    def test_the_operators_of_a_plain_tensor_are_torchs_own(self):
        program = """
            import torch
            names = ["add", "__add__", "mul", "__getitem__", "__torch_function__", "backward", "__deepcopy__"]
            before = [getattr(torch.Tensor, n) for n in names]
            functions = {n: f for n, f in vars(torch).items() if callable(f)}
            functional = {n: f for n, f in vars(torch.nn.functional).items() if callable(f)}
            import syft
            syft.TorchHook(torch)
            assert [getattr(torch.Tensor, n) for n in names] == before
            changed = [n for n, f in functions.items() if getattr(torch, n) is not f]
            assert changed == ["tensor"], changed
            assert all(getattr(torch.nn.functional, n) is f for n, f in functional.items())
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            capture_output=True,
            text=True,
            check=False,
            env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 0, done.stderr

    def test_somebody_elses_subclass_works(self):
        class Theirs(torch.Tensor):
            pass

        x = torch.ones(2).as_subclass(Theirs)
        assert type(x + 1) is Theirs and type(x.sum()) is Theirs
        assert x.id == x.id and x.location is None

    def test_optimizers_schedulers_and_amp(self):
        model = nn.Linear(2, 1)
        optimizer = torch.optim.Adam(model.parameters())
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        optimizer.step()
        scheduler.step()
        assert torch.isfinite(model.weight).all()

    def test_hooking_twice_is_harmless(self, hook):
        before = torch.ones(2) + 1
        again = sy.TorchHook(torch)
        assert again.local_worker is hook.local_worker
        assert torch.equal(torch.ones(2) + 1, before)
        assert torch.tensor([1.0], id=3).id == 3
