"""What is imported when: `import syft`, the hook, the first worker, the first operations. Counted, not timed."""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
import torch

import syft as sy
from syft.core import first_use, rooms
from syft.hooking.secrets import ENCRYPTION, SECRETS, AddedLater


def counted(program: str) -> list[int]:
    """Run a program in a process of its own; `count()` in it notes how many modules were imported since the last one."""
    head = "import json, sys\nnoted = []\nseen = 0\n"
    head += "def count():\n    global seen\n    noted.append(len(sys.modules) - seen)\n    seen = len(sys.modules)\n"
    code = f"{head}{program}\nprint(json.dumps(noted))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_import_hook_worker_and_first_operations_import_what_they_need_and_no_more():
    program = """
import torch
count()
import syft as sy
count()
hook = sy.TorchHook(torch)
count()
elsewhere = ("syft.transport", "websockets", "cryptography", "sqlite3", "pyarrow")
assert not [name for name in sys.modules if name.startswith(elsewhere)]
bob = sy.VirtualWorker(hook, id="bob")
count()
x = torch.ones(3, 3).send(bob)
assert torch.equal(((x + x) * 2 @ x).relu().sum().get(), torch.tensor(108.0))
model = torch.nn.Linear(3, 2).send(bob)
torch.nn.functional.cross_entropy(model(x), torch.zeros(3, dtype=torch.long).send(bob)).backward()
count()
assert not [name for name in sys.modules if name.startswith(("syft.mpc", "syft.federated", "syft.dp", "torch._dynamo"))]
x.fix_precision
count()
"""
    _, by_syft, by_hook, by_worker, by_operations, by_secrets = counted(program)
    assert by_syft <= 10  # a table of names
    assert by_hook <= 175  # pointers, workers, what they ask owners for; and nothing of networks or databases
    assert by_worker <= 600  # torch's own, for any tensor subclass: see syft.core.first_use
    assert by_operations <= 3
    assert by_secrets > 50


def test_torch_is_not_imported_by_import_syft_nor_by_help_and_version():
    counted("""
import syft
syft.__version__, syft.exceptions.SyftError, dir(syft)
assert "torch" not in sys.modules, "by syft itself"
from syft.cli import main
for line in ("--help", "worker --help", "budget --help", "version", "version --short"):
    main(line.split())
    assert "torch" not in sys.modules, line
count()
""")


def test_plans_import_their_own_room_and_no_other():
    program = """
import torch
import syft as sy
bob = sy.VirtualWorker(sy.TorchHook(torch), id="bob")
x = torch.ones(4, 3).send(bob)
(x + x).get()
count()
plan = sy.func2plan(args_shape=[(4, 3)])(lambda a: a * 2 + 1)
there = plan.send(bob)
assert there(x).get().sum() == 36
assert there.fetch()(torch.ones(4, 3)).sum() == 36
assert isinstance(plan, sy.Plan) and isinstance(there, sy.PointerPlan) and isinstance(plan.state, sy.State)
count()
assert not [name for name in sys.modules if name.startswith(("syft.mpc", "syft.federated", "syft.dp"))]
sy.TrainConfig
count()
"""
    _, by_plans, by_training = counted(program)
    assert by_plans <= 55
    assert by_training > 200  # all the rest


def test_a_table_that_lacks_an_entry_loads_the_rooms_that_fill_it():
    """What travels in another room's way is read, and budgets are set, where only workers were imported."""
    secret = sy.serde.serialize(torch.tensor([1.5]).fix_precision())
    counted(f"""
import torch
from syft.hooking.torch_hook import TorchHook
from syft.workers.virtual import VirtualWorker
from syft.serde import deserialize
bob = VirtualWorker(TorchHook(torch), id="bob")
x = torch.ones(4, 1).private_tensor(allowed_users=["ann"]).tag("#x").send(bob, user="ann")
assert "syft.dp.release" not in sys.modules and "syft.mpc" not in sys.modules
assert bob.set_budget(dataset="#x", epsilon=1.0) == "#x"
assert deserialize({secret!r}).float_precision().item() == 1.5
count()
""")


def test_the_first_fix_precision_imports_no_networks_plans_or_ciphers():
    """They come when they are asked for: with the first share, by name, with a message of theirs."""
    program = """
import torch
import syft as sy
bob = sy.VirtualWorker(sy.TorchHook(torch), id="bob")
count()
x = torch.tensor([1.5]).fix_precision()
assert ((x + x) * x).float_precision().item() == 4.5
count()
elsewhere = ("network", "paillier", "ahead", "supplied_calls", "supplies", "group", "drivers", "provider", "documented")
unneeded = ("cryptography", "syft.execution", "syft.federated", "syft.dp", *(f"syft.mpc.{name}" for name in elsewhere))
assert not [name for name in sys.modules if name.startswith(unneeded)]
assert sy.mpc.supplied.__module__ == "syft.mpc.supplied_calls" and sy.mpc.SupplyError.__module__ == "syft.mpc.supplies"
alice, carol = sy.VirtualWorker(sy.hook, id="alice"), sy.VirtualWorker(sy.hook, id="carol")
assert x.share(alice, bob, crypto_provider=carol, protocol="fss").get().float_precision().item() == 1.5
public, private = sy.keygen(n_length=1024)
assert torch.tensor([2]).encrypt(public).decrypt(private).item() == 2
count()
"""
    _, by_fixed, by_the_rest = counted(program)
    assert by_fixed <= 110
    assert by_the_rest > 60


