"""`EncryptedLinearRegression` and `DASH`: regressions over the rows of several owners, who keep them.

NOTE [Who learns what]
Each owner computes sums over its own rows, on its own machine, and splits them into shares. The holders are all owners
and `hbc_worker`, so an owner's sums stay hidden as long as that owner itself follows the protocol and `crypto_provider`
colludes with nobody; all parties are assumed to be honest but curious. Nobody sees another's rows or sums. Opened, to
whoever runs the program, are the statistics (coefficients, standard errors, their quotients), and one bit that says
whether the columns were too dependent to tell them apart; a program that goes on after that bit has no statistics. The
numbers of rows and columns are public. Statistics are functions of the data: with few rows they say much about them.

NOTE [Precision]
`precision_fractional` is that of the shared moments (averages of products of two columns): half a unit is lost per owner,
so a column of variance 0.01 has four digits out of six, and moments must stay below 1e18 / 10^precision_fractional. From
there on everything is scaled by secret powers of two and has 24 fractional bits, see NOTE [Equilibration] in
syft.mpc.linalg.scaling. Statistics err by about 1e-6 times their own scale (standard deviation of y over that of the
column), more by the inverse of the smallest eigenvalue of the correlations of the columns. Of noise with less than about
1e-5 of the variance of y, standard errors have no digits; where they come out as 0, p is NaN. Coefficients must be below
about 10^4, the product of a coefficient and the mean of its column below 10^5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from syft.core.chain import Wrapper
from syft.mpc.linalg import moments, student
from syft.mpc.linalg.operations import inverted
from syft.mpc.linalg.scaling import BITS, ONE, HalfExponents, equilibrated, half_digits, number, units
from syft.mpc.methods import opened
from syft.mpc.rules import fixed_approximations as approx
from syft.mpc.rules import fixed_ring as ring
from syft.tensors.pointer import PointerTensor

#: What may be left of 1 - R X for the columns to count as independent.
_GAP = 2.0**-6
#: What covariates must leave of the second moment of a variant for it to be told apart from them.
_LEFT = 2.0**-12


class _Fitted:
    """What both regressions have: who computes, and how many digits the moments have."""

    def __init__(self, crypto_provider: Any, hbc_worker: Any, precision_fractional: int = 6) -> None:
        self.crypto_provider, self.hbc_worker = crypto_provider, hbc_worker
        self.precision_fractional = precision_fractional
        self.degrees: int | None = None

    def _begin(self, rows: list[moments.Rows], estimated: int) -> tuple[moments.Sharing, int]:
        count = sum(r.count for r in rows)
        if count <= estimated:
            raise ValueError(
                f"{type(self).__name__}.fit() has {count} rows to estimate {estimated} coefficients from. It takes more "
                "rows than that."
            )
        self.degrees = count - estimated
        sharing = moments.Sharing(rows, self.hbc_worker, self.crypto_provider, self.precision_fractional)
        return sharing, count

    @staticmethod
    def _get_workers(ptrs: Sequence[Any]) -> list[Any]:
        """The workers that pointers point to, each once."""
        return list({pointer.location.id: pointer.location for pointer in ptrs}.values())

    def _check_fitted(self, asked: str) -> None:
        if self.degrees is None:
            raise RuntimeError(
                f"{type(self).__name__}.{asked} was asked for before fit(). Call fit(...) first."
            )


class EncryptedLinearRegression(_Fitted):
    """Ordinary least squares over data of several owners. See NOTE [Who learns what] and NOTE [Precision].

    crypto_provider       deals randomness; holds no share and no data
    hbc_worker            an honest but curious worker that holds shares beside the owners
    precision_fractional  decimal digits of the shared moments
    fit_intercept         whether a constant is estimated, too

    After `fit`: `coef`, `se_coef`, `p_value_coef`, `intercept`, `se_intercept`, `p_value_intercept` (the latter three
    None without an intercept), as float64 tensors. `pvalue_coef` and `pvalue_intercept` are the same under older names.
    """

    coef: torch.Tensor
    se_coef: torch.Tensor
    p_value_coef: torch.Tensor
    intercept: torch.Tensor | None = None
    se_intercept: torch.Tensor | None = None
    p_value_intercept: torch.Tensor | None = None

    def __init__(
        self, crypto_provider: Any, hbc_worker: Any, precision_fractional: int = 6, fit_intercept: bool = True
    ) -> None:
        super().__init__(crypto_provider, hbc_worker, precision_fractional)
        self.fit_intercept = fit_intercept

    def fit(self, X_ptrs: Sequence[Any], y_ptrs: Sequence[Any]) -> EncryptedLinearRegression:
        """Estimate from lists of pointers, one per owner: X of shape (rows, columns), y of (rows,) or (rows, 1)."""
        rows = self._check_ptrs(X_ptrs, y_ptrs)
        width = rows[0].tables[0].shape[1]
        sharing, count = self._begin(rows, width + self.fit_intercept)
        means = None
        if self.fit_intercept:
            spread, means = moments.central_moments(rows, sharing, count)
        else:
            spread = moments.second_moments(rows, sharing, count)

        halves = HalfExponents.of(_diagonal(units(spread)))
        gains = halves.gains
        joint = equilibrated(units(spread), ring.unsqueezed(gains, 1), ring.unsqueezed(gains, 0))
        matrix, target = joint[:width, :width], joint[:width, width]
        inverse = inverted(matrix)
        _check_independent(matrix, inverse, "columns of X")
        scaled = inverse @ target
        residual = joint[width, width] - scaled @ (2 * target - matrix @ scaled)
        variance = residual * torch.diagonal(inverse)  # times 1 / degrees
        root = variance.rsqrt()
        ratio = _ratio(halves.power(0, 1)[width : width + 1], gains[:width])
        degrees = float(self.degrees or 1)
        opened = [
            scaled * ratio,
            variance * root * (1 / math.sqrt(degrees)) * ratio,
            scaled * root * math.sqrt(degrees),
        ]
        if means is not None:
            constants = self._constant(means, opened[0], gains, halves, inverse, residual, count)
            made = _opened(torch.cat([torch.stack(opened).flatten(), constants]))
            self.intercept, self.se_intercept = made[-2], made[-1]
            t = self.intercept / self.se_intercept
            self.p_value_intercept = student.two_sided(_known(t, self.se_intercept), int(degrees))
            made = made[:-2].view(3, width)
        else:
            made = _opened(torch.stack(opened))
        self.coef, self.se_coef = made[0], made[1]
        self.p_value_coef = student.two_sided(_known(made[2], made[1]), int(degrees))
        return self

    def _check_ptrs(self, X_ptrs: Sequence[Any], y_ptrs: Sequence[Any]) -> list[moments.Rows]:
        """The owners' rows; !! for lists that do not fit together."""
        rows = moments.rows_of("EncryptedLinearRegression.fit()", X_ptrs=X_ptrs, y_ptrs=y_ptrs)
        _check_target(rows, "y_ptrs")
        return rows

    def _constant(
        self,
        means: Any,
        coef: Any,
        gains: Any,
        halves: HalfExponents,
        inverse: Any,
        residual: Any,
        count: int,
    ) -> Any:
        """The intercept and its standard error: mean(y) - mean(x) b, and s^2 (1 / N + mean(x) S^-1 mean(x) / N)."""
        width, scale = coef.shape[0], means.child.scale
        mean = units(means)
        explained = ring.summed(ring.times(mean[:width], units(coef)), [0], True)
        intercept = number(ring.truncate(ring.minus(ring.times(mean[width:], ONE), explained), scale))
        # mean / 2^h in the units of the equilibrated columns, over N^(1/4) so that the quadratic form stays small.
        shrunk = ring.truncate(ring.times(mean[:width], gains[:width]), 1 << 21)
        factor = 2.0 ** (BITS - 9) / math.sqrt(scale * math.sqrt(count))
        centre = number(approx.rescaled(shrunk, factor, 2.0**41))
        variance = residual * (centre @ (inverse @ centre) + 1 / math.sqrt(count))
        deviation = variance * variance.rsqrt() * math.sqrt(math.sqrt(count) / float(self.degrees or 1))
        digits = half_digits(scale)
        unscaled = number(halves.power(BITS - digits, 1)[width:]) * (2.0**digits / math.sqrt(scale))
        return torch.cat([intercept, deviation * unscaled])

    @property
    def pvalue_coef(self) -> torch.Tensor:
        """`p_value_coef`, under the name that older programs use."""
        self._check_fitted("pvalue_coef")
        return self.p_value_coef

    @property
    def pvalue_intercept(self) -> torch.Tensor | None:
        """`p_value_intercept`; None without an intercept."""
        self._check_fitted("pvalue_intercept")
        return self.p_value_intercept

    def predict(self, X: Any) -> Any:
        """X b + intercept: for a plain tensor here, for a pointer there (a pointer), for a list of either, each.

        A worker that predicts is sent the coefficients.
        """
        self._check_fitted("predict()")
        if isinstance(X, (list, tuple)):
            return [self.predict(part) for part in X]
        coef = self.coef.to(X.dtype)
        constant = 0.0 if self.intercept is None else float(self.intercept)
        if type(X) is Wrapper and isinstance(X.child, PointerTensor):
            coef = coef.send(X.location)  # type: ignore[attr-defined]
        return X @ coef + constant

    def summarize(self) -> None:
        """Print a table of coefficients, standard errors and p-values."""
        self._check_fitted("summarize()")
        lines = [f"{'':>12} {'coef':>14} {'std. error':>14} {'p-value':>12}"]
        if self.intercept is not None:
            lines.append(_line("intercept", self.intercept, self.se_intercept, self.p_value_intercept))
        for i, values in enumerate(zip(self.coef, self.se_coef, self.p_value_coef, strict=True)):
            lines.append(_line(f"x{i + 1}", *values))
        print("\n".join(lines))


