"""The historical path of `syft.tensors.multi_pointer`: the same module under an older name."""

import sys

from syft.tensors import multi_pointer
from syft.tensors.multi_pointer import *

sys.modules[__name__] = multi_pointer
