"""The historical path of `syft.tensors.native`: the same module under an older name."""

import sys

from syft.tensors import native
from syft.tensors.native import *  # noqa: F403  (for editors and type checkers)

sys.modules[__name__] = native
