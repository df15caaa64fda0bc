"""The historical path of `syft.hooking.attributes`: the same module under an older name."""

import sys

from syft.hooking import attributes
from syft.hooking.attributes import *  # noqa: F403  (for editors and type checkers)

sys.modules[__name__] = attributes
