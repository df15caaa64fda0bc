"""The historical path of `syft.tensors.numpy_array`: the same module under an older name."""

import sys

from syft.tensors import numpy_array
from syft.tensors.numpy_array import *  # noqa: F403  (for editors and type checkers)

sys.modules[__name__] = numpy_array
