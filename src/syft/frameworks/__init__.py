"""Historical paths; aliases only, imported by nobody inside."""

import logging

from syft import dependency_check
from syft.core.lazy import submodules_on_demand

logger = logging.getLogger(__name__)

__all__ = ["torch"]

__getattr__ = submodules_on_demand(__name__)
