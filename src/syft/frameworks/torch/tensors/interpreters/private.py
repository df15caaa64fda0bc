"""The historical path of `syft.tensors.private`: the same module under an older name."""

import sys

from syft.tensors import private
from syft.tensors.private import *  # noqa: F403  (for editors and type checkers)

sys.modules[__name__] = private
