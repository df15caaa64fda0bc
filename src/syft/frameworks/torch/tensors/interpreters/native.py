"""The historical path of `syft.tensors.native`: the same module under an older name."""

import sys

from syft.tensors import native
from syft.tensors.native import *

sys.modules[__name__] = native
