"""The historical path of `syft.tensors.object_pointer`: the same module under an older name."""

import sys

from syft.tensors import object_pointer
from syft.tensors.object_pointer import *  # noqa: F403  (for editors and type checkers)

sys.modules[__name__] = object_pointer
