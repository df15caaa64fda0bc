"""The historical path of `syft.tensors.autograd`: the same module under an older name."""

import sys

from syft.tensors import autograd
from syft.tensors.autograd import *  # noqa: F403  (for editors and type checkers)

sys.modules[__name__] = autograd
