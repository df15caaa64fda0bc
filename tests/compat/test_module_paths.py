"""The module paths of 2020: those that exist, those that are made on demand, those that say what to use instead."""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing.pool
import subprocess
import sys
from typing import Any

import pytest
import torch

import syft as sy
from syft.core.left_out import LEFT_OUT
from syft.exceptions import (
    DependencyError,
    LeftOutError,
    PermissionDeniedError,
    TensorsNotCollocatedException,
)
from syft.generic.utils import remote


@pytest.mark.parametrize("path", LEFT_OUT)
def test_a_path_that_is_left_out_says_what_to_use_instead(path: str) -> None:
    package, _, name = path.rpartition(".")
    with pytest.raises(LeftOutError, match=r"not part of this library|Only torch is served") as caught:
        importlib.import_module(path)
    assert isinstance(caught.value, ImportError) and caught.value.name == path
    with pytest.raises(ImportError, match=r"not part of this library|Only torch is served"):
        __import__(package, fromlist=[name])  # `from package import name`
    assert not hasattr(importlib.import_module(package), name)


def test_what_is_below_a_path_that_is_left_out_is_left_out() -> None:
    with pytest.raises(LeftOutError, match=r"torch\.nn"):
        importlib.import_module("syft.frameworks.keras.model.sequential")
    with pytest.raises(AttributeError, match="PrivateGridNetwork"):
        sy.PublicGridNetwork


def test_a_path_that_never_was_fails_as_python_says_it() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'syft\.nothing'"):
        importlib.import_module("syft.nothing")
    assert importlib.util.find_spec("syft.nothing") is None
    assert not hasattr(sy, "nothing") and not hasattr(sy.frameworks.torch, "nothing")
    assert not hasattr(sy.generic, "_private")


def test_packages_of_2020_are_attributes_after_import_syft_and_cost_nothing_before() -> None:
    program = """
import sys, syft as sy
early = [m for m in sys.modules if m.startswith(("syft.frameworks", "syft.generic", "syft.dependency_check"))]
assert not early, early
assert sy.frameworks.torch.mpc.spdz.spdz_mul
assert sy.generic.frameworks.hook.hook_args.build_rule
assert sy.generic.pointers.pointer_tensor.PointerTensor is sy.PointerTensor
assert sy.grid.private_grid.PrivateGridNetwork is sy.PrivateGridNetwork
assert sy.dependency_check.torch_available and sy.codes.PLAN_CMDS.FETCH_PLAN == "fetch_plan"
assert sy.version.__version__ == sy.__version__ and sy.logger.name == "syft"
assert sy.frameworks.dependency_check is sy.dependency_check
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=800)


def test_the_pool_is_one_and_works_like_one_of_processes() -> None:
    pool = sy.pool()
    assert pool is sy.pool() and isinstance(pool, multiprocessing.pool.Pool)
    assert pool.map(lambda n: n * n, range(4)) == [0, 1, 4, 9]


def test_torch_is_counted_as_hooked_from_the_first_hook_on() -> None:
    program = """
import torch, syft as sy
sy.TorchHook(torch)
assert torch.torch_hooked == 1, torch.torch_hooked
sy.TorchHook(torch)
assert torch.torch_hooked == 2, torch.torch_hooked
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=800, stderr=subprocess.DEVNULL)


def test_the_command_guard_of_the_framework_lets_torch_pass_and_nothing_else(hook: Any) -> None:
    guard = sy.framework
    assert guard._command_guard("torch.add") == "torch.add"
    assert guard._command_guard("torch.add", get_native=True) is torch.add
    assert guard._command_guard("torch.nn.functional.relu", get_native=True) is torch.nn.functional.relu
    assert guard._is_command_valid_guard("torch.add")
    for wrong in ("torch.load", "os.system", "torch.add.__globals__", ""):
        assert not guard._is_command_valid_guard(wrong)
        with pytest.raises(RuntimeError, match="not a known torch operation"):
            guard._command_guard(wrong)
    assert guard.Tensor is torch.Tensor and guard.is_inplace_method("add_")
    assert (
        type(guard).get_native_framework_name("torch.nn.functional.relu") == "torch.nn.functional.native_relu"
    )


def test_a_monitor_without_pyshark_says_what_to_install() -> None:
    metrics = importlib.import_module("syft.generic.metrics")
    if importlib.util.find_spec("pyshark") is None:
        with pytest.raises(DependencyError, match="pip install pyshark"):
            metrics.NetworkMonitor.get_packets(timeout=1)
    assert metrics.NetworkMonitor.read_packet(1, ["a", "b"]) == "b"
    assert metrics.NetworkMonitor.read_packet(capture_input=["a", "b"]) == "a"
    with pytest.raises(ValueError, match="get_packets"):
        metrics.NetworkMonitor.read_packet(0)


