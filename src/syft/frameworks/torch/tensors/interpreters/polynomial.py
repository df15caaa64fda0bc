"""The historical path of `syft.tensors.polynomial`: the same module under an older name."""

import sys

from syft.tensors import polynomial
from syft.tensors.polynomial import *  # noqa: F403  (for editors and type checkers)

sys.modules[__name__] = polynomial
