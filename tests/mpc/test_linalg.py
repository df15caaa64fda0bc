"""Linear algebra on secrets: right against numpy, closed but for the statistics, and clear about what it cannot do."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from syft.exceptions import ChainError, TensorsNotCollocatedException
from syft.frameworks.torch.linalg import DASH, EncryptedLinearRegression, inv_sym, qr
from syft.identity.tokens import TokenAuthority
from syft.mpc.linalg.student import two_sided
from syft.mpc.sharing import AdditiveSharingTensor
from syft.tensors.pointer import PointerTensor
from syft.workers.network.client_worker import NetworkClientWorker
from syft.workers.network.server_worker import NetworkServerWorker

DIGITS = 6


class Parties:
    """Two owners of data, a worker beside them, and a provider."""

    def __init__(self, make_worker: Any) -> None:
        self.alice, self.bob, self.other, self.provider = map(
            make_worker, ("alice", "bob", "other", "provider")
        )

    def share(self, tensor: torch.Tensor) -> Any:
        fixed = tensor.fix_precision(precision_fractional=DIGITS)
        return fixed.share(self.alice, self.bob, crypto_provider=self.provider)

    def split(self, tensor: torch.Tensor, first: int) -> list[Any]:
        return [tensor[:first].send(self.alice), tensor[first:].send(self.bob)]

    def objects(self) -> list[int]:
        return [len(w._objects) for w in (self.alice, self.bob, self.other, self.provider)]


@pytest.fixture
def parties(make_worker: Any) -> Parties:
    torch.manual_seed(0)
    return Parties(make_worker)


def opened(secret: Any) -> torch.Tensor:
    return secret.get().float_precision()


def covariance(size: int, spread: float = 1.0) -> torch.Tensor:
    rows = torch.randn(50 + 5 * size, size, dtype=torch.float64) * torch.logspace(-0.5, 0.5, size) * spread
    return rows.t() @ rows / len(rows)


# -- inv_sym -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "spread"), [(1, 1.0), (2, 1.0), (5, 1.0), (9, 1.0), (4, 20.0)])
def test_the_inverse_of_a_symmetric_matrix_is_right(parties: Parties, size: int, spread: float) -> None:
    matrix = covariance(size, spread)
    found, true = opened(inv_sym(parties.share(matrix))), torch.linalg.inv(matrix)
    assert found.dtype == torch.float64
    assert (found - true).abs().max() < 1e-5 * true.abs().max() + 2e-6
    assert parties.objects() == [0, 0, 0, 0]


def test_columns_in_different_units_cost_no_digits(parties: Parties) -> None:
    correlations = torch.tensor([[1.0, 0.7, 0.2], [0.7, 1.0, -0.3], [0.2, -0.3, 1.0]], dtype=torch.float64)
    units = torch.tensor([0.5, 1.0, 300.0], dtype=torch.float64)
    matrix = correlations * units * units.unsqueeze(1)
    found, true = opened(inv_sym(parties.share(matrix))), torch.linalg.inv(matrix)
    scaled = (found - true) * units * units.unsqueeze(1)
    assert scaled[:2, :2].abs().max() < 2e-5
    assert (found - true).abs().max() < 2e-5


def test_a_nearly_singular_matrix_loses_no_more_than_its_condition(parties: Parties) -> None:
    near = 0.999
    matrix = torch.tensor([[1.0, near], [near, 1.0]], dtype=torch.float64)
    found, true = opened(inv_sym(parties.share(matrix))), torch.linalg.inv(matrix)
    assert (found - true).abs().max() / true.abs().max() < 2e-3


def test_inv_sym_takes_fixed_precision_that_is_not_shared_and_plain_tensors(parties: Parties) -> None:
    matrix = covariance(3)
    true = torch.linalg.inv(matrix)
    fixed = inv_sym(matrix.fix_precision(precision_fractional=DIGITS)).float_precision()
    assert (fixed - true).abs().max() < 1e-5 * true.abs().max() + 2e-6
    assert torch.equal(inv_sym(matrix), true)


def test_inv_sym_opens_nothing(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = parties.share(covariance(3))
    monkeypatch.setattr(AdditiveSharingTensor, "get", None)
    monkeypatch.setattr(AdditiveSharingTensor, "reconstruct", None)
    monkeypatch.setattr(PointerTensor, "get", None)
    inv_sym(secret)
    qr(secret)


def test_inv_sym_refuses_what_is_no_matrix_of_reals(parties: Parties) -> None:
    with pytest.raises(ValueError, match=r"square matrix; one of shape \(2, 3\)"):
        inv_sym(parties.share(torch.ones(2, 3)))
    with pytest.raises(ValueError, match=r"takes a matrix; a tensor of shape \(3,\)"):
        inv_sym(parties.share(torch.ones(3)))
    integers = torch.eye(2).long().share(parties.alice, parties.bob, crypto_provider=parties.provider)
    with pytest.raises(ChainError, match="takes a matrix in fixed precision"):
        inv_sym(integers)
    with pytest.raises(ChainError, match="PointerTensor"):
        inv_sym(torch.eye(2).send(parties.alice))


# -- qr ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize(("rows", "columns"), [(5, 3), (4, 4), (2, 4), (1, 2), (3, 1)])
def test_qr_is_that_of_torch(parties: Parties, rows: int, columns: int, mode: str) -> None:
    matrix = torch.randn(rows, columns, dtype=torch.float64)
    q, r = qr(parties.share(matrix), mode=mode)
    true_q, true_r = torch.linalg.qr(matrix, mode=mode)
    r = opened(r)
    assert r.shape == true_r.shape
    assert (r - true_r).abs().max() < 5e-5
    assert torch.equal(r, torch.triu(r))
    if mode == "r":
        assert q is None
        return
    q = opened(q)
    assert (q - true_q).abs().max() < 5e-5
    assert (q.t() @ q - torch.eye(q.shape[1])).abs().max() < 2e-5


def test_qr_of_large_entries_takes_a_norm_factor(parties: Parties) -> None:
    matrix = torch.randn(6, 3, dtype=torch.float64) * 5000
    q, r = qr(parties.share(matrix), norm_factor=1000.0)
    q, r = opened(q), opened(r)
    assert (q @ r - matrix).abs().max() < 1e-5 * matrix.norm()


def test_qr_of_dependent_columns_still_multiplies_back(parties: Parties) -> None:
    column = torch.tensor([[1.0], [2.0], [-1.0]], dtype=torch.float64)
    matrix = torch.cat([column, torch.zeros(3, 1, dtype=torch.float64), 2 * column], 1)
    q, r = qr(parties.share(matrix))
    assert (opened(q) @ opened(r) - matrix).abs().max() < 2e-5


def test_qr_refuses_other_modes_and_factors(parties: Parties) -> None:
    with pytest.raises(ValueError, match="mode='raw'"):
        qr(torch.eye(2), mode="raw")
    with pytest.raises(ValueError, match="norm_factor=-1"):
        qr(torch.eye(2), norm_factor=-1)


# -- regressions -------------------------------------------------------------------------------------------


def least_squares(x: Any, y: Any) -> tuple[Any, Any, Any]:
    """Coefficients, standard errors and p-values by the closed form."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    inverse = np.linalg.inv(x.T @ x)
    coef = inverse @ x.T @ y
    degrees = x.shape[0] - x.shape[1]
    error = np.sqrt(((y - x @ coef) ** 2).sum() / degrees * np.diag(inverse))
    return coef, error, 2 * stats.t.sf(np.abs(coef / error), degrees)


