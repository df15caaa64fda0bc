"""The layers of `syft.frameworks.torch.nn` as the programs of 2020 build and call them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from syft.frameworks.torch import nn
from syft.frameworks.torch.nn.rnn import RNNBase, RNNCellBase

NETWORKS = {
    "RNN": (nn.RNN, torch.nn.RNN, {}),
    "RNN relu": (nn.RNN, torch.nn.RNN, {"nonlinearity": "relu"}),
    "GRU": (nn.GRU, torch.nn.GRU, {}),
    "LSTM": (nn.LSTM, torch.nn.LSTM, {}),
}
SHAPES = [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True, "bias": False}]


def _take_weights(ours: Any, theirs: Any) -> None:
    """The weights of a network of torch, cell by cell."""
    directions = [(ours.rnn_forward, "")]
    if ours.bidirectional:
        directions.append((ours.rnn_backward, "_reverse"))
    for cells, suffix in directions:
        for layer, cell in enumerate(cells):
            for linear, name in ((cell.fc_xh, "ih"), (cell.fc_hh, "hh")):
                linear.weight = getattr(theirs, f"weight_{name}_l{layer}{suffix}")
                if ours.bias:
                    linear.bias = getattr(theirs, f"bias_{name}_l{layer}{suffix}")


def _flat(result: Any) -> list[Any]:
    return [t for part in result for t in _flat(part)] if isinstance(result, (tuple, list)) else [result]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("options", SHAPES, ids=["one", "two layers, both directions", "batch first"])
def test_a_recurrent_network_computes_what_torch_computes(name: str, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    make, reference, kind = NETWORKS[name]
    ours, theirs = make(3, 2, **kind, **options), reference(3, 2, **kind, **options)
    _take_weights(ours, theirs)
    x = torch.randn(4, 5, 3)
    for found, expected in zip(_flat(ours(x)), _flat(theirs(x)), strict=True):
        assert torch.allclose(found, expected, atol=1e-6)
    state = theirs(x)[1]
    again, expected = ours(x=x, h=state), theirs(x, state)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(_flat(again), _flat(expected), strict=True))
    output, _ = ours(x)
    output.sum().backward()
    theirs(x)[0].sum().backward()
    assert torch.allclose(ours.rnn_forward[0].fc_xh.weight.grad, theirs.weight_ih_l0.grad, atol=1e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_recurrent_network_runs_shared_and_on_a_worker(name: str, make_worker: Any) -> None:
    torch.manual_seed(0)
    make, _, kind = NETWORKS[name]
    alice, bob, provider = (make_worker(who) for who in ("alice", "bob", "provider"))
    layer, x = make(3, 2, num_layers=2, **kind), torch.randn(2, 2, 3)
    expected = _flat(layer(x))
    shared = copy.deepcopy(layer).fix_precision(base=2, precision_fractional=16)
    shared = shared.share(alice, bob, crypto_provider=provider)
    secret = x.fix_precision(base=2, precision_fractional=16).share(alice, bob, crypto_provider=provider)  # type: ignore[attr-defined]
    for found, wanted in zip(_flat(shared(secret)), expected, strict=True):
        assert torch.allclose(found.get().float_precision(), wanted, atol=1e-3)
    remote = copy.deepcopy(layer).send(alice)
    for found, wanted in zip(_flat(remote(x.send(alice))), expected, strict=True):  # type: ignore[attr-defined]
        assert torch.allclose(found.get(), wanted, atol=1e-6)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_cells_take_their_parameters_by_the_names_of_2020(kind: str) -> None:
    torch.manual_seed(0)
    ours, theirs = getattr(nn, f"{kind}Cell")(3, 2), getattr(torch.nn, f"{kind}Cell")(3, 2)
    ours.fc_xh.weight, ours.fc_xh.bias = theirs.weight_ih, theirs.bias_ih
    ours.fc_hh.weight, ours.fc_hh.bias = theirs.weight_hh, theirs.bias_hh
    x, h, c = torch.randn(4, 3), torch.randn(4, 2), torch.randn(4, 2)
    state = {"hc": (h, c)} if kind == "LSTM" else {"h": h}
    for found, expected in ((ours(x=x, **state), theirs(x, *state.values())), (ours(x), theirs(x))):
        assert all(
            torch.allclose(a, b, atol=1e-6) for a, b in zip(_flat(found), _flat(expected), strict=True)
        )
    assert isinstance(ours, RNNCellBase) and ours.init_hidden(x).tolist() == [[0.0, 0.0]] * 4
    with pytest.raises(ValueError, match="nonlinearity"):
        getattr(nn, f"{kind}Cell")(3, 2, nonlinearity="cosine")


@pytest.mark.parametrize("cell", [nn.RNNCell, nn.GRUCell, nn.LSTMCell])
def test_a_network_of_any_cell_is_driven_step_by_step(cell: Any) -> None:
    torch.manual_seed(0)
    net = RNNBase(3, 2, 2, True, False, 0.0, False, base_cell=cell)
    x = torch.randn(4, 5, 3)
    output, last = net(x)
    h, c = net._init_hidden(x) if cell is nn.LSTMCell else (net._init_hidden(x), None)
    for t in range(4):
        h, c = net._apply_time_step(x, h, c, t)
        assert torch.allclose(h[-1], output[t])
    assert torch.allclose(h, last[0] if cell is nn.LSTMCell else last)
    with pytest.raises(ValueError, match="one direction"):
        net._apply_time_step(x, h, c, 0, reverse_direction=True)
    with pytest.raises(ValueError, match="time, batch, features"):
        net(x[0])
    with pytest.raises(ValueError, match="2 rows"):
        net(x, torch.zeros(1, 5, 2) if c is None else (torch.zeros(1, 5, 2), torch.zeros(1, 5, 2)))


def test_convolution_and_pooling_call_their_input_data() -> None:
    torch.manual_seed(0)
    conv, pool, x = nn.Conv2d(2, 3, 3), nn.AvgPool2d(2), torch.randn(1, 2, 6, 6)
    assert torch.equal(conv.forward(data=x), torch.nn.functional.conv2d(x, conv.weight, conv.bias))
    assert torch.equal(pool.forward(data=x), torch.nn.functional.avg_pool2d(x, 2))
    assert isinstance(conv, torch.nn.Conv2d) and isinstance(pool, torch.nn.AvgPool2d)


def test_dropout_acts_between_layers_while_training() -> None:
    torch.manual_seed(0)
    net, x = nn.GRU(3, 2, num_layers=2, dropout=0.9), torch.ones(4, 1, 3)
    assert not torch.equal(net(x)[0], net(x)[0])
    net.eval()
    assert torch.equal(net(x)[0], net(x)[0])
