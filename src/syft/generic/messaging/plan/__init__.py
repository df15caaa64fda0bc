"""The historical path of plans; they live in `syft.execution`."""

from syft.execution.func2plan import func2plan, method2plan
from syft.execution.placeholder import PlaceHolder
from syft.execution.plan import Plan
from syft.execution.state import State

__all__ = ["PlaceHolder", "Plan", "State", "func2plan", "method2plan"]
