"""The historical path of `syft.hook.attributes`: the same module under an older name."""

import sys

from syft.hook import attributes
from syft.hook.attributes import *  # noqa: F403  (for editors and type checkers)

sys.modules[__name__] = attributes
