"""The historical path of `syft.tensors.numpy_array`: the same module under an older name."""

import sys

from syft.tensors import numpy_array
from syft.tensors.numpy_array import *

sys.modules[__name__] = numpy_array
