"""The historical path of `syft.tensors.polynomial`: the same module under an older name."""

import sys

from syft.tensors import polynomial
from syft.tensors.polynomial import *

sys.modules[__name__] = polynomial
