"""The historical path of `syft.tensors.string`: the same module under an older name."""

import sys

from syft.tensors import string
from syft.tensors.string import *

sys.modules[__name__] = string