def test_the_error_of_a_method_names_two_places_where_that_is_the_cause(alice: Any, bob: Any) -> None:
    here, there = torch.ones(1), torch.ones(1).send(bob)
    error = TypeError("something")
    routed = sy.exceptions.route_method_exception(error, there, (here,), {})
    assert isinstance(routed, TensorsNotCollocatedException) and "'bob'" in str(routed)
    assert sy.exceptions.route_method_exception(error, here, (here, 3), {"alpha": 2}) is error
    other = torch.ones(1).send(alice)
    routed = sy.exceptions.route_method_exception(error, there, (), {"other": other})
    assert isinstance(routed, TensorsNotCollocatedException)


# -- syft.generic.utils.remote -----------------------------------------------------------------------


def test_a_torch_function_runs_at_a_worker(bob: Any) -> None:
    x = torch.tensor([1.0, 2.0]).send(bob)
    added = remote(torch.add, location=bob)(x, x)
    assert added.location is bob and added.get().tolist() == [2.0, 4.0]
    assert remote("torch.sub", "bob")(x, 1, return_value=True).tolist() == [0.0, 1.0]
    top = remote(torch.max, bob)(x, 0, return_value=True, return_arity=2)
    assert [t.item() for t in top] == [2.0, 1]
    with pytest.raises(ValueError, match="returned 2 results"):
        remote(torch.max, bob)(x, 0, return_arity=1)


def test_a_plan_runs_at_a_worker_and_other_code_does_not(bob: Any) -> None:
    @sy.func2plan(args_shape=[(2,)])
    def doubled(x: Any) -> Any:
        return x * 2

    x = torch.tensor([1.0, 2.0]).send(bob)
    assert remote(doubled, bob)(x, return_value=True).tolist() == [2.0, 4.0]
    for wrong in (print, "os.system", 5):
        with pytest.raises(TypeError, match="func2plan"):
            remote(wrong, bob)


# -- grids -------------------------------------------------------------------------------------------


def test_a_grid_serves_a_model_and_asks_it(alice: Any, bob: Any) -> None:
    model = torch.nn.Linear(2, 1)
    x = torch.tensor([[1.0, 2.0]])
    wanted = model(x)
    grid = sy.PrivateGridNetwork(alice, bob)
    grid.serve_model(model, "m", allow_remote_inference=True, n_replica=2)
    assert grid.query_model_hosts("m") == [alice, bob]
    assert torch.allclose(grid.run_remote_inference("m", x), wanted)
    assert model.weight.location is None, "the model itself stays here"
    grid.serve_model(model, "closed")
    with pytest.raises(PermissionDeniedError, match="allow_remote_inference"):
        grid.run_remote_inference("closed", x)


def test_a_grid_serves_a_shared_model(alice: Any, bob: Any, charlie: Any) -> None:
    model = torch.nn.Linear(2, 1)
    x = torch.tensor([[1.0, 2.0]])
    grid = sy.PrivateGridNetwork(alice, bob, charlie)
    grid.serve_model(model, "m", mpc=True, allow_remote_inference=True)
    assert grid.query_model_hosts("m", mpc=True) == ([alice, bob], charlie)
    assert torch.allclose(grid.run_remote_inference("m", x, mpc=True), model(x), atol=0.01)


def test_a_grid_refuses_what_it_cannot_do(alice: Any, bob: Any) -> None:
    grid, model = sy.PrivateGridNetwork(alice, bob), torch.nn.Linear(1, 1)
    with pytest.raises(ValueError, match="hands out no models"):
        grid.serve_model(model, "m", allow_download=True)
    with pytest.raises(ValueError, match="one more to deal"):
        grid.serve_model(model, "m", mpc=True)
    with pytest.raises(ValueError, match="3 replicas on 2 workers"):
        grid.serve_model(model, "m", n_replica=3)
    with pytest.raises(LookupError, match="serve_model"):
        grid.run_remote_inference("m", torch.ones(1))
    grid.serve_model(model, "m")
    with pytest.raises(ValueError, match="served already"):
        grid.serve_model(model, "m")
    with pytest.raises(LookupError, match="mpc=False"):
        grid.query_model_hosts("m", mpc=True)


def test_a_grid_introduces_its_nodes_to_each_other(alice: Any, bob: Any) -> None:
    grid = sy.PrivateGridNetwork(alice, bob)
    for worker in (alice, bob):
        worker.remove_worker_from_registry("alice")
        worker.remove_worker_from_registry("bob")
    grid._connect_all_nodes(grid.workers, sy.VirtualWorker)
    assert alice.get_worker("bob") is bob and bob.get_worker("alice") is alice
    assert grid._check_node_type(grid.workers, sy.VirtualWorker)
    assert not grid._check_node_type(grid.workers, sy.WebsocketClientWorker)
