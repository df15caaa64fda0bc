"""The historical path of `syft.hooking.framework_hook`: the same module under an older name."""

import sys

from syft.hooking import framework_hook
from syft.hooking.framework_hook import *  # noqa: F403  (for editors and type checkers)

sys.modules[__name__] = framework_hook
