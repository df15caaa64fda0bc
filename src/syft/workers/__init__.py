"""Places where tensors live. Imports `requests`, `serde`, `tensors`, `messaging`, `core` and below."""

from syft.core.lazy import submodules_on_demand as _on_demand

__getattr__ = _on_demand("syft.workers")
