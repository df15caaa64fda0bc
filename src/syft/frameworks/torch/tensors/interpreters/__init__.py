"""Historical path of the tensor types.

`Polynomial` (2019) and `polynomial` (2020) cannot both be files on every file system, so the older name is
entered here.
"""

import sys

from syft.core.lazy import submodules_on_demand
from syft.tensors import polynomial as Polynomial

__getattr__ = submodules_on_demand(__name__)

sys.modules[__name__ + ".Polynomial"] = Polynomial
