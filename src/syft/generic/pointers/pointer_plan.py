"""Historical path of `PointerPlan`."""

from syft.execution.pointer_plan import PointerPlan

__all__ = ["PointerPlan"]
