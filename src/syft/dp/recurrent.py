"""RNN, LSTM and GRU, and their cells, written out step by step, for the time torch.func needs them.

One duty: torch's fused recurrent kernels cannot be mapped over examples (`torch.func.vmap`), their equations
can. Inside `unrolled(model)`, the recurrent layers of a model run the equations of torch's documentation on
the same parameters. Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

State = tuple[Tensor, ...]
Cell = Callable[[Tensor, Tensor, State], State]


def _lstm(x: Tensor, h: Tensor, state: State) -> State:
    i, f, g, o = (x + h).chunk(4, -1)
    c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def _gru(x: Tensor, h: Tensor, state: State) -> State:
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, -1), h.chunk(3, -1)
    z = torch.sigmoid(xz + hz)
    n = torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
    return ((1 - z) * n + z * state[0],)


def _tanh(x: Tensor, h: Tensor, _state: State) -> State:
    return (torch.tanh(x + h),)


def _relu(x: Tensor, h: Tensor, _state: State) -> State:
    return (torch.relu(x + h),)


CELLS: dict[str, Cell] = {"LSTM": _lstm, "GRU": _gru, "RNN_TANH": _tanh, "RNN_RELU": _relu}


def _forward(layer: nn.RNNBase, x: Any, hx: Any = None) -> tuple[Tensor, Any]:
    if not isinstance(x, Tensor) or x.dim() != 3 or layer.proj_size:
        raise NotImplementedError(
            f"Per-sample gradients of {type(layer).__name__} take a padded batch of three dimensions and no "
            "proj_size: pad packed sequences first (torch.nn.utils.rnn.pad_packed_sequence)."
        )
    x = x.transpose(0, 1) if layer.batch_first else x
    directions = 2 if layer.bidirectional else 1
    carried = 2 if layer.mode == "LSTM" else 1
    if hx is None:
        zeros = x.new_zeros(layer.num_layers * directions, x.shape[1], layer.hidden_size)
        given: State = (zeros,) * carried
    else:
        given = tuple(hx) if carried == 2 else (hx,)
    last: list[State] = []
    for depth in range(layer.num_layers):
        outputs = []
        for direction in range(directions):
            suffix = f"_l{depth}" + ("_reverse" if direction else "")
            weight_ih, weight_hh = getattr(layer, f"weight_ih{suffix}"), getattr(layer, f"weight_hh{suffix}")
            bias_ih = getattr(layer, f"bias_ih{suffix}") if layer.bias else None
            bias_hh = getattr(layer, f"bias_hh{suffix}") if layer.bias else None
            state = tuple(s[depth * directions + direction] for s in given)
            inputs = F.linear(x, weight_ih, bias_ih).unbind(0)
            steps = []
            for step in reversed(inputs) if direction else inputs:
                state = CELLS[layer.mode](step, F.linear(state[0], weight_hh, bias_hh), state)
                steps.append(state[0])
            outputs.append(torch.stack(steps[::-1] if direction else steps))
            last.append(state)
        x = torch.cat(outputs, -1)
        if layer.dropout and layer.training and depth < layer.num_layers - 1:
            x = F.dropout(x, layer.dropout)
    ends = tuple(torch.stack(parts) for parts in zip(*last, strict=True))
    return (x.transpose(0, 1) if layer.batch_first else x), (ends if carried == 2 else ends[0])


def _cell_forward(layer: Any, x: Tensor, hx: Any = None) -> Any:
    """One step of an RNNCell, LSTMCell or GRUCell."""
    carried = 2 if isinstance(layer, nn.LSTMCell) else 1
    if hx is None:
        state: State = (x.new_zeros(*x.shape[:-1], layer.hidden_size),) * carried
    else:
        state = tuple(hx) if carried == 2 else (hx,)
    mode = "LSTM" if carried == 2 else "GRU"
    if isinstance(layer, nn.RNNCell):
        mode = f"RNN_{layer.nonlinearity.upper()}"
    inputs = F.linear(x, layer.weight_ih, layer.bias_ih)
    after = CELLS[mode](inputs, F.linear(state[0], layer.weight_hh, layer.bias_hh), state)
    return after if carried == 2 else after[0]


#: Fused layers -> what they compute.
WRITTEN_OUT: dict[type[nn.Module], Callable[..., Any]] = {
    **dict.fromkeys((nn.RNN, nn.LSTM, nn.GRU), _forward),
    **dict.fromkeys((nn.RNNCell, nn.LSTMCell, nn.GRUCell), _cell_forward),
}


@contextmanager
def unrolled(model: nn.Module) -> Iterator[None]:
    """Within, the recurrent layers of `model` run step by step. !! NotImplementedError where one has another forward"""
    written: list[tuple[Any, Callable[..., Any]]] = []
    for name, module in model.named_modules():
        for kind, forward in WRITTEN_OUT.items():
            if not isinstance(module, kind):
                continue
            if type(module).forward is not kind.forward or "forward" in vars(module):
                raise NotImplementedError(
                    f"{name or 'The model'} is a {type(module).__name__}, a {kind.__name__} with a forward of its own. "
                    f"Per-sample gradients need the plain {kind.__name__}: put it into a module that does the rest."
                )
            written.append((module, forward))
    for layer, forward in written:
        layer.forward = partial(forward, layer)  # of the instance, in front of the class's method
    try:
        yield
    finally:
        for layer, _forward_of_it in written:
            del layer.forward
