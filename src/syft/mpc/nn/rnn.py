"""Recurrent layers made of linear ones, step by step: what torch's compute, on every kind of chain.

A cell has two linear layers, `fc_xh` for its input and `fc_hh` for its state; their rows are torch's `weight_ih` and
`weight_hh`, gate after gate in torch's order. A network has one cell per layer and direction, in `rnn_forward` and
`rnn_backward`. Shapes are torch's: x is (time, batch, features), a state (layers * directions, batch, hidden).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

State = Any  # a tensor; of LSTMs a pair of them

NONLINEARITIES = {"tanh": torch.tanh, "relu": torch.relu}


def _nonlinearity(kind: str, name: str | None) -> Any:
    if name is not None and name not in NONLINEARITIES:
        raise ValueError(
            f"{kind}(nonlinearity={name!r}): the nonlinearities are {', '.join(map(repr, NONLINEARITIES))}."
        )
    return NONLINEARITIES[name or "tanh"]


class RNNCellBase(nn.Module):
    """What cells have in common: `num_chunks` gates of `hidden_size` rows each."""

    num_states = 1

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, nonlinearity: str | None = None
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.num_chunks, self.nonlinearity = num_chunks, nonlinearity
        self.fc_xh = nn.Linear(input_size, num_chunks * hidden_size, bias=bias)
        self.fc_hh = nn.Linear(hidden_size, num_chunks * hidden_size, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform within 1 / sqrt(hidden_size), as torch does."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        with torch.no_grad():
            for weight in self.parameters():
                weight.uniform_(-bound, bound)

    def init_hidden(self, input: torch.Tensor) -> torch.Tensor:
        """A state of zeros for a batch, where the batch is and in its form."""
        return input.new_zeros(input.shape[0], self.hidden_size)

    def _gates(self, x: torch.Tensor, h: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        return (
            list(self.fc_xh(x).chunk(self.num_chunks, 1)),
            list(self.fc_hh(h).chunk(self.num_chunks, 1)),
        )


class RNNCell(RNNCellBase):
    """h' = tanh(fc_xh(x) + fc_hh(h)), or relu."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str | None = "tanh"
    ) -> None:
        activation = _nonlinearity("RNNCell", nonlinearity)
        super().__init__(input_size, hidden_size, bias, 1, nonlinearity)
        self._activation = activation

    def forward(self, x: torch.Tensor, h: torch.Tensor | None = None) -> torch.Tensor:
        h = self.init_hidden(x) if h is None else h
        made: torch.Tensor = self._activation(self.fc_xh(x) + self.fc_hh(h))
        return made


class _GatedCell(RNNCellBase):
    """A cell whose functions are fixed."""

    chunks = 0

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str | None = None
    ) -> None:
        if nonlinearity is not None:
            raise ValueError(
                f"{type(self).__name__}(nonlinearity={nonlinearity!r}): its gates are sigmoids and its values tanh, by "
                "definition. Leave it out."
            )
        super().__init__(input_size, hidden_size, bias, self.chunks)


class GRUCell(_GatedCell):
    """Gates in torch's order: reset, update, new."""

    chunks = 3

    def forward(self, x: torch.Tensor, h: torch.Tensor | None = None) -> torch.Tensor:
        h = self.init_hidden(x) if h is None else h
        (reset_x, update_x, new_x), (reset_h, update_h, new_h) = self._gates(x, h)
        reset, update = torch.sigmoid(reset_x + reset_h), torch.sigmoid(update_x + update_h)
        new = torch.tanh(new_x + reset * new_h)
        return new + update * (h - new)


