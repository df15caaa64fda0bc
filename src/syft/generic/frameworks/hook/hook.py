"""The historical path of `syft.hook.framework_hook`: the same module under an older name."""

import sys

from syft.hook import framework_hook
from syft.hook.framework_hook import *  # noqa: F403  (for editors and type checkers)

sys.modules[__name__] = framework_hook
