"""Rules are used only where every example gets its own gradient, and that is found out from structure."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from syft.dp.clipping import clipped_sum
from syft.dp.kept_state import KeptStateError
from syft.dp.per_sample import factors, per_sample_gradients
from syft.dp.ruled_pass import Checked

torch.set_num_threads(1)


class Made(nn.Module):
    """A model of some layers and a function of them."""

    def __init__(self, forward: Any, **layers: Any) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.run = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.run(self, x)


def zeroed(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def time_first(out: nn.Module | None = None) -> nn.Module:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.out(torch.tanh(m.mid(x.transpose(0, 1))).mean(0))

    return Made(forward, mid=nn.Linear(3, 4), out=out or nn.Linear(4, 2))


def positions() -> nn.Module:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.out((torch.tanh(m.mid(x)) * m.place(torch.arange(x.shape[1]))).mean(1))

    return Made(forward, mid=nn.Linear(3, 4), place=nn.Embedding(8, 4), out=nn.Linear(4, 2))


def rows_as_positions() -> nn.Module:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.out((torch.tanh(m.mid(x)).mean(1)) * m.place(torch.arange(x.shape[0])))

    return Made(forward, mid=nn.Linear(3, 4), place=nn.Embedding(8, 4), out=nn.Linear(4, 2))


def first_one_s_layer() -> nn.Module:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.out(m.mid(x).mean(1).flip(0))

    return Made(forward, mid=nn.Linear(3, 4), out=nn.Linear(4, 2))


def minus_the_mean() -> nn.Module:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.out(torch.tanh(m.mid(x - x.mean(0))).mean(1))

    return Made(forward, mid=nn.Linear(3, 4), out=nn.Linear(4, 2))


def a_vector_for_a_batch() -> nn.Module:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        return m.out(m.mid(x).mean(1)) + m.all(torch.ones(8))

    return Made(forward, mid=nn.Linear(3, 4), out=nn.Linear(4, 2), all=nn.Linear(8, 2))


MIXED = {
    "time first": time_first,
    "time first behind zeros": lambda: time_first(zeroed(nn.Linear(4, 2))),
    "positions": positions,
    "rows as positions": rows_as_positions,
    "another order of the examples": first_one_s_layer,
    "minus the mean of the batch": minus_the_mean,
    "a vector as long as the batch": a_vector_for_a_batch,
}

#: Where a batch of one is enough for all to be as it should: an example alone has neither order nor others.
RULED_ALL_THE_SAME = {"another order of the examples", "minus the mean of the batch"}


def batch(size: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """As many examples as steps: every dimension 0 has the right length."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(size, 8, 3, generator=generator), torch.arange(size) % 2


