"""The only room that adds names to torch. It replaces nothing that plain torch code uses."""

from syft.core.lazy import submodules_on_demand as _on_demand

__getattr__ = _on_demand("syft.hooking")
