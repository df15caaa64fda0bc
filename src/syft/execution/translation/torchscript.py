"""Historical path: a plan as a TorchScript module."""

from __future__ import annotations

from typing import Any


class PlanTranslatorTorchscript:
    """Makes TorchScript of a plan: `plan.add_translation(PlanTranslatorTorchscript)`, then `plan.torchscript`."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan

    def translate(self) -> Any:
        """The plan as a ScriptModule."""
        return self.plan.to_torchscript()