def loop(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    rows: dict[str, list[torch.Tensor]] = {}
    for i in range(len(x)):
        model.zero_grad()
        F.cross_entropy(model(x[i : i + 1]), y[i : i + 1]).backward()
        for name, p in model.named_parameters():
            rows.setdefault(name, []).append(torch.zeros_like(p) if p.grad is None else p.grad.clone())
    return {name: torch.stack(r) for name, r in rows.items()}


@pytest.mark.parametrize("name", MIXED)
def test_a_layer_whose_dimension_0_only_looks_like_the_batch_is_not_ruled(name: str) -> None:
    torch.manual_seed(0)
    model, (x, y) = MIXED[name](), batch()
    expected = loop(model, x, y)
    for parameter, found in per_sample_gradients(model, F.cross_entropy, x, y).items():
        torch.testing.assert_close(found, expected[parameter], rtol=1e-4, atol=1e-6)
    if name in RULED_ALL_THE_SAME:
        for parameter, found in per_sample_gradients(model, F.cross_entropy, x, y, "rules").items():
            torch.testing.assert_close(found, expected[parameter], rtol=1e-4, atol=1e-6)
        return
    with pytest.raises(ValueError, match="do not cover"):
        factors(model, F.cross_entropy, x, y, "rules")


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("first", [1, 2, 7, 8])
def test_no_later_batch_is_ruled_by_the_coincidence_of_its_length(name: str, first: int) -> None:
    torch.manual_seed(0)
    model, checked = MIXED[name](), Checked()
    for size in (first, 8, 1, 8, 2, 8):
        x, y = batch(size)
        found, _ = factors(model, F.cross_entropy, x, y, "auto", checked)
        for parameter, expected in loop(model, x, y).items():
            torch.testing.assert_close(found[parameter].expand(), expected, rtol=1e-4, atol=1e-6)
    assert bool(checked.against) == (name not in RULED_ALL_THE_SAME)


def test_one_example_adds_no_more_than_the_bound_with_time_first() -> None:
    model = Made(lambda m, x: m.mid(x.transpose(0, 1)).sum(0), mid=nn.Linear(3, 2, bias=False))
    x, y = torch.zeros(32, 32, 3), torch.zeros(32, 2)
    x[0], y[0] = 1.0, 100.0
    sums, _ = clipped_sum(model, nn.MSELoss(), x, y, {"": 1.0})
    assert float(sums["mid.weight"].norm()) <= 1.0


def test_a_layer_that_comes_later_is_looked_at_when_it_comes() -> None:
    torch.manual_seed(0)
    model = Made(
        lambda m, x: m.out(m.late(x.transpose(0, 1)).mean(0) if m.is_late else m.mid(x).mean(1)),
        mid=nn.Linear(3, 4),
        late=nn.Linear(3, 4),
        out=nn.Linear(4, 2),
    )
    model.is_late, checked = False, Checked()  # type: ignore[assignment]
    x, y = batch()
    for _ in range(3):
        factors(model, F.cross_entropy, x, y, "auto", checked)
    assert not checked.against
    model.is_late = True  # type: ignore[assignment]
    checked.passes = 4  # the next one would not be looked at
    found, _ = factors(model, F.cross_entropy, x, y, "auto", checked)
    assert "late" in checked.against
    torch.testing.assert_close(found["late.weight"].expand(), loop(model, x, y)["late.weight"])


def test_a_tied_weight_behind_a_closed_gate_is_seen_in_the_graph() -> None:
    """All numbers are right as long as the gate is zero."""
    gate = nn.Linear(4, 4, bias=False)
    nn.init.zeros_(gate.weight)
    model = Made(
        lambda m, x: m.out(m.mid(x)) + (m.gate(x) @ m.mid.weight)[:, :2],
        mid=nn.Linear(4, 4),
        gate=gate,
        out=nn.Linear(4, 2),
    )
    checked = Checked(passes=4)
    factors(model, F.cross_entropy, torch.randn(5, 4), torch.zeros(5, dtype=torch.long), "auto", checked)
    assert "outside of the call" in checked.against


def test_a_weight_that_has_a_part_in_its_own_layer_s_input_is_seen() -> None:
    model = Made(lambda m, x: m.mid(x @ m.mid.weight.T), mid=nn.Linear(4, 4))
    x, y, checked = torch.randn(6, 4), torch.arange(6) % 2, Checked()
    found, _ = factors(model, F.cross_entropy, x, y, "auto", checked)
    assert "outside of the call" in checked.against
    torch.testing.assert_close(found["mid.weight"].expand(), loop(model, x, y)["mid.weight"])


def test_numbers_are_looked_at_in_passes_that_are_powers_of_two() -> None:
    """The same graph, another computation: only the numbers tell."""
    model = Made(lambda m, x: m.out(m.mid(x).mean(1)), mid=nn.Linear(3, 4), out=nn.Linear(4, 2))
    model.part, checked = 1.0, Checked()  # type: ignore[assignment]
    model.mid.register_forward_hook(lambda _layer, _args, output: output * model.part)
    x, y = batch()
    against = []
    for step in range(1, 9):
        if step == 5:
            model.part = 2.0  # type: ignore[assignment]
        factors(model, F.cross_entropy, x, y, "auto", checked)
        against.append(bool(checked.against))
    assert against == [False] * 7 + [True]


def test_ordinary_models_stay_with_the_rules() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.other, self.drop = nn.Linear(3, 4), nn.Linear(3, 4), nn.Dropout(0.5)
            self.out = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.drop(torch.relu(self.layer(x))).mean(1))

    models: list[nn.Module] = [
        Unused(),
        nn.Sequential(
            nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(32, 2)
        ),
        nn.Sequential(nn.Conv1d(8, 8, 2), nn.GroupNorm(2, 8), nn.Flatten(), zeroed(nn.Linear(16, 2))),
        # The bias of the keys changes nothing: its gradient is rounding.
        Made(
            lambda m, x: m.out(F.scaled_dot_product_attention(x, m.keys(x), x).mean(1)),
            keys=nn.Linear(3, 3),
            out=nn.Linear(3, 2),
        ),
    ]
    for model in models:
        checked = Checked()
        for size in (8, 1, 5, 8, 3):
            factors(model, F.cross_entropy, *batch(size), "auto", checked)
        assert not checked.against and model.training
        assert checked.passes == 5