def data(rows: int = 120, scale: float = 1.0, offset: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(rows, 3) * scale + offset
    y = x @ torch.tensor([0.5, -1.0, 0.0]) / scale + 2.0 + torch.randn(rows)
    return x, y


def with_ones(x: torch.Tensor) -> Any:
    return np.c_[np.ones(len(x)), x.double().numpy()]


@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (0.2, 5.0), (50.0, -300.0)])
def test_regression_agrees_with_the_closed_form(parties: Parties, scale: float, offset: float) -> None:
    x, y = data(scale=scale, offset=offset)
    model = EncryptedLinearRegression(parties.provider, parties.other)
    assert model.fit(parties.split(x, 40), parties.split(y, 40)) is model
    coef, error, p = least_squares(with_ones(x), y)
    # NB: the moments have six digits, so those of columns with a variance of 0.04 have five.
    assert np.abs(model.coef.numpy() - coef[1:]).max() < 1e-3 * error[1:].min()
    assert np.allclose(model.se_coef, error[1:], rtol=1e-3, atol=1e-6)
    assert np.allclose(model.p_value_coef, p[1:], rtol=1e-2, atol=1e-3)
    assert abs(float(model.intercept) - coef[0]) < 1e-3 * error[0]
    assert np.allclose(model.se_intercept, error[0], rtol=1e-3)
    assert np.allclose(model.p_value_intercept, p[0], rtol=1e-2, atol=1e-4)
    assert parties.objects() == [0, 0, 0, 0]


def test_regression_without_an_intercept_and_with_a_single_owner(parties: Parties) -> None:
    x, y = data()
    model = EncryptedLinearRegression(parties.provider, parties.other, fit_intercept=False)
    model.fit([x.send(parties.alice)], [y.unsqueeze(1).send(parties.alice)])
    coef, error, p = least_squares(x, y)
    assert np.allclose(model.coef, coef, atol=1e-4)
    assert np.allclose(model.se_coef, error, rtol=1e-3)
    assert np.allclose(model.p_value_coef, p, atol=1e-4)
    assert model.intercept is model.se_intercept is model.p_value_intercept is None


