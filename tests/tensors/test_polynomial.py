"""`PolynomialTensor` and the piecewise polynomials it evaluates."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from syft.core.abstract import AbstractTensor
from syft.core.hook_args import default_register_tensor
from syft.tensors.logging import LoggingTensor
from syft.tensors.numpy_array import NumpyTensor
from syft.tensors.piecewise import EXTEND, Piece, interpolate, join, least_squares
from syft.tensors.polynomial import DEFAULTS, PolynomialTensor

TRUE = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "exp": torch.exp, "log": torch.log}
#: What each default function promises; a worse fit is a regression.
PROMISED = {"sigmoid": 5e-5, "tanh": 1e-4, "exp": 1.1e-4, "log": 3e-5}


class CountingTensor(AbstractTensor):
    """Stands for a type that has few operations: notes which ones reach it."""

    seen: set[str] = set()

    @classmethod
    def interpret(cls, func, args, kwargs):
        cls.seen.add(func._schema.name.removeprefix("aten::"))
        return super().interpret(func, args, kwargs)


default_register_tensor(CountingTensor)


def plain(chain: torch.Tensor) -> torch.Tensor:
    node = chain.child
    while isinstance(node, AbstractTensor):
        node = node.child
    return node


def inside(approximation, count=4001):
    return torch.linspace(*approximation.interval, count, dtype=torch.float64)


# -- the default functions ---------------------------------------------------------------------------


def test_the_functions_torch_names_are_the_default_ones():
    assert set(DEFAULTS) == set(TRUE) == set(PROMISED)


@pytest.mark.parametrize("name", TRUE)
@given(position=st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_a_default_function_keeps_its_stated_error(name, position):
    approximation = PolynomialTensor().approximation(name)
    low, high = approximation.interval
    x = torch.tensor([low + position * (high - low)], dtype=torch.float64)
    assert approximation.error < PROMISED[name]
    assert abs(approximation(x) - TRUE[name](x)).item() <= approximation.error * 1.001 + 1e-12


@pytest.mark.parametrize("name", TRUE)
def test_method_function_and_in_place_use_the_approximation(name):
    approximation = PolynomialTensor().approximation(name)
    x = inside(approximation)
    expected = approximation(x)
    assert not torch.equal(expected, TRUE[name](x))
    chain = PolynomialTensor().on(x.clone())
    for result in (getattr(chain, name)(), getattr(torch, name)(chain)):
        assert isinstance(result.child, PolynomialTensor)
        assert torch.equal(plain(result), expected)
    assert getattr(chain, name + "_")() is chain
    assert torch.equal(plain(chain), expected)


def test_a_module_uses_the_approximation():
    x = torch.linspace(-3, 3, 7)
    result = torch.nn.Sigmoid()(PolynomialTensor().on(x))
    assert torch.equal(plain(result), PolynomialTensor().approximation("sigmoid")(x))


def test_what_is_not_approximated_is_torchs():
    x = torch.linspace(-3, 3, 7)
    assert torch.equal(plain(PolynomialTensor().on(x).sin() + 1), x.sin() + 1)


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "exp", "log"])
@given(x=st.floats(allow_nan=False, width=32))
@settings(max_examples=60, deadline=None)
def test_outside_its_interval_a_default_function_keeps_the_value_of_the_nearer_end(name, x):
    approximation = PolynomialTensor().approximation(name)
    low, high = approximation.interval
    nearest = min(max(x, low), high)
    points = torch.tensor([x, nearest], dtype=torch.float64)
    value, end = approximation(points)
    assert value == end
    if math.isfinite(x):  # arithmetic on a chain makes nan of infinities
        value, end = plain(approximation(CountingTensor().on(points)))
        assert value == end


def test_infinities_saturate_on_plain_tensors_and_nan_stays_nan():
    x = torch.tensor([-math.inf, math.inf, math.nan])
    low, high, unknown = plain(PolynomialTensor().on(x).sigmoid()).tolist()
    assert low == pytest.approx(0, abs=1e-5)
    assert high == pytest.approx(1, abs=1e-5)
    assert math.isnan(unknown)


@pytest.mark.parametrize("name", ["sigmoid", "tanh"])
def test_saturated_functions_are_right_everywhere(name):
    approximation = PolynomialTensor().approximation(name)
    x = torch.linspace(-100, 100, 20001, dtype=torch.float64)
    assert (approximation(x) - TRUE[name](x)).abs().max() < approximation.error + 2e-5


def test_an_approximation_is_continuous_where_its_pieces_meet():
    for name in TRUE:
        pieces = PolynomialTensor().approximation(name).pieces
        for left, right in pairwise(pieces):
            at_end = sum(left.coefficients)
            at_begin = sum(c * (-1) ** i for i, c in enumerate(right.coefficients))
            assert at_end == pytest.approx(at_begin, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_dtype_is_kept(dtype):
    chain = PolynomialTensor().on(torch.linspace(-2, 2, 9, dtype=dtype))
    assert chain.sigmoid().dtype == plain(chain.sigmoid()).dtype == dtype


def test_float64_is_not_computed_in_float32():
    x = torch.linspace(-3, 3, 101, dtype=torch.float64)
    approximation = interpolate(torch.sin, (-4, 4), 20, pieces=2)
    assert approximation.error < 1e-12
    assert (approximation(x) - x.sin()).abs().max() < 1e-12


def test_integers_become_floats_as_in_torch():
    result = plain(PolynomialTensor().on(torch.tensor([0, 1])).sigmoid())
    assert result.dtype == torch.float32
    assert result.tolist() == pytest.approx([0.5, 0.731059], abs=1e-4)


def test_complex_numbers_are_refused_with_a_cure():
    with pytest.raises(ValueError, match=r"complex.*x\.real"):
        PolynomialTensor().on(torch.ones(1, dtype=torch.complex64)).exp()


# -- gradients ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRUE)
def test_the_gradient_is_near_the_true_derivative(name):
    """Markov: a polynomial of degree n that stays below e on a piece of half width h has slope e n^2 / h."""
    approximation = PolynomialTensor().approximation(name)
    steepest = approximation.error * approximation.degree**2 * max(p.scale for p in approximation.pieces)
    x = inside(approximation).requires_grad_()
    (true,) = torch.autograd.grad(TRUE[name](x).sum(), x)
    chain = PolynomialTensor().on(x.detach().requires_grad_())
    getattr(chain, name)().sum().backward()
    assert (plain(chain.grad) - true).abs().max() <= 1.5 * steepest
    assert (plain(chain.grad) - true).abs().max() < 0.05


def test_the_gradient_is_that_of_the_polynomial():
    x = torch.linspace(-13, 13, 53, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(PolynomialTensor().approximation("sigmoid"), (x + 0.1,))
    chain = PolynomialTensor().on(torch.tensor([-20.0, 20.0], requires_grad=True))
    chain.tanh().sum().backward()
    assert plain(chain.grad).tolist() == [0.0, 0.0]


def test_a_second_derivative_exists():
    x = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    chain = PolynomialTensor().on(x * 1)
    (slope,) = torch.autograd.grad(chain.exp().sum(), x, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, x)
    assert curvature.item() == pytest.approx(math.e, abs=0.05)


def test_logistic_regression_learns_through_the_approximation():
    torch.manual_seed(0)
    data = torch.randn(64, 2)
    target = (data @ torch.tensor([[2.0], [-1.0]]) > 0).float()
    model = torch.nn.Linear(2, 1)
    for name, parameter in list(model.named_parameters()):
        setattr(model, name, torch.nn.Parameter(PolynomialTensor().on(parameter.detach())))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(40):
        optimizer.zero_grad()
        ((model(data).sigmoid() - target) ** 2).mean().backward()
        optimizer.step()
    predicted = plain(model(data).sigmoid()) > 0.5
    assert (predicted == target.bool()).float().mean() > 0.95


# -- what it asks of the level below -------------------------------------------------------------------


@pytest.mark.parametrize("name", TRUE)
def test_evaluation_adds_multiplies_and_compares_and_nothing_else(name):
    x = inside(PolynomialTensor().approximation(name), 101)
    x = torch.cat([x - 100, x, x + 100])
    CountingTensor.seen = set()
    result = getattr(PolynomialTensor().on(CountingTensor().on(x)), name)()
    assert isinstance(result.child.child, CountingTensor)
    # _to_copy: only to turn the booleans of a comparison into numbers
    assert CountingTensor.seen <= {"add", "sub", "rsub", "mul", "ge", "gt", "lt", "_to_copy"}
    assert {"add", "mul", "ge"} <= CountingTensor.seen
    torch.testing.assert_close(plain(result), PolynomialTensor().approximation(name)(x), rtol=0, atol=1e-13)


def test_a_single_piece_that_extends_compares_nothing():
    approximation = interpolate(math.sin, (-1, 1), 5, outside=EXTEND)
    CountingTensor.seen = set()
    approximation(CountingTensor().on(torch.zeros(3)))
    assert CountingTensor.seen == {"add", "sub", "mul"}


def test_logging_over_polynomial_says_it_and_approximates_it(monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(LoggingTensor, "sink", lines.append)
    x = torch.linspace(-2, 2, 5)
    chain = LoggingTensor().on(PolynomialTensor().on(x))
    result = torch.sigmoid(chain)
    assert str(result).startswith("(Wrapper)>LoggingTensor>PolynomialTensor>tensor(")
    assert torch.equal(plain(result), PolynomialTensor().approximation("sigmoid")(x))
    assert lines == ["Default log torch.sigmoid"]


def test_polynomial_over_logging_and_over_numpy_approximates_too(monkeypatch):
    monkeypatch.setattr(LoggingTensor, "sink", None)
    x = torch.linspace(-2, 2, 5)
    expected = PolynomialTensor().approximation("exp")(x)
    over_logging = PolynomialTensor().on(LoggingTensor().on(x)).exp()
    assert str(over_logging).startswith("(Wrapper)>PolynomialTensor>LoggingTensor>")
    torch.testing.assert_close(plain(over_logging), expected)
    over_numpy = PolynomialTensor().on(NumpyTensor().on(x)).exp()
    np.testing.assert_allclose(plain(over_numpy), expected.numpy(), rtol=1e-6)


# -- functions of the user's own -----------------------------------------------------------------------


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def test_a_user_function_is_called_by_its_name():
    node = PolynomialTensor()
    approximation = node.addfunction("softplus", degree=8, pieces=[(-6, 0, softplus), (0, 6, softplus)])
    assert approximation.name == "softplus" and approximation.interval == (-6, 6)
    x = torch.linspace(-6, 6, 301, dtype=torch.float64)
    true = torch.nn.functional.softplus(x)
    assert 0 < approximation.error < 1e-3
    assert (node.get_val("softplus", x) - true).abs().max() <= approximation.error * 1.001
    chain = node.on(x)
    result = chain.child.get_val("softplus", chain * 1)
    assert isinstance(result.child, PolynomialTensor)
    assert torch.equal(plain(result), node.get_val("softplus", x))


def test_results_know_the_functions_of_the_tensor_they_come_from():
    chain = PolynomialTensor().on(torch.ones(2))
    chain.child.addfunction("twice", 1, [(0, 4, lambda x: 2 * x)])
    later = chain + 1
    assert plain(later.child.get_val("twice", later)).tolist() == pytest.approx([4.0, 4.0])
    with pytest.raises(ValueError, match="'twice'"):
        PolynomialTensor().get_val("twice", torch.ones(1))


def test_a_user_function_of_a_default_name_replaces_it_for_that_tensor_only():
    chain = PolynomialTensor().on(torch.tensor([3.0]))
    chain.child.addfunction("exp", 1, [(0, 10, lambda x: x)])
    assert plain(chain.exp()).item() == pytest.approx(3.0)
    assert plain(PolynomialTensor().on(torch.tensor([3.0])).exp()).item() == pytest.approx(
        math.exp(3), abs=1e-3
    )


def test_pieces_may_be_different_functions():
    node = PolynomialTensor()
    node.addfunction("abs", 1, [(-2, 0, lambda x: -x), (0, 3, lambda x: x)])
    assert node.get_val("abs", torch.tensor([-5.0, -1.5, 0.0, 2.5, 9.0])).tolist() == pytest.approx(
        [2.0, 1.5, 0.0, 2.5, 3.0]
    )
    assert node.approximation("abs").error < 1e-12


def test_get_val_takes_numbers_lists_and_bare_nodes():
    node = PolynomialTensor()
    assert node.get_val("sigmoid", 0.0).item() == pytest.approx(0.5, abs=1e-4)
    assert node.get_val("exp", [0.0, 1.0]).tolist() == pytest.approx([1, math.e], abs=1e-3)
    bare = PolynomialTensor().on(torch.zeros(1), wrap=False)
    assert plain(node.get_val("tanh", bare)).item() == pytest.approx(0, abs=1e-4)


# -- fitting -----------------------------------------------------------------------------------------


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=6), st.floats(-5, 4.9), st.floats(0.1, 5))
@settings(max_examples=50, deadline=None)
def test_a_polynomial_is_recovered_by_both_fits(coefficients, low, width):
    def cubic(x: float) -> float:
        return sum(c * x**i for i, c in enumerate(coefficients))

    interval, degree = (low, low + width), len(coefficients) - 1
    scale = 1 + sum(abs(c) * 10**i for i, c in enumerate(coefficients))
    for approximation in (interpolate(cubic, interval, degree), least_squares(cubic, interval, degree)):
        assert approximation.degree == degree
        assert approximation.error < 1e-12 * scale


@given(st.integers(1, 12), st.integers(1, 5), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_the_stated_error_holds_for_any_degree_and_number_of_pieces(degree, pieces, position):
    approximation = interpolate(math.cos, (-3, 5), degree, pieces=pieces)
    x = -3 + 8 * position
    got = approximation(torch.tensor(x, dtype=torch.float64)).item()
    assert abs(got - math.cos(x)) <= 1.01 * approximation.error + 1e-12


def test_more_degrees_and_more_pieces_mean_less_error():
    by_degree = [interpolate(math.exp, (0, 2), degree).error for degree in range(8)]
    by_pieces = [interpolate(math.exp, (0, 2), 2, pieces=pieces).error for pieces in (1, 2, 4, 8)]
    assert by_degree == sorted(by_degree, reverse=True) and by_degree[-1] < 1e-5
    # half the width divides the error of a quadratic by about 2**3
    assert all(4 < a / b < 10 for a, b in pairwise(by_pieces))


def test_runges_function_does_not_swing_out():
    assert interpolate(lambda x: 1 / (1 + 25 * x * x), (-1, 1), 32).error < 2e-3


def test_a_wanted_precision_is_reached_with_as_many_pieces_as_it_takes():
    approximation = PolynomialTensor().interpolate(math.sin, (0, 10), degree=3, precision=1e-5)
    assert approximation.error <= 1e-5
    assert len(approximation.pieces) > 1
    x = torch.linspace(0, 10, 1001, dtype=torch.float64)
    assert (approximation(x) - x.sin()).abs().max() <= 1.01e-5


def test_a_precision_out_of_reach_is_an_error_that_names_what_was_reached():
    with pytest.raises(ValueError, match=r"error of .* Raise the degree"):
        interpolate(math.sqrt, (0, 1), 1, precision=1e-9)


def test_fit_function_has_the_smaller_mean_error():
    x = torch.linspace(-3, 3, 1001, dtype=torch.float64)
    t = 3 * torch.cos(torch.linspace(0, math.pi, 1001, dtype=torch.float64))
    fitted = PolynomialTensor().fit_function(math.tanh, (-3, 3), degree=5)
    through_points = interpolate(math.tanh, (-3, 3), 5)
    assert ((fitted(t) - t.tanh()) ** 2).mean() < ((through_points(t) - t.tanh()) ** 2).mean()
    assert (fitted(x) - x.tanh()).abs().max() <= 1.001 * fitted.error


@pytest.mark.parametrize(
    "function",
    [torch.sin, np.sin, math.sin, lambda x: torch.sin(x), lambda x: x.sin(), torch.nn.Tanhshrink()],
)
def test_functions_of_torch_numpy_and_python_can_be_fitted(function):
    approximation = interpolate(function, (-1, 1), 9)
    x = torch.tensor(0.3, dtype=torch.float64)
    true = function(x) if isinstance(function, torch.nn.Module) else x.sin()
    assert abs(approximation(x) - true) <= approximation.error + 1e-12
    assert approximation.error < 1e-4


def test_piecewise_linear_is_straight_between_exact_points():
    node = PolynomialTensor()
    approximation = node.piecewise_linear_fit(lambda x: x * x, (0, 4), pieces=4)
    x = torch.tensor([0.0, 1.0, 2.0, 2.5, 3.0, 4.0], dtype=torch.float64)
    assert node.piecewise_linear_eval(x).tolist() == pytest.approx([0, 1, 4, 6.5, 9, 16])
    assert approximation.error == pytest.approx(0.25, abs=1e-3)
    chain = node.on(torch.tensor([2.5], requires_grad=True))
    chain.child.piecewise_linear_eval(chain).sum().backward()
    assert plain(chain.grad).item() == pytest.approx(5.0)


def test_piecewise_linear_fits_are_kept_by_name():
    node = PolynomialTensor()
    node.piecewise_linear_fit(lambda x: -x, (0, 1), 1, name="minus", outside=EXTEND)
    node.piecewise_linear_fit(lambda x: x, (0, 1), 1)
    assert node.piecewise_linear_eval(torch.tensor(7.0), name="minus").item() == pytest.approx(-7)
    assert node.piecewise_linear_eval(torch.tensor(7.0)).item() == pytest.approx(1)


def test_extend_lets_the_outer_pieces_go_on():
    relu = join([(-1, 0, lambda x: 0.0), (0, 1, lambda x: x)], 1, outside=EXTEND)
    assert relu(torch.tensor([-50.0, 0.5, 50.0])).tolist() == pytest.approx([0, 0.5, 50])


def test_degree_zero_is_a_step_function_of_the_right_shape():
    steps = interpolate(lambda x: x, (0, 4), 0, pieces=2)
    assert steps(torch.tensor([[0.0, 3.0]])).tolist() == [[1.0, 3.0]]
    assert interpolate(lambda x: x, (0, 4), 0)(torch.zeros(2, 3)).tolist() == [[2.0] * 3] * 2
    assert steps.error == pytest.approx(1.0)


def test_records_cannot_be_changed():
    piece = Piece(0.0, 1.0, (1.0,))
    with pytest.raises(FrozenInstanceError):
        piece.low = 2.0
    with pytest.raises(FrozenInstanceError):
        PolynomialTensor().approximation("exp").error = 0.0


# -- bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"degree": -1}, "0 or more"),
        ({"degree": 2.5}, "whole number"),
        ({"degree": 100}, "more pieces of a lower degree"),
        ({"interval": (1, 1)}, "low < high"),
        ({"interval": (2, 1)}, "low < high"),
        ({"interval": (0, math.inf)}, "not finite"),
        ({"interval": (math.nan, 1)}, "not finite"),
        ({"interval": 3}, "Give its two ends"),
        ({"interval": (0, 1, 2)}, "Give its two ends"),
        ({"pieces": 0}, "at least one"),
        ({"precision": 0}, "largest error you accept"),
        ({"outside": "explode"}, "Choose 'saturate' or 'extend'"),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_a_cure(arguments, sentence):
    good = {"function": math.exp, "interval": (0, 1), "degree": 2}
    with pytest.raises(ValueError, match=sentence):
        PolynomialTensor().interpolate(**{**good, **arguments})


@pytest.mark.parametrize("fit", [interpolate, least_squares])
def test_a_function_that_is_not_finite_is_refused_with_the_place(fit):
    with pytest.raises(ValueError, match=r"log is -inf at 0.*on which the function is finite"):
        fit(torch.log, (0, 1), 3)
    with pytest.raises(ValueError, match="is nan at"):
        fit(lambda x: math.nan if x > 0.9 else x, (0, 1), 1)


@pytest.mark.parametrize(
    ("pieces", "sentence"),
    [
        ([], "at least one"),
        ([(0, 1, math.exp), (2, 3, math.exp)], "ends at 1.0 and the next begins at 2.0"),
        ([(0, 2, math.exp), (1, 3, math.exp)], "ends at 2.0 and the next begins at 1.0"),
        ([(0, 1)], r"\(low, high, function\)"),
        ([(0, 1, "exp")], r"\(low, high, function\)"),
        ([(1, 0, math.exp)], "low < high"),
    ],
)
def test_pieces_that_do_not_adjoin_are_refused_and_nothing_is_kept(pieces, sentence):
    node = PolynomialTensor()
    with pytest.raises(ValueError, match=sentence):
        node.addfunction("mine", 3, pieces)
    assert node.functions == {}


def test_an_unknown_function_is_refused_with_the_known_ones():
    with pytest.raises(
        ValueError, match=r"'gelu'; this tensor knows exp, log, sigmoid, tanh.*addfunction\('gelu'"
    ):
        PolynomialTensor().get_val("gelu", torch.ones(1))


def test_evaluating_before_fitting_says_what_to_call_first():
    with pytest.raises(ValueError, match="piecewise_linear_fit"):
        PolynomialTensor().piecewise_linear_eval(torch.ones(1))


def test_an_error_raised_by_the_function_is_the_users_to_see():
    def broken(x: float) -> float:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        interpolate(broken, (0, 1), 1)
