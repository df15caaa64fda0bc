"""The historical path of `syft.tensors.plusisminus`: the same module under an older name."""

import sys

from syft.tensors import plusisminus
from syft.tensors.plusisminus import *

sys.modules[__name__] = plusisminus
