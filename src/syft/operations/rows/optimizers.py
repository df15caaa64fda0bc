"""Operations on lists of tensors, of which the steps of optimizers are made."""

from __future__ import annotations

from syft.operations.argument_checks import check_fused, check_lists
from syft.operations.row import copies, rows

_FAMILY = "optimizers"

ROWS = [
    *rows(
        _FAMILY,
        """_foreach_abs _foreach_acos _foreach_asin _foreach_atan _foreach_ceil _foreach_cos _foreach_cosh _foreach_erf
        _foreach_erfc _foreach_exp _foreach_expm1 _foreach_floor _foreach_frac _foreach_lgamma _foreach_log
        _foreach_log10 _foreach_log1p _foreach_log2 _foreach_neg _foreach_reciprocal _foreach_round _foreach_rsqrt
        _foreach_sigmoid _foreach_sign _foreach_sin _foreach_sinh _foreach_sqrt _foreach_tan _foreach_tanh
        _foreach_trunc _foreach_add.List _foreach_add.Scalar _foreach_add.ScalarList _foreach_add.Tensor
        _foreach_sub.List _foreach_sub.Scalar _foreach_sub.ScalarList _foreach_mul.List _foreach_mul.Scalar
        _foreach_mul.ScalarList _foreach_mul.Tensor _foreach_div.List _foreach_div.Scalar _foreach_div.ScalarList
        _foreach_div.Tensor _foreach_addcdiv.Scalar _foreach_addcdiv.ScalarList
        _foreach_addcmul.Scalar _foreach_addcmul.ScalarList _foreach_clamp_max.List
        _foreach_clamp_max.Scalar _foreach_clamp_max.ScalarList _foreach_clamp_min.List _foreach_clamp_min.Scalar
        _foreach_clamp_min.ScalarList _foreach_lerp.List _foreach_lerp.Scalar _foreach_lerp.ScalarList
        _foreach_maximum.List _foreach_maximum.Scalar _foreach_maximum.ScalarList _foreach_minimum.List
        _foreach_minimum.Scalar _foreach_minimum.ScalarList _foreach_norm.Scalar _foreach_pow.List _foreach_pow.Scalar
        _foreach_pow.ScalarList _foreach_pow.ScalarAndTensor""",
        in_place=True,
        direct=True,
        check=check_lists,
        extra=copies,
    ),
    *rows(_FAMILY, "_foreach_zero_ _foreach_copy_", direct=True, check=check_lists),
    *rows(
        _FAMILY,
        """_fused_adam_ _fused_adam_.tensor_lr _fused_adamw_ _fused_adamw_.tensor_lr _fused_sgd_ _fused_sgd_.tensor_lr
        _fused_adagrad_ _fused_adagrad_.tensor_lr""",
        direct=True,
        check=check_fused,
        extra=copies,
    ),
]
