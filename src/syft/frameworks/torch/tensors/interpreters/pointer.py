"""The historical path of `syft.tensors.pointer`: the same module under an older name."""

import sys

from syft.tensors import pointer
from syft.tensors.pointer import *

sys.modules[__name__] = pointer
