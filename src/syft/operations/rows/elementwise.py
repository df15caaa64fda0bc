"""Operations that work element by element, with their backward passes."""

from __future__ import annotations

from syft.operations.row import ELEMENTWISE, ELEMENTWISE_ON_FLOATS, copies_with_gaps, rows
from syft.operations.spec_checks import (
    check_degree,
    check_digits,
    check_floating,
    check_noise,
    check_one_type,
    check_one_type_and_shape,
    check_rounding,
)

_FAMILY = "elementwise"

ROWS = [
    # One argument.
    *rows(
        _FAMILY,
        """abs acos acosh angle asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1
        floor frac i0 isinf isnan isneginf isposinf lgamma log log10 log1p log2 logical_not nan_to_num neg
        rad2deg reciprocal round rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt tan tanh trunc bitwise_not
        special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_entr special_erfcx special_i0e
        special_i1 special_i1e special_log_ndtr special_modified_bessel_i0 special_modified_bessel_i1
        special_modified_bessel_k0 special_modified_bessel_k1 special_ndtri special_scaled_modified_bessel_k0
        special_scaled_modified_bessel_k1 special_spherical_bessel_j0 special_airy_ai _conj_physical
        clamp clamp_max clamp_min threshold pow.Scalar pow.Tensor_Scalar""",
        in_place=True,
        direct=True,
        row_wise=ELEMENTWISE,
    ),
    *rows(_FAMILY, "round.decimals", in_place=True, check=check_digits, row_wise=ELEMENTWISE),
    *rows(_FAMILY, "logit", row_wise=ELEMENTWISE),
    *rows(_FAMILY, "logit_", check=check_floating),
    # Activations.
    *rows(
        _FAMILY,
        """celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu mish relu silu softplus
        softshrink""",
        in_place=True,
        direct=True,
        row_wise=ELEMENTWISE,
    ),
    # Two or three arguments that are broadcast.
    *rows(
        _FAMILY,
        """add.Tensor add.Scalar sub.Tensor sub.Scalar mul.Tensor mul.Scalar rsub.Tensor rsub.Scalar addcdiv addcmul
        atan2 bitwise_and.Tensor bitwise_and.Scalar bitwise_or.Tensor bitwise_or.Scalar bitwise_xor.Tensor
        bitwise_xor.Scalar clamp.Tensor clamp_max.Tensor clamp_min.Tensor copysign.Tensor copysign.Scalar
        eq.Tensor eq.Scalar ne.Tensor ne.Scalar ge.Tensor ge.Scalar gt.Tensor gt.Scalar le.Tensor le.Scalar lt.Tensor
        lt.Scalar fmax fmin heaviside hypot lerp.Tensor lerp.Scalar logaddexp logaddexp2 logical_and logical_or
        logical_xor maximum minimum nextafter where.self xlogy.Tensor
        xlogy.Scalar_Self xlogy.Scalar_Other special_xlog1py special_xlog1py.other_scalar special_xlog1py.self_scalar
        ldexp.Tensor igamma igammac div.Tensor div.Scalar pow.Tensor_Tensor bitwise_left_shift.Tensor
        bitwise_left_shift.Tensor_Scalar bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar masked_fill.Scalar
        masked_fill.Tensor complex polar frexp.Tensor""",
        in_place=True,
        direct=True,
        row_wise=ELEMENTWISE,
    ),
    # NB: the processor ends the process where it divides the least of all integers by -1.
    *rows(
        _FAMILY,
        """div.Tensor_mode div.Scalar_mode floor_divide floor_divide.Scalar fmod.Tensor fmod.Scalar remainder.Tensor
        remainder.Scalar remainder.Scalar_Tensor gcd lcm""",
        in_place=True,
        way="checked",
        check=check_rounding,
        row_wise=ELEMENTWISE_ON_FLOATS,
    ),
    # NB: steps grow with the distance of a value below zero.
    # NB: not row by row: a value far below zero fails the whole operation, and all rows are zeros.
    *rows(_FAMILY, "polygamma", way="checked", check=check_degree),
    *rows(_FAMILY, "special_zeta", way="checked"),
    # Backward passes. NB: their kernels take it that all arguments are of one type.
    *rows(
        _FAMILY,
        """elu_backward hardshrink_backward hardsigmoid_backward hardswish_backward hardtanh_backward leaky_relu_backward
        log_sigmoid_forward logit_backward sigmoid_backward softplus_backward softshrink_backward tanh_backward
        threshold_backward native_dropout_backward glu""",
        check=check_one_type,
        dense=True,
        extra=copies_with_gaps,
    ),
    *rows(
        _FAMILY,
        """gelu_backward mish_backward silu_backward log_sigmoid_backward _prelu_kernel _prelu_kernel_backward
        glu_backward""",
        check=check_one_type_and_shape,
        dense=True,
        extra=copies_with_gaps,
    ),
    *rows(_FAMILY, "rrelu_with_noise_backward", check=check_noise, dense=True, extra=copies_with_gaps),
]
