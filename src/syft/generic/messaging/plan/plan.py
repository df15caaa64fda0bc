"""The historical path of plans; they live in `syft.execution`."""

from syft.execution.func2plan import func2plan, method2plan
from syft.execution.placeholder import tag_sort
from syft.execution.plan import Plan

__all__ = ["Plan", "func2plan", "method2plan", "tag_sort"]