def test_owners_whose_data_have_different_means_are_one_population(parties: Parties) -> None:
    x, y = data()
    x, y = torch.cat([x, x[:60] + 20]), torch.cat([y, y[:60] - 7])
    model = EncryptedLinearRegression(parties.provider, parties.other)
    model.fit(parties.split(x, 120), parties.split(y, 120))
    coef, error, _ = least_squares(with_ones(x), y)
    assert np.allclose(model.coef, coef[1:], rtol=1e-3, atol=1e-4)
    assert np.allclose(model.se_coef, error[1:], rtol=1e-3)
    assert np.allclose(model.intercept, coef[0], atol=1e-3)


def test_only_one_bit_and_the_statistics_are_opened(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = data()
    xs, ys = parties.split(x, 40), parties.split(y, 40)
    shapes = []
    original = AdditiveSharingTensor.get

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        shapes.append(tuple(self.shape))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(AdditiveSharingTensor, "get", noted)
    monkeypatch.setattr(AdditiveSharingTensor, "reconstruct", None)
    EncryptedLinearRegression(parties.provider, parties.other).fit(xs, ys)
    assert shapes == [(), (3 * 3 + 2,)]
    shapes.clear()
    c = torch.ones(120, 1)
    DASH(parties.provider, parties.other).fit(xs, parties.split(c, 40), ys)
    assert shapes == [(), (3, 3)]


def test_the_client_fetches_nothing_from_an_owner_but_shares_of_results(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = data()
    xs, ys = parties.split(x, 40), parties.split(y, 40)
    fetched = []

    def noting(original: Any) -> Any:
        def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
            fetched.append((self.dtype, tuple(self.shape)))
            return original(self, *args, **kwargs)

        return noted

    for name in ("get", "get_share"):
        monkeypatch.setattr(PointerTensor, name, noting(getattr(PointerTensor, name)))
    EncryptedLinearRegression(parties.provider, parties.other).fit(xs, ys)
    holders = 3
    assert fetched == [(torch.int64, ())] * holders + [(torch.int64, (11,))] * holders


def test_prediction_happens_where_the_data_is(parties: Parties, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = data()
    model = EncryptedLinearRegression(parties.provider, parties.other)
    with pytest.raises(RuntimeError, match=r"summarize\(\) was asked for before fit"):
        model.summarize()
    with pytest.raises(RuntimeError, match=r"predict\(\) was asked for before fit"):
        model.predict(x)
    model.fit(parties.split(x, 40), parties.split(y, 40))
    here = model.predict(x[:5])
    assert torch.allclose(here.double(), x[:5].double() @ model.coef + model.intercept, atol=1e-5)
    there, both = model.predict(x[:5].send(parties.alice)), model.predict([x[:5], x[5:7]])
    assert there.location is parties.alice
    assert torch.allclose(there.get(), here)
    assert torch.allclose(both[0], here)
    model.summarize()
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said] == ["coef", "intercept", "x1", "x2", "x3"]
    assert said[2].split()[1] == f"{float(model.coef[0]):.6f}"


def test_columns_that_depend_on_each_other_are_refused(parties: Parties) -> None:
    x, y = data()
    sums = torch.cat([x, x[:, :1] + x[:, 1:2]], 1)
    constant = torch.cat([x, torch.ones(120, 1)], 1)
    model = EncryptedLinearRegression(parties.provider, parties.other)
    for table in (sums, constant):
        with pytest.raises(ValueError, match="columns of X are too dependent"):
            model.fit(parties.split(table, 40), parties.split(y, 40))
    with pytest.raises(ValueError, match="columns of C are too dependent"):
        DASH(parties.provider, parties.other).fit(
            parties.split(x, 40), parties.split(sums, 40), parties.split(y, 40)
        )


def test_a_fit_without_noise_has_unknown_p_values_rather_than_wrong_ones(parties: Parties) -> None:
    x = torch.randn(60, 2, dtype=torch.float64)
    y = x @ torch.tensor([1.0, -2.0], dtype=torch.float64)
    model = EncryptedLinearRegression(parties.provider, parties.other)
    model.fit(parties.split(x, 20), parties.split(y, 20))
    assert np.allclose(model.coef, [1.0, -2.0], atol=1e-4)
    assert bool((model.p_value_coef.isnan() | (model.p_value_coef < 1e-6)).all())
    assert float(model.se_coef.max()) < 1e-3


def test_a_scan_agrees_with_one_regression_per_variant(parties: Parties) -> None:
    variants = torch.randint(0, 3, (150, 12)).float()
    variants[:, 4] = 1.0  # does not vary
    covariates = torch.cat([torch.ones(150, 1), torch.randn(150, 2)], 1)
    y = variants[:, 0] * 0.5 + covariates @ torch.tensor([1.0, 0.3, -0.2]) + torch.randn(150)
    scan = DASH(parties.provider, parties.other)
    scan.fit(parties.split(variants, 60), parties.split(covariates, 60), parties.split(y, 60))
    for m in range(12):
        if m == 4:
            continue
        coef, error, p = least_squares(np.c_[variants[:, m], covariates], y)
        assert scan.coef[m] == pytest.approx(coef[0], abs=1e-5)
        assert scan.se[m] == pytest.approx(error[0], rel=1e-4)
        assert scan.p[m] == pytest.approx(p[0], abs=1e-4)
    assert scan.coef[4] == scan.se[4] == 0
    assert scan.p[4].isnan()
    assert torch.equal(scan.get_coeff(), scan.coef)
    assert torch.equal(scan.get_standard_errors(), scan.se)
    assert scan.get_p_values() is scan.p
    assert parties.objects() == [0, 0, 0, 0]


def test_lists_that_do_not_fit_together_are_refused(parties: Parties) -> None:
    x, y = data()
    xs, ys = parties.split(x, 40), parties.split(y, 40)
    fit = EncryptedLinearRegression(parties.provider, parties.other).fit
    with pytest.raises(TypeError, match=r"X_ptrs as a list of pointers.*a Wrapper was found"):
        fit(xs[0], ys)
    with pytest.raises(TypeError, match="an empty one was found"):
        fit([], [])
    with pytest.raises(TypeError, match="takes pointers in X_ptrs"):
        fit([x], ys[:1])
    with pytest.raises(ValueError, match="2 in X_ptrs, 1 in y_ptrs"):
        fit(xs, ys[:1])
    with pytest.raises(TensorsNotCollocatedException):
        fit(xs, ys[::-1])
    with pytest.raises(ValueError, match="'alice', X_ptrs has 40 rows and y_ptrs has 39"):
        fit(xs[:1], [y[:39].send(parties.alice)])
    with pytest.raises(ValueError, match="different numbers of columns in X_ptrs"):
        fit([xs[0], x[40:, :2].send(parties.bob)], ys)
    with pytest.raises(ValueError, match="y_ptrs has 3 columns"):
        fit(xs, xs)
    with pytest.raises(ValueError, match="4 rows to estimate 4 coefficients"):
        fit([x[:4].send(parties.alice)], [y[:4].send(parties.alice)])
    with pytest.raises(ValueError, match="shape"):
        fit([torch.ones(3, 2, 2).send(parties.alice)], ys[:1])
    with pytest.raises(RuntimeError, match=r"get_coeff\(\) was asked for before fit"):
        DASH(parties.provider, parties.other).get_coeff()


@pytest.mark.parametrize("degrees", [1, 2, 7, 100, 50_000])
def test_tails_are_those_of_student(degrees: int) -> None:
    t = torch.tensor([0.0, 1e-4, 0.3, -1.0, 2.5, 8.0, float("inf"), float("nan")], dtype=torch.float64)
    true = 2 * stats.t.sf(t.abs().numpy(), degrees)
    assert np.allclose(two_sided(t, degrees), true, rtol=1e-8, equal_nan=True)


@pytest.mark.network
def test_a_regression_among_workers_on_a_network(hook: Any, me: Any, tmp_path: Path) -> None:
    # NB: with tokens, because shares that owners send each other belong to a user whom all of them know.
    authority = TokenAuthority.create(tmp_path / "keys")
    names = ("alice", "bob", "other", "provider")
    with contextlib.ExitStack() as closing:
        servers = {
            name: closing.enter_context(
                NetworkServerWorker(hook, "tcp://127.0.0.1:0", id=name, tokens=authority.verifier(name))
            )
            for name in names
        }

        def connect(name: str, user: str) -> Any:
            link = NetworkClientWorker(
                hook, servers[name].address, name, auto_add=False, token=authority.issue(user, 600)
            )
            return closing.enter_context(link)

        for one in names:
            for another in names:
                if one != another:
                    servers[one].add_worker(connect(another, one))
        alice, bob, other, provider = (connect(name, "ann") for name in names)
        torch.manual_seed(0)
        x, y = data(60)
        model = EncryptedLinearRegression(provider, other)
        model.fit([x[:20].send(alice), x[20:].send(bob)], [y[:20].send(alice), y[20:].send(bob)])
        coef, error, _ = least_squares(with_ones(x), y)
        assert np.allclose(model.coef, coef[1:], atol=1e-4)
        assert np.allclose(model.se_coef, error[1:], rtol=1e-3)