def test_a_counter_is_refused_and_a_check_leaves_modes_alone() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out, self.drop = nn.Linear(3, 2), nn.Dropout(0.5)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                self.calls += 1
            return self.out(self.drop(x)).mean(1)

    model = Counts()
    with pytest.raises(KeptStateError, match=r"model\.calls"):
        factors(model, F.cross_entropy, *batch(), "rules")
    model.eval()
    model.drop.train()
    factors(model, F.cross_entropy, *batch(), "rules")
    assert not model.training and model.drop.training


def test_a_number_that_is_not_finite_neither_proves_nor_disproves() -> None:
    model, checked, (x, y) = nn.Sequential(nn.Flatten(), nn.Linear(24, 2)), Checked(), batch()
    wrong = x.clone()
    wrong[3] = torch.nan
    found, _ = factors(model, F.cross_entropy, wrong, y, "auto", checked)
    assert found["1.weight"].norms().isfinite().tolist() == [i != 3 for i in range(8)]
    assert not checked.graphs and not checked.against
    factors(model, F.cross_entropy, x, y, "auto", checked)
    assert checked.graphs


class Mixup(nn.Module):
    """In training, every example gets a part of another."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.7 * x + 0.3 * x[torch.randperm(len(x))] if self.training else x


class LayerDrop(nn.Module):
    """In training, the layer is called now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.training and torch.rand(()) < 0.5 else self.layer(x)


def test_examples_that_would_be_mixed_in_training_only_are_not() -> None:
    torch.manual_seed(0)
    model, checked, (x, y) = nn.Sequential(Mixup(), nn.Flatten(), nn.Linear(24, 2)), Checked(), batch()
    found, _ = factors(model, F.cross_entropy, x, y, "auto", checked)
    assert model.training and model[0].training
    for parameter, expected in loop(model.eval(), x, y).items():
        torch.testing.assert_close(found[parameter].expand(), expected, rtol=1e-4, atol=1e-6)


def test_layers_that_are_called_at_random() -> None:
    torch.manual_seed(0)
    model, checked = nn.Sequential(LayerDrop(), nn.Flatten(), nn.Linear(24, 2)), Checked()
    used = set()
    for _ in range(10):
        found, _ = factors(model, F.cross_entropy, *batch(), "auto", checked)
        used.add(bool(found["0.layer.weight"].norms().any()))
    assert used == {True, False} and not checked.against and len(checked.graphs) == 2


# -- layers that hooks do not see ------------------------------------------------------------------------


def test_a_compiled_model_trains_after_it_was_evaluated() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    plain = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    compiled: Any = torch.compile(plain, backend="eager")
    checked = Checked()
    for size in (4, 5, 6, 4):
        x, y = torch.randn(size, 3), torch.arange(size) % 2
        compiled(x)
        found, _ = factors(compiled, F.cross_entropy, x, y, "auto", checked)
        for name, expected in loop(plain, x, y).items():
            torch.testing.assert_close(found[f"_orig_mod.{name}"].expand(), expected)
    assert not checked.against


def test_a_layer_that_is_used_without_being_called_is_not_taken_for_unused() -> None:
    model = Made(lambda m, x: m.mid.forward(x).mean(1) if m.direct else m.mid(x).mean(1), mid=nn.Linear(3, 2))
    model.direct, checked, (x, y) = False, Checked(), batch()  # type: ignore[assignment]
    for _ in range(2):
        factors(model, F.cross_entropy, x, y, "auto", checked)
    model.direct = True  # type: ignore[assignment]
    found, _ = factors(model, F.cross_entropy, x, y, "auto", checked)
    assert "outside of the call" in checked.against
    torch.testing.assert_close(found["mid.weight"].expand(), loop(model, x, y)["mid.weight"])


def test_a_layer_without_gradients_adds_none() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            seen = m.mid(x)
        return m.out(seen).mean(1)

    model, (x, y) = Made(forward, mid=nn.Linear(3, 4), out=nn.Linear(4, 2)), batch()
    expected = loop(model, x, y)
    found = per_sample_gradients(model, F.cross_entropy, x, y)
    assert float(found["mid.weight"].abs().sum()) == 0
    torch.testing.assert_close(found["out.weight"], expected["out.weight"])


def test_checkpoints() -> None:
    def made(reentrant: bool) -> nn.Module:
        return Made(
            lambda m, x: m.out(checkpoint(m.mid, x, use_reentrant=reentrant)).mean(1),
            mid=nn.Linear(3, 4),
            out=nn.Linear(4, 2),
        )

    model, (x, y) = made(False), batch()
    expected = loop(model, x, y)
    for name, found in per_sample_gradients(model, F.cross_entropy, x, y, "rules").items():
        torch.testing.assert_close(found, expected[name])
    with pytest.raises(NotImplementedError, match="use_reentrant=False"):
        per_sample_gradients(made(True), F.cross_entropy, x.requires_grad_(), y)


