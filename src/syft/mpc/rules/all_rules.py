"""Imports every rule, and tells the classes what they ask for an operation that has no rule of its own.

The rules stand on the classes, so the classes cannot import them. `syft.mpc` imports this file.
"""

from __future__ import annotations

from syft.mpc.crt_precision import CRTPrecisionTensor as _CRT
from syft.mpc.large_precision import LargePrecisionTensor as _Large
from syft.mpc.precision import FixedPrecisionTensor as _Fixed
from syft.mpc.rules import fixed_fallback, fixed_fine, shared_linear, shared_nonlinear, shared_products
from syft.mpc.sharing import AdditiveSharingTensor as _Shared

__all__ = ["shared_linear", "shared_products"]  # imported for the rules they register

_Fixed.interpret_fine, _Fixed.interpret_unknown = fixed_fine.interpret, fixed_fallback.interpret
_Shared.interpret_unknown = shared_nonlinear.interpret
_Shared.product_truncated, _Shared.squared = shared_products.product_truncated, shared_products.squared


def _load_crt() -> None:
    """Imported at the first operation: not every program has such tensors."""
    from syft.mpc.rules import crt  # noqa: F401


def _load_large() -> None:
    from syft.mpc.rules import large  # noqa: F401


_CRT.load_rules, _Large.load_rules = _load_crt, _load_large
