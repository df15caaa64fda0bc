"""TorchHook and what it adds to torch."""

from __future__ import annotations

import copy
import inspect
import logging
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import syft as sy
from syft.core.abstract import AbstractTensor
from syft.core.chain import Wrapper
from syft.core.session import session
from syft.exceptions import UnknownCommandError
from syft.hooking.attributes import TorchAttributes
from syft.hooking.framework_hook import FrameworkHook
from syft.hooking.torch_hook import TorchHook
from syft.tensors.logging import LoggingTensor
from syft.tensors.native import TorchTensor
from syft.tensors.pointer import PointerTensor

pytestmark = pytest.mark.usefixtures("quiet")

SOURCE = Path(sy.__file__).parent.parent


def run(program: str, *options: str) -> str:
    """Run a program in a fresh process, warnings being errors; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *options, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin", "HOME": "/tmp"},
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def logged(*values) -> torch.Tensor:
    return LoggingTensor().on(torch.tensor(values))


class TestConstructor:
    def test_the_documented_arguments(self):
        parameters = inspect.signature(TorchHook).parameters
        assert list(parameters)[:4] == ["torch", "local_worker", "is_client", "verbose"]
        assert {n: p.default for n, p in parameters.items() if n != "torch"} == {
            "local_worker": None,
            "is_client": True,
            "verbose": True,
            "queue_size": 0,
        }
        assert issubclass(TorchHook, FrameworkHook)

    def test_it_names_the_local_worker_and_publishes_itself(self, hook):
        assert hook.local_worker.id == "me" and isinstance(hook.local_worker, sy.VirtualWorker)
        assert hook.local_worker.is_client_worker and hook.local_worker.hook is hook
        assert sy.local_worker is hook.local_worker and sy.hook is hook
        assert sy.torch is sy.framework and isinstance(sy.torch, TorchAttributes)
        assert hook.torch is torch and hook.framework is torch
        assert hook.local_worker.get_worker("me", fail_hard=True) is hook.local_worker

    def test_hooking_twice_says_so_and_changes_nothing(self, hook, caplog):
        before = {
            name: getattr(torch.Tensor, name) for name in ("send", "add", "__repr__", "native_add", "id")
        }
        tensor_function, count = torch.tensor, torch.torch_hooked
        with caplog.at_level(logging.WARNING):
            second = sy.TorchHook(torch, is_client=False, verbose=False)
        assert "Torch was already hooked... skipping hooking process" in caplog.text
        assert second.local_worker is hook.local_worker and second.local_worker.is_client_worker
        assert second.to_auto_overload is hook.to_auto_overload and sy.hook is hook
        assert torch.torch_hooked == count + 1
        assert torch.tensor is tensor_function
        assert all(getattr(torch.Tensor, name) is value for name, value in before.items())

    def test_a_worker_of_ones_own_and_no_client(self):
        printed = run("""
            import torch, syft as sy
            mine = sy.VirtualWorker(None, id="headquarters", auto_add=False)
            hook = sy.TorchHook(torch, local_worker=mine)
            assert hook.local_worker is mine and sy.local_worker is mine and mine.hook is hook
            bob = sy.VirtualWorker(hook, id="bob")
            assert bob.get_worker("headquarters", fail_hard=True) is mine
            x = torch.tensor([1.0, 2.0], id=7)
            assert mine.get_obj(7).tolist() == [1.0, 2.0]
            print((x.send(bob) * 2).get().tolist())
        """)
        assert printed == "[2.0, 4.0]\n"

    def test_no_client_registers_and_needs_no_argument(self):
        run("""
            import torch, syft as sy
            hook = sy.TorchHook(is_client=False, queue_size=3, verbose=False)
            assert not hook.local_worker.is_client_worker and hook.verbose is False and hook.queue_size == 3
            torch.tensor([1], id=5)
            assert list(hook.local_worker._objects) == [5]
        """)

    def test_before_the_hook_the_advice_is_to_hook(self):
        printed = run("""
            import torch, syft as sy
            assert sy.local_worker is None and not hasattr(torch.Tensor, "send")
            try:
                sy.core.session.session.require_local_worker()
            except RuntimeError as error:
                print(error)
        """)
        assert "TorchHook(torch)" in printed

    def test_the_steps_of_the_document_exist(self):
        for name in (
            "_hook_native_tensor _TorchHook__hook_properties _hook_syft_tensor_methods "
            "_hook_private_tensor_methods _hook_worker_methods _get_hooked_base_worker_method "
            "_hook_parameters _hook_torch_module _get_hooked_func _hook_tensor _hook_module "
            "_transfer_methods_to_native_tensor _hook_optim "
            "_which_methods_should_we_auto_overload _rename_native_functions _hook_backward"
        ).split():
            assert callable(getattr(TorchHook, name)), name
        assert list(inspect.signature(TorchHook._hook_native_tensor).parameters) == [
            "self",
            "tensor_type",
            "syft_type",
        ]

    def test_a_name_that_torch_has_is_never_hidden(self):
        class Clash:
            def add(self):
                pass

        with pytest.raises(RuntimeError, match="method 'add' of its own on Tensor"):
            TorchHook._transfer_methods_to_native_tensor(torch.Tensor, Clash)


class TestMaking:
    def test_create_shape_wrapper_and_zeros(self):
        assert TorchHook.create_shape((2, 3)) == torch.Size([2, 3])
        assert type(TorchHook.create_shape([2])) is torch.Size
        wrapper = TorchHook.create_wrapper(Wrapper)
        assert type(wrapper) is Wrapper and wrapper.child is None
        zeros = TorchHook.create_zeros(2, 3, dtype=torch.int16)
        assert torch.equal(zeros, torch.zeros(2, 3, dtype=torch.int16))
        assert TorchHook.create_zeros(1, requires_grad=True).requires_grad

    def test_torch_tensor_takes_an_owner_and_an_id(self, bob, me):
        x = torch.tensor([1.0, 2.0], owner=bob, id=4321)
        assert x.id == 4321 and x.owner is bob
        assert bob.get_obj(4321).tolist() == [1.0, 2.0]
        y = torch.tensor([3], id=77)
        assert y.id == 77 and y.owner is me
        assert 77 not in me._objects, "a client registers nothing"
        z = torch.tensor([3], owner=bob, dtype=torch.float64, requires_grad=True)
        assert z.id in bob._objects and z.requires_grad and z.dtype is torch.float64

    def test_torch_tensor_without_them_is_torch_tensor(self):
        x = torch.tensor([[1, 2]], dtype=torch.int8)
        assert torch.equal(x, torch.native_tensor([[1, 2]], dtype=torch.int8)) and x.__dict__ == {}
        assert torch.tensor(data=3.0).item() == 3.0
        assert torch.tensor.__doc__ == torch.native_tensor.__doc__

    def test_workers_make_tensors_by_the_functions_of_torch(self, hook, bob):
        pointer = hook.worker_methods["zeros"](bob, 2, 3)
        assert pointer.location is bob and pointer.shape == (2, 3)
        assert hook._get_hooked_base_worker_method("ones")(bob, 2).get().tolist() == [1.0, 1.0]


class TestNativeAliases:
    def test_functions(self):
        assert torch.native_cat is torch.cat and F.native_relu is F.relu
        assert torch.equal(torch.native_add(torch.ones(1), 1), torch.tensor([2.0]))
        assert torch.native_tensor is not torch.tensor
        assert torch.native_cat([logged(1.0), logged(2.0)]).child.child.tolist() == [1.0, 2.0]

    def test_a_native_function_of_torch_itself_stays_torchs(self):
        out = torch.native_layer_norm(torch.ones(1, 2), [2], None, None, 1e-5)
        assert len(out) == 3

    def test_methods(self):
        x = torch.tensor([1.0, -2.0])
        assert x.native_add(1).tolist() == [2.0, -1.0]
        assert x.native___add__(1).tolist() == [2.0, -1.0]
        assert x.native_abs_() is x
        assert x.native___repr__() == "tensor([1., 2.])"
        y = torch.ones(1, requires_grad=True)
        (y * 2).sum().native_backward()
        assert y.grad.tolist() == [2.0]

    def test_parameters(self):
        parameter = torch.nn.Parameter(torch.ones(1))
        assert "Parameter" in parameter.native_param___repr__()


class TestTorchAttributes:
    def test_what_writes_in_place(self):
        for name, answer in (
            ("add_", True),
            ("relu_", True),
            ("add", False),
            ("__add__", False),
            ("__iadd__", False),
            ("__init__", False),
        ):
            assert sy.torch.is_inplace_method(name) is answer, name

    def test_native_names(self):
        assert TorchAttributes.get_native_torch_name("torch.add") == "torch.native_add"
        assert TorchAttributes.get_native_torch_name("add") == "native_add"
        assert (
            sy.torch.get_native_framework_name("torch.nn.functional.relu")
            == "torch.nn.functional.native_relu"
        )

    def test_eval_torch_modules_maps_hooked_names_to_native_functions(self):
        fresh = TorchAttributes(torch, None)
        assert fresh.native_commands["torch.cat"] == "torch.native_cat"
        table = fresh.eval_torch_modules()
        assert table is fresh.native_commands
        assert table["torch.cat"] is torch.cat and table["torch.nn.functional.relu"] is F.relu
        assert table["torch.tensor"] is torch.native_tensor
        assert table["torch.layer_norm"] is torch.layer_norm is not torch.native_layer_norm
        assert all(callable(function) for function in table.values())
        assert fresh.eval_torch_modules() is table

    def test_there_is_nothing_to_fix_and_it_says_so(self, caplog):
        before = dict(vars(torch))
        with caplog.at_level(logging.INFO):
            assert TorchAttributes.apply_fix16922(torch) is False
        assert "16922" in caplog.text and "nothing was changed" in caplog.text
        assert dict(vars(torch)) == before

    def test_the_guard_knows_operations_and_nothing_else(self):
        for name in (
            "torch.add",
            "add",
            "__add__",
            "aten.add.Tensor",
            "torch.nn.functional.relu",
            "torch.zeros",
        ):
            assert sy.torch.is_known_command(name), name
        for name in (
            "torch.load",
            "torch.save",
            "os.system",
            "__class__",
            "__reduce_ex__",
            "apply_",
            "numpy",
            "aten.from_file.default",
            "torch.from_file",
            "_make_subclass",
            "aten.set_.source_Storage",
            "aten._sparse_coo_tensor_unsafe.default",
        ):
            assert not sy.torch.is_known_command(name), name

    def test_the_lists_are_data(self, hook):
        assert {"ndimension", "numel", "size", "tolist", "__iter__", "type"} <= set(hook.exclude)
        chosen = hook.to_auto_overload[torch.Tensor]
        assert {"add", "add_", "__add__", "__radd__", "__iadd__", "__getitem__", "matmul", "sum"} <= set(
            chosen
        )
        assert not set(chosen) & set(hook.exclude)
        assert not any(name.startswith(("native_", "_make")) for name in chosen)

    def test_the_list_follows_exclude(self, hook, monkeypatch):
        monkeypatch.setattr(hook, "exclude", [*hook.exclude, "add"])
        chosen = hook._which_methods_should_we_auto_overload(torch.Tensor)
        assert "add" not in chosen and "sub" in chosen


UNDERSCORE = pytest.mark.parametrize("prefix", ["", "_"], ids=["public", "underscored"])


class TestHookedCallables:
    @UNDERSCORE
    @pytest.mark.parametrize("owner", ["class", "instance"])
    def test_functions_take_every_kind_of_tensor(self, hook, bob, prefix, owner):
        holder = TorchHook if owner == "class" else hook
        if prefix:
            add = holder._get_hooked_func("torch", "torch.add", torch.add)
        else:
            add = holder.get_hooked_func("torch.add")
        x = torch.tensor([1.0])
        assert add(x, x).tolist() == [2.0]
        assert add(logged(1.0), logged(2.0)).child.child.tolist() == [3.0]
        node = add(logged(1.0).child, 5)
        assert type(node) is LoggingTensor and node.child.tolist() == [6.0]
        remote = x.send(bob)
        assert add(remote, remote).get().tolist() == [2.0]
        bare = add(remote.child, remote.child)
        assert type(bare) is PointerTensor and bare.location is bob
        assert add.__name__ == "add"

    def test_functions_by_function_and_by_module(self, hook):
        assert hook.get_hooked_func(F.relu)(torch.tensor([-1.0])).tolist() == [0.0]
        relu = hook._get_hooked_func("torch.nn.functional", "relu", None)
        assert relu(torch.tensor([-1.0])).tolist() == [0.0]
        with pytest.raises(UnknownCommandError, match=r"torch\.frobnicate"):
            hook.get_hooked_func("torch.frobnicate")

    @UNDERSCORE
    def test_methods(self, hook, prefix):
        add = getattr(hook, f"{prefix}get_hooked_method")("add")
        assert add(torch.tensor([1.0]), 1).tolist() == [2.0]
        assert add(logged(1.0), other=1).child.child.tolist() == [2.0]
        add_ = getattr(hook, f"{prefix}get_hooked_method")("add_")
        x = torch.ones(1)
        assert add_(x, 1) is x and x.tolist() == [2.0]

    @UNDERSCORE
    def test_methods_of_bare_nodes(self, hook, prefix):
        mul = getattr(hook, f"{prefix}get_hooked_syft_method")("mul")
        result = mul(logged(2.0).child, logged(3.0).child)
        assert type(result) is LoggingTensor and result.child.tolist() == [6.0]
        with pytest.raises(TypeError, match="mul is for a AbstractTensor and was called on a Tensor"):
            mul(torch.ones(1), 2)

    @UNDERSCORE
    def test_methods_of_pointers(self, hook, bob, prefix):
        mul = getattr(hook, f"{prefix}get_hooked_pointer_method")("mul")
        result = mul(torch.tensor([2.0]).send(bob).child, 3)
        assert type(result) is PointerTensor and result.location is bob
        assert result.wrap().get().tolist() == [6.0]
        with pytest.raises(TypeError, match="PointerTensor"):
            mul(logged(1.0).child, 3)

    @UNDERSCORE
    def test_methods_of_multi_pointers(self, hook, alice, bob, prefix):
        mul = getattr(hook, f"{prefix}get_hooked_multi_pointer_method")("mul")
        both = torch.tensor([2.0]).send(alice, bob)
        assert [v.tolist() for v in mul(both.child, 3).get()] == [[6.0], [6.0]]

    @UNDERSCORE
    def test_methods_of_nodes_that_stand_for_shares(self, hook, prefix):
        mul = getattr(hook, f"{prefix}get_hooked_additive_shared_method")("mul")
        assert mul(logged(2.0).child, 3).child.tolist() == [6.0]

    def test_bare_nodes_got_the_methods_of_tensors(self):
        for name in ("add", "sum", "matmul", "__mul__", "__rmul__", "exp_", "view"):
            assert callable(getattr(AbstractTensor, name)), name


class TestIdentity:
    def test_an_id_is_assigned_on_first_use_and_kept(self):
        x = torch.ones(2)
        assert x.__dict__ == {}
        assert isinstance(x.id, int) and x.id == x.id
        assert x.id != torch.ones(2).id
        x.id = 99
        assert x.id == 99

    def test_ids_can_be_given_ahead(self):
        sy.ID_PROVIDER.set_next_ids([11, 22])
        assert [torch.ones(1).id, torch.ones(1).id] == [22, 11]

    def test_owner_location_and_the_rest_of_a_plain_tensor(self, me, bob):
        x = torch.ones(2)
        assert x.owner is me and x.location is None and x.id_at_location is None and not x.is_wrapper
        assert not hasattr(x, "child")
        x.owner = bob
        assert x.owner is bob

    def test_tags_and_description(self):
        x = torch.ones(2)
        assert x.tags == set() and x.description is None
        assert x.tag("#mnist", "#train") is x and x.describe("Digits.\nMany of them.") is x
        assert x.tags == {"#mnist", "#train"} and x.description.startswith("Digits.")
        x.tags = ["only"]
        assert x.tags == {"only"}

    def test_a_tagged_tensor_prints_its_tags_the_first_line_and_its_shape(self):
        x = torch.tensor([1.0, 2.0])
        assert repr(x) == "tensor([1., 2.])"
        x.tag("#b", "#a").describe("First line.\nSecond line.")
        assert str(x) == (
            "tensor([1., 2.])\n\tTags: #a #b\n\tDescription: First line.\n\tShape: torch.Size([2])"
        )
        x.id
        assert repr(torch.nn.Parameter(torch.ones(1))).startswith("Parameter containing")

    def test_a_chain_has_the_identity_of_its_head(self):
        chain = logged(1.0)
        assert chain.id == chain.child.id and chain.tag("x").child.tags == {"x"}
        chain.description = "d"
        assert chain.child.description == "d"

    @pytest.mark.parametrize("lift", [lambda t: t, lambda t: LoggingTensor().on(t)], ids=["plain", "chain"])
    def test_a_gradient_keeps_its_id_over_repeated_backward(self, lift):
        x = lift(torch.ones(2, requires_grad=True))
        (x * 2).sum().backward()
        first = x.grad.id
        for _ in range(3):
            (x * x).sum().backward()
        assert x.grad.id == first

    def test_deepcopy_is_another_tensor_of_the_same_tags(self):
        x = torch.ones(2).tag("#a").describe("d")
        made = copy.deepcopy(x)
        assert made.id != x.id and made.tags == {"#a"} and made.description == "d"
        made.tag("#more")
        assert x.tags == {"#a"}


class TestWhatIsAddedElsewhere:
    def test_every_method_of_torchtensor_is_on_tensors(self):
        for name, member in vars(TorchTensor).items():
            if inspect.isfunction(member) or isinstance(member, property):
                assert inspect.getattr_static(torch.Tensor, name) is member, name

    def test_modules(self, me):
        model = torch.nn.Linear(2, 1)
        assert model.location is None and model.owner is me
        made = model.copy()
        assert (
            made is not model and torch.equal(made.weight, model.weight) and made.weight is not model.weight
        )
        for name in ("send", "get", "end_get", "move", "copy"):
            assert callable(getattr(torch.nn.Module, name))

    def test_private_tensors(self):
        chain = torch.ones(1).private_tensor(allowed_users=("ann",))
        assert chain.child.allowed_users == ("ann",) and (chain * 2).child.allowed_users == ("ann",)

    def test_session_is_the_only_state(self, hook):
        assert session.hook is hook and session.local_worker is hook.local_worker
