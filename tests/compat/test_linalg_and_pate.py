"""Item 19: the statistics of 2020 under their names, and PATE's figures in torch's default dtype."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syft.dp import pate
from syft.exceptions import ChainError
from syft.frameworks.torch.dp.pate import perform_analysis_torch, smooth_sens_torch
from syft.frameworks.torch.linalg import DASH, EncryptedLinearRegression, qr
from syft.frameworks.torch.linalg.operations import _ldl, _norm_mpc
from syft.mpc.sharing import AdditiveSharingTensor
from syft.tensors.pointer import PointerTensor

# -- PATE --------------------------------------------------------------------------------------------------


@pytest.fixture(params=[torch.float32, torch.float64])
def default_dtype(request: pytest.FixtureRequest) -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


def test_perform_analysis_torch_returns_the_default_dtype_and_never_less_than_the_bound(
    default_dtype: torch.dtype,
) -> None:
    generator = torch.Generator().manual_seed(0)
    preds = (torch.rand(40, 50, generator=generator) < 0.1).long()
    found = perform_analysis_torch(preds, torch.arange(50), noise_eps=0.1, delta=1e-5, moments=20)
    true = pate.perform_analysis(preds.numpy(), range(50), 0.1, 1e-5, 20)
    for tensor, bound in zip(found, true, strict=True):
        assert tensor.dtype == default_dtype and tensor.dim() == 0
        assert float(bound) <= float(tensor) <= float(bound) * (1 + 2e-7)
    assert copy.deepcopy(found[0]).dtype == default_dtype
    assert "not releasable" in str(found[0])


@given(st.floats(0, 1e30), st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64]))
def test_bounds_are_rounded_up(value: float, dtype: torch.dtype) -> None:
    made = pate._rounded_up(value, dtype)
    assert float(made) >= value
    below = torch.nextafter(made, torch.tensor(-torch.inf, dtype=dtype))
    assert float(below) < value or float(made) == value


def test_smooth_sens_torch_is_the_smooth_sensitivity() -> None:
    counts = torch.tensor([60, 30, 10])
    found = smooth_sens_torch(counts, 0.1, torch.tensor([1, 4]), 0.09)
    true = pate.smoothed_sens([60, 30, 10], 0.1, [1, 4], 0.09)
    assert found.tolist() == pytest.approx(list(true))
    assert list(inspect.signature(smooth_sens_torch).parameters) == ["counts", "noise_eps", "l", "beta"]


# -- matrices ----------------------------------------------------------------------------------------------


@pytest.fixture
def share(make_worker: Any) -> Any:
    alice, bob, provider = map(make_worker, ("alice", "bob", "provider"))

    def shared(tensor: torch.Tensor, digits: int = 6) -> Any:
        return tensor.fix_prec(precision_fractional=digits).share(alice, bob, crypto_provider=provider)

    return shared


def opened(secret: Any) -> torch.Tensor:
    assert isinstance(secret.child.child, AdditiveSharingTensor)
    return secret.get().float_precision()


def definite(size: int, scale: float = 1.0) -> torch.Tensor:
    rows = torch.randn(60, size, dtype=torch.float64, generator=torch.Generator().manual_seed(size)) * scale
    return rows.t() @ rows / 60


@pytest.mark.parametrize(("size", "scale"), [(1, 1.0), (2, 5.0), (4, 0.3), (6, 1.0)])
def test_ldl_of_a_secret_matrix_makes_it_again(share: Any, size: int, scale: float) -> None:
    matrix = definite(size, scale)
    lower, d, inverse = (opened(part) for part in _ldl(share(matrix)))
    assert torch.allclose(lower, torch.tril(lower), atol=1e-6)
    assert torch.allclose(lower.diagonal(), torch.ones(size, dtype=torch.float64), atol=1e-5)
    smallest = torch.linalg.eigvalsh(matrix / matrix.norm()).min()
    bound = float(matrix.norm()) * (size * 2.0**-20 / float(smallest)) + 1e-5
    assert (lower @ torch.diag(d) @ lower.t() - matrix).abs().max() < bound
    assert torch.allclose(d * inverse, torch.ones(size, dtype=torch.float64), atol=1e-3)
    plain = _ldl(matrix)
    assert torch.allclose(plain[0] @ torch.diag(plain[1]) @ plain[0].t(), matrix)
    assert torch.allclose(lower, plain[0], atol=1e-3)


def test_ldl_takes_square_matrices_of_fixed_precision(share: Any) -> None:
    with pytest.raises(ValueError, match="square"):
        _ldl(torch.ones(2, 3))
    with pytest.raises(ValueError, match="square"):
        _ldl(share(torch.ones(2, 3)))
    with pytest.raises(ChainError, match="fixed precision"):
        _ldl(torch.ones(2, 2, dtype=torch.int64).share("alice", "bob", crypto_provider="provider"))


@pytest.mark.parametrize("values", [[3.0, 4.0], [-0.01, 0.02, 0.0], [100.0, -250.0], [7.5]])
def test_norm_mpc_is_the_norm_of_a_secret_vector(share: Any, values: list[float]) -> None:
    vector = torch.tensor(values, dtype=torch.float64)
    found = opened(_norm_mpc(share(vector)))
    assert found.dim() == 0
    assert abs(float(found - vector.norm())) < float(vector.norm()) * 2.0**-20 + 2e-6
    assert torch.equal(_norm_mpc(vector), torch.linalg.vector_norm(vector))


def test_norm_factor_lets_large_vectors_fit(share: Any) -> None:
    vector = torch.tensor([30000.0, -40000.0], dtype=torch.float64)
    found = float(opened(_norm_mpc(share(vector), norm_factor=1000)))
    assert found == pytest.approx(50000, rel=1e-5)
    with pytest.raises(ValueError, match="above 0"):
        _norm_mpc(share(vector), norm_factor=0)


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_qr_of_a_plain_pointer_is_made_where_the_data_is(alice: Any, mode: str) -> None:
    matrix = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    q, r = qr(matrix.send(alice), mode=mode)
    true_q, true_r = torch.linalg.qr(matrix, mode=mode)
    assert isinstance(r.child, PointerTensor)
    assert torch.allclose(r.get(), true_r)
    if mode == "r":
        assert q is None
    else:
        assert torch.allclose(q.get(), true_q)


# -- regressions -------------------------------------------------------------------------------------------


@pytest.fixture
def data(make_worker: Any) -> dict[str, Any]:
    alice, bob, other, provider = map(make_worker, ("alice", "bob", "other", "provider"))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=generator)
    y = x @ torch.tensor([1.0, -2.0]) + 3 + 0.1 * torch.randn(60, generator=generator)
    return {
        "X": [x[:25].send(alice), x[25:].send(bob)],
        "C": [torch.ones(25, 1).send(alice), torch.ones(35, 1).send(bob)],
        "y": [y[:25].send(alice), y[25:].send(bob)],
        "parties": (provider, other),
        "owners": [alice, bob],
    }


def test_p_values_of_a_regression_have_their_older_names(data: dict[str, Any]) -> None:
    model = EncryptedLinearRegression(*data["parties"])
    for name in ("pvalue_coef", "pvalue_intercept"):
        with pytest.raises(RuntimeError, match=r"before fit\(\)"):
            getattr(model, name)
    model.fit(data["X"], data["y"])
    assert torch.equal(model.pvalue_coef, model.p_value_coef)
    assert torch.equal(model.pvalue_intercept, model.p_value_intercept)
    assert EncryptedLinearRegression._get_workers(data["X"]) == data["owners"]
    without = EncryptedLinearRegression(*data["parties"], fit_intercept=False).fit(data["X"], data["y"])
    assert without.pvalue_intercept is None


def test_a_scan_has_variances_and_p_values_under_their_older_names(data: dict[str, Any]) -> None:
    scan = DASH(*data["parties"])
    for name in ("sigma2", "pvalue"):
        with pytest.raises(RuntimeError, match=r"before fit\(\)"):
            getattr(scan, name)
    scan.fit(data["X"], data["C"], data["y"])
    assert torch.equal(scan.sigma2, scan.se**2)
    assert (scan.sigma2 > 0).all()
    assert torch.equal(scan.pvalue, scan.p)
    assert DASH._get_workers(data["C"]) == data["owners"]