class DASH(_Fitted):
    """A distributed association scan: y = b_m x_m + C c + noise, once for every column x_m of X.

    See NOTE [Who learns what] and NOTE [Precision]. The covariates C are common to all regressions; a constant is a
    column of ones in C, if it is wanted. What they explain is taken off once, on sums, so that a variant costs one column
    of a small matrix (after Bloom, "Secure multi-party linear regression at plaintext speed", 2019).

    After `fit`: `coef`, `se`, `p`, one entry per column of X, as float64 tensors. A variant of which the covariates
    leave less than 2^-12 of its second moment (one that does not vary, say) has a standard error of 0 and p = NaN.
    `sigma2` are the squares of `se`, `pvalue` is `p`.
    """

    coef: torch.Tensor
    se: torch.Tensor
    p: torch.Tensor

    def fit(self, X_ptrs: Sequence[Any], C_ptrs: Sequence[Any], y_ptrs: Sequence[Any]) -> DASH:
        """Estimate from lists of pointers, one per owner: variants X, covariates C, and y, with the same rows."""
        rows = self._check_ptrs(X_ptrs, C_ptrs, y_ptrs)
        width = rows[0].tables[1].shape[1]
        sharing, count = self._begin(rows, width + 1)
        others = [moments.Rows(r.tables[1:]) for r in rows]
        squares = units(moments.second_moments(others, sharing, count))
        crossed = units(
            sharing.total(rows, lambda r: torch.cat(list(r.tables[1:]), 1).t() @ r.tables[0] / count)
        )
        own = units(sharing.total(rows, lambda r: (r.tables[0] * r.tables[0]).sum(0) / count))

        halves, variant_halves = HalfExponents.of(_diagonal(squares)), HalfExponents.of(own)
        gains, variant_gains = halves.gains, variant_halves.gains
        joint = equilibrated(squares, ring.unsqueezed(gains, 1), ring.unsqueezed(gains, 0))
        cross = equilibrated(crossed, ring.unsqueezed(gains, 1), ring.unsqueezed(variant_gains, 0))
        xx = equilibrated(own, variant_gains, variant_gains)

        # All three are what least squares on C leaves over. Written so that errors of the projections count squared.
        matrix, target, to_x = joint[:width, :width], joint[:width, width], cross[:width]
        inverse = inverted(matrix)
        _check_independent(matrix, inverse, "columns of C")
        y_on_c, x_on_c = inverse @ target, inverse @ to_x
        missed = target - matrix @ y_on_c
        yy = joint[width, width] - y_on_c @ (target + missed)
        xy = cross[width] - to_x.t() @ y_on_c - x_on_c.t() @ missed
        xx = xx - (x_on_c * (2 * to_x - matrix @ x_on_c)).sum(0)

        degrees = float(self.degrees or 1)
        guess = xx.reciprocal()
        over_xx = guess * (2 - xx * guess) * (xx > _LEFT)
        scaled = xy * over_xx
        variance = (yy - scaled * xy) * over_xx  # times 1 / degrees
        root = variance.rsqrt()
        ratio = _ratio(halves.power(0, 1)[width : width + 1], variant_gains)
        made = _opened(
            torch.stack(
                [
                    scaled * ratio,
                    variance * root * (1 / math.sqrt(degrees)) * ratio,
                    scaled * root * math.sqrt(degrees),
                ]
            )
        )
        self.coef, self.se = made[0], made[1]
        self.p = student.two_sided(_known(made[2], self.se), int(degrees))
        return self

    def _check_ptrs(
        self, X_ptrs: Sequence[Any], C_ptrs: Sequence[Any], y_ptrs: Sequence[Any]
    ) -> list[moments.Rows]:
        """The owners' rows; !! for lists that do not fit together."""
        rows = moments.rows_of("DASH.fit()", X_ptrs=X_ptrs, C_ptrs=C_ptrs, y_ptrs=y_ptrs)
        _check_target(rows, "y_ptrs")
        return rows

    @property
    def sigma2(self) -> torch.Tensor:
        """The variances of the coefficients: the squares of `se`."""
        self._check_fitted("sigma2")
        return self.se * self.se

    @property
    def pvalue(self) -> torch.Tensor:
        """`p`, under the name that older programs use."""
        self._check_fitted("pvalue")
        return self.p

    def get_coeff(self) -> torch.Tensor:
        """`coef`, under the name that older programs use."""
        self._check_fitted("get_coeff()")
        return self.coef

    def get_standard_errors(self) -> torch.Tensor:
        """`se`."""
        self._check_fitted("get_standard_errors()")
        return self.se

    def get_p_values(self) -> torch.Tensor:
        """`p`."""
        self._check_fitted("get_p_values()")
        return self.p


