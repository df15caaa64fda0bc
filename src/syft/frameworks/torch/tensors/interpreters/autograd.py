"""The historical path of `syft.tensors.autograd`: the same module under an older name."""

import sys

from syft.tensors import autograd
from syft.tensors.autograd import *

sys.modules[__name__] = autograd