# -- recurrent cells -------------------------------------------------------------------------------------

CELLS = {
    "lstm": lambda: nn.LSTMCell(3, 4),
    "lstm without bias": lambda: nn.LSTMCell(3, 4, bias=False),
    "gru": lambda: nn.GRUCell(3, 4),
    "rnn": lambda: nn.RNNCell(3, 4),
    "rnn with relu": lambda: nn.RNNCell(3, 4, nonlinearity="relu"),
}


@pytest.mark.parametrize("name", CELLS)
def test_the_gradients_of_recurrent_cells_equal_a_loop(name: str) -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        state = None
        for step in range(x.shape[1]):
            state = m.cell(x[:, step], state)
        return m.out(state[0] if isinstance(state, tuple) else state)

    torch.manual_seed(0)
    model, (x, y) = Made(forward, cell=CELLS[name](), out=nn.Linear(4, 2)), batch(5)
    expected = loop(model, x, y)
    for parameter, found in per_sample_gradients(model, F.cross_entropy, x, y).items():
        torch.testing.assert_close(found, expected[parameter], rtol=1e-4, atol=1e-6)
    assert "forward" not in vars(model.cell)


def test_a_recurrent_layer_with_a_forward_of_its_own_is_refused() -> None:
    class Last(nn.GRU):
        def forward(self, x: torch.Tensor) -> Any:  # type: ignore[override]
            return super().forward(x)[0][:, -1]

    with pytest.raises(NotImplementedError, match="GRU with a forward of its own"):
        per_sample_gradients(Last(3, 2, batch_first=True), F.cross_entropy, *batch())


# -- precision -------------------------------------------------------------------------------------------


def image_model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 2))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions_pass_their_own_check(dtype: torch.dtype, seed: int) -> None:
    torch.manual_seed(seed)
    x, y = torch.randn(64, 1, 8, 8).to(dtype), torch.randint(0, 2, (64,))
    factors(image_model().to(dtype), F.cross_entropy, x, y, "rules")
    model = nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6), nn.Flatten(), nn.Linear(48, 2)).to(dtype)
    factors(model, F.cross_entropy, x[:, 0], y, "rules")


def test_convolutions_under_autocast() -> None:
    torch.manual_seed(0)
    model, x, y = image_model(), torch.randn(16, 1, 8, 8), torch.randint(0, 2, (16,))
    exact = per_sample_gradients(model, F.cross_entropy, x, y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for way in ("rules", "vmap"):
            for name, found in per_sample_gradients(model, F.cross_entropy, x, y, way).items():
                assert float((found - exact[name]).norm()) < 0.06 * float(exact[name].norm())


# -- sentences -------------------------------------------------------------------------------------------


def test_what_cannot_be_mapped_over_examples_is_told() -> None:
    model = Made(lambda m, x: m.cell(x[:, 0]) if x.sum() > 0 else m.cell(x[:, 1]), cell=nn.RNNCell(3, 2))
    with pytest.raises(NotImplementedError, match=r"torch\.where"):
        per_sample_gradients(model, F.cross_entropy, *batch())


@pytest.mark.parametrize(
    ("inputs", "targets", "sentence"),
    [
        (
            (torch.zeros(4, 3), (torch.zeros(4, 3),)),
            torch.zeros(4),
            r"inputs\[1\] as one tensor.*got a tuple",
        ),
        (torch.zeros(4, 3), [0, 1, 0, 1], r"targets\[0\] as one tensor.*got a int.*as_tensor"),
        (torch.zeros(4, 3), torch.tensor(1.0), "targets as one tensor.*got a number"),
        (torch.zeros(4, 3), torch.zeros(5), "4 inputs and 5 targets"),
    ],
)
def test_batches_of_another_make_are_refused(inputs: Any, targets: Any, sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        factors(nn.Linear(3, 2), F.mse_loss, inputs, targets)


def test_rules_are_checked_without_a_whole_sum_in_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    from syft.dp.gradient_factors import Outer, Sequences

    def whole(*_: object) -> None:
        raise AssertionError("the weighted sum was made as a whole")

    monkeypatch.setattr(Outer, "weighted_sum", whole)
    monkeypatch.setattr(Sequences, "weighted_sum", whole)
    for shape in ((4, 600), (4, 3, 600)):
        factors(nn.Linear(600, 600), F.mse_loss, torch.randn(shape), torch.zeros(*shape[:-1], 600), "rules")