def _check_target(rows: list[moments.Rows], name: str) -> None:
    width = rows[0].tables[-1].shape[1]
    if width != 1:
        raise ValueError(f"{name} has {width} columns; one target at a time is estimated.")


def _diagonal(child: Any) -> Any:
    return child.diagonal()


def _check_independent(matrix: Any, inverse: Any, what: str) -> None:
    """Open one bit: whether the inverse is one."""
    gap = (matrix @ inverse - torch.eye(matrix.shape[0], dtype=torch.float64)).abs()
    if bool(_opened((gap > _GAP).any())):
        raise ValueError(
            f"The {what} are too dependent on each other to be told apart with {BITS} bits: one of them is constant, "
            "or nearly a combination of others. Leave it out, or centre columns whose mean is far from 0."
        )


def _ratio(power: Any, gains: Any) -> Any:
    """2^(h_y - h_j), exactly."""
    return number(ring.truncate(ring.times(power, gains), 1 << (30 - BITS)))


def _known(t: torch.Tensor, error: torch.Tensor) -> torch.Tensor:
    """NaN where the standard error is 0: what it is was lost in rounding."""
    return torch.where(error == 0, torch.nan, t)


def _opened(secret: Any) -> torch.Tensor:
    made: torch.Tensor = opened(secret).float_precision()
    return made


def _line(name: str, coef: Any, error: Any, p: Any) -> str:
    return f"{name:>12} {float(coef):>14.6f} {float(error):>14.6f} {float(p):>12.4g}"