class LSTMCell(_GatedCell):
    """Gates in torch's order: input, forget, cell, output. The state is (h, c)."""

    chunks = 4
    num_states = 2

    def reset_parameters(self) -> None:
        """As torch does: the bias of the forget gate is like the others."""
        super().reset_parameters()

    def forward(self, x: torch.Tensor, hc: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
        h, c = (self.init_hidden(x), self.init_hidden(x)) if hc is None else hc
        (in_x, forget_x, cell_x, out_x), (in_h, forget_h, cell_h, out_h) = self._gates(x, h)
        kept = torch.sigmoid(forget_x + forget_h) * c
        c = kept + torch.sigmoid(in_x + in_h) * torch.tanh(cell_x + cell_h)
        return torch.sigmoid(out_x + out_h) * torch.tanh(c), c


class RNNBase(nn.Module):
    """Layers of `base_cell`, in one direction or both."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        base_cell: type[RNNCellBase],
        nonlinearity: str | None = None,
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"{type(self).__name__}(num_layers={num_layers}): there is at least one layer.")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.nonlinearity, self.base_cell = bidirectional, nonlinearity, base_cell
        self.num_directions = 2 if bidirectional else 1
        sizes = [input_size, *[hidden_size * self.num_directions] * (num_layers - 1)]

        def cells() -> nn.ModuleList:
            return nn.ModuleList(
                base_cell(size, hidden_size, bias=bias, nonlinearity=nonlinearity)  # type: ignore[call-arg]
                for size in sizes
            )

        self.rnn_forward = cells()
        if bidirectional:
            self.rnn_backward = cells()

    @property
    def is_lstm(self) -> bool:
        return self.base_cell.num_states == 2

    def forward(self, x: torch.Tensor, h: State = None) -> tuple[torch.Tensor, State]:
        """(the hidden states of the last layer at every step, the last state of every layer and direction)."""
        if x.ndim != 3:
            raise ValueError(
                f"{type(self).__name__} takes (time, batch, features), got the shape {tuple(x.shape)}. For a single "
                "sequence write x.unsqueeze(1)."
            )
        x, h = self._swap_axis(x, h)
        states = self._split(self._init_hidden(x) if h is None else h)
        last: list[Any] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self.num_directions):
                steps, state = self._run(
                    layer, x, states[layer * self.num_directions + direction], bool(direction)
                )
                outputs.append(steps)
                last.append(state)
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 2)
            if layer + 1 < self.num_layers:
                x = nn.functional.dropout(x, self.dropout, self.training)
        output, _ = self._swap_axis(x, None)
        return output, self._join(last)

    def _cells(self, reverse_direction: bool) -> Any:
        if reverse_direction and not self.bidirectional:
            raise ValueError(
                f"This {type(self).__name__} has one direction. Make it with bidirectional=True."
            )
        return self.rnn_backward if reverse_direction else self.rnn_forward

    def _run(self, layer: int, x: torch.Tensor, state: State, reverse: bool) -> tuple[torch.Tensor, State]:
        """One layer in one direction over all steps."""
        cell, count = self._cells(reverse)[layer], x.shape[0]
        steps: list[Any] = [None] * count
        for t in reversed(range(count)) if reverse else range(count):
            state = cell(x[t], state)
            steps[t] = state[0] if self.is_lstm else state
        return torch.stack(steps), state

    def _split(self, h: State) -> list[State]:
        """The state of a network as one per layer and direction."""
        wanted = self.num_layers * self.num_directions
        parts = list(h) if self.is_lstm else [h]
        if any(part.shape[0] != wanted for part in parts):
            raise ValueError(
                f"A state of this {type(self).__name__} has {wanted} rows, one per layer and direction, and one of the "
                f"shape {tuple(parts[0].shape)} was given."
            )
        rows = [part.unbind(0) for part in parts]
        return list(zip(*rows, strict=True)) if self.is_lstm else list(rows[0])

    def _join(self, states: list[State]) -> State:
        if self.is_lstm:
            return tuple(torch.stack(list(parts)) for parts in zip(*states, strict=True))
        return torch.stack(states)

    def _swap_axis(self, x: torch.Tensor, h: State) -> tuple[torch.Tensor, State]:
        """With `batch_first`, x from (batch, time, ...) to (time, batch, ...) and back; a state stays as it is."""
        return (x.transpose(0, 1) if self.batch_first else x), h

    def _init_hidden(self, input: torch.Tensor) -> State:
        """Zeros for a batch of (time, batch, features), where it is and in its form."""
        shape = (self.num_layers * self.num_directions, input.shape[1], self.hidden_size)
        return tuple(input.new_zeros(shape) for _ in range(2)) if self.is_lstm else input.new_zeros(shape)

    def _apply_time_step(
        self, x: torch.Tensor, h: Any, c: Any, t: int, reverse_direction: bool = False
    ) -> tuple[Any, Any]:
        """Step t of all layers of one direction: (h, c) after it, one row per layer; c is None but for LSTMs.

        For programs that drive the steps themselves. In a network of one direction all steps together are `forward`.
        """
        hidden: list[Any] = []
        memory: list[Any] = []
        below = x[t]
        for layer, cell in enumerate(self._cells(reverse_direction)):
            made = cell(below, (h[layer], c[layer]) if self.is_lstm else h[layer])
            below = made[0] if self.is_lstm else made
            hidden.append(below)
            memory.append(made[1] if self.is_lstm else None)
        return torch.stack(hidden), torch.stack(memory) if self.is_lstm else None


class RNN(RNNBase):
    """A network of `RNNCell`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            RNNCell,
            nonlinearity,
        )


class GRU(RNNBase):
    """A network of `GRUCell`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, GRUCell
        )


class LSTM(RNNBase):
    """A network of `LSTMCell`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, LSTMCell
        )
