"""Random numbers. They come from a generator of their own, so that the next number drawn tells nothing of data."""

from __future__ import annotations

from syft.operations.argument_checks import check_deviation, check_dropout, check_range, check_same_shapes
from syft.operations.row import copies, rows
from syft.operations.spec_checks import check_noise

_FAMILY = "random"

ROWS = [
    *rows(
        _FAMILY,
        """bernoulli bernoulli.p normal.float_float
        normal_functional rand rand_like randn randn_like randperm multinomial poisson""",
        extra=copies,
    ),
    *rows(
        _FAMILY,
        "normal.Tensor_float normal.float_Tensor normal.Tensor_Tensor",
        check=check_deviation,
        extra=copies,
    ),
    *rows(
        _FAMILY,
        """randint randint.low randint_like randint_like.low_dtype""",
        check=check_range,
    ),
    *rows(
        _FAMILY,
        """bernoulli_.float bernoulli_.Tensor normal_ uniform_ exponential_ cauchy_ geometric_ log_normal_""",
    ),
    *rows(_FAMILY, "random_ random_.to random_.from", check=check_range),
    # NB: they draw until a number is accepted, and of a NaN none ever is.
    *rows(_FAMILY, "_standard_gamma _sample_dirichlet binomial", way="checked", check=check_same_shapes),
    *rows(_FAMILY, "_standard_gamma_grad _dirichlet_grad", check=check_same_shapes),
    *rows(_FAMILY, "native_dropout", check=check_dropout, extra=copies),
    *rows(_FAMILY, "rrelu_with_noise rrelu_with_noise_", check=check_noise, extra=copies),
]