def test_methods_of_secrets_are_listed_where_they_are_defined():
    """`SECRETS` names what the room of secrets adds, and no more: nothing stands for it once it was asked for."""
    torch.Tensor.share, torch.Tensor.encrypt
    for holder, names in (*SECRETS.items(), (torch.Tensor, ENCRYPTION)):
        assert len(set(names)) == len(names)
        for name in names:
            assert not isinstance(vars(holder)[name], AddedLater), (
                f"{holder.__name__}.{name} is defined nowhere"
            )
    from syft.mpc import fixed_methods, methods, module_methods
    from syft.mpc.paillier import methods as encryption

    of_tensors = fixed_methods.TENSOR_METHODS | methods.TENSOR_METHODS
    of_modules = (
        fixed_methods.MODULE_METHODS | module_methods.MODULE_METHODS | {"share": methods.share_module}
    )
    assert set(SECRETS[torch.Tensor]) == set(of_tensors)
    assert set(ENCRYPTION) == set(encryption.TENSOR_METHODS)
    assert set(SECRETS[torch.nn.Module]) == set(of_modules)
    assert set(SECRETS[torch.optim.Optimizer]) == set(fixed_methods.OPTIMIZER_METHODS)


def test_every_public_name_is_found_and_is_the_one_of_its_module():
    for name in sy.__all__:
        assert getattr(sy, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'NoSuchName'"):
        sy.NoSuchName
    assert set(sy.__all__) <= set(dir(sy))


def test_a_table_that_nobody_fills_says_so():
    table = rooms.FilledLater({1: "one"})
    assert table[1] == "one" and table.find(1) == "one"
    assert table.find(2) is None
    with pytest.raises(KeyError):
        table[2]


def test_a_failed_import_of_the_rest_is_tried_again(monkeypatch):
    attempts = []

    def load():
        attempts.append(1)
        if len(attempts) == 1:
            raise ImportError("not now")

    monkeypatch.setattr(rooms, "REST", [load])
    with pytest.raises(ImportError):
        rooms.load_rest()
    assert rooms.load_rest() and not rooms.load_rest() and len(attempts) == 2


def test_a_marked_kernel_is_marked_again_once_a_compiler_is_loaded(monkeypatch):
    calls = []

    def plain(x):
        calls.append("plain")
        return x

    def marked(x):
        calls.append("marked")
        return x

    call = first_use.call_without_compiler(plain, marked)
    setattr(plain, "__dynamo_disable", call)
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    assert call(1) == 1 and calls == ["plain"]
    monkeypatch.setitem(sys.modules, "torch._dynamo", sys)
    assert call(1) == 1 and calls == ["plain", "marked"]
    assert not hasattr(plain, "__dynamo_disable")


def test_a_thread_that_needs_a_table_waits_for_the_one_that_fills_it(monkeypatch: Any) -> None:
    table: Any = rooms.FilledLater()
    begun = threading.Event()

    def load() -> None:
        begun.set()
        time.sleep(0.2)
        table["late"] = 1

    monkeypatch.setattr(rooms, "REST", [load])
    first = threading.Thread(target=rooms.load_rest)
    first.start()
    begun.wait(5)
    assert table["late"] == 1
    first.join()
    assert table.find("never") is None


def test_a_worker_that_serves_imports_nothing_more_for_its_users():
    program = """
import torch
from syft.workers.network.server_worker import NetworkServerWorker
from syft.workers.network.client_worker import NetworkClientWorker
import syft as sy
hook = sy.TorchHook(torch)
server = NetworkServerWorker(hook, "inproc://first-use", id="first").start(block=False)
client = NetworkClientWorker(hook, "inproc://first-use", auto_add=False)
count()
x = torch.ones(4, 3).send(client)
model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()).send(client)
model(x).sum().backward()
model.get()
plan = sy.func2plan(args_shape=[(4, 3)])(lambda a: a * 2 + 1).send(client)
assert plan(x).get().sum() == 36
client.search("#none")
model, kinds = torch.nn.Linear(3, 2), [torch.float32, torch.int64]
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
steps = sy.Plan.training(model, torch.nn.functional.cross_entropy, sgd, [(4, 3), (4,)], kinds).send(client)
steps(x, torch.zeros(4, dtype=torch.int64).send(client))
client.sync()
count()
client.close()
server.stop()
"""
    _, by_users = counted(program)
    assert by_users <= 3


def test_python_looks_for_no_garbage_while_modules_are_imported() -> None:
    program = """
import gc
import torch
import syft as sy
hook = sy.TorchHook(torch)
walks = []
gc.callbacks.append(lambda phase, info: walks.append(info["generation"]) if phase == "stop" else None)
sy.VirtualWorker(hook, id="bob")
assert len(walks) < 10 and walks.count(2) == 1, walks  # the one that is asked for when all is there
assert gc.isenabled()
"""
    counted(program)


def test_importing_leaves_the_collector_as_it_was() -> None:
    for was_enabled in (True, False):
        try:
            gc.enable() if was_enabled else gc.disable()
            with contextlib.suppress(ImportError), rooms.importing():
                assert not gc.isenabled()
                raise ImportError
            assert gc.isenabled() is was_enabled
        finally:
            gc.enable()
