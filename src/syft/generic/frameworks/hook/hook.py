"""The historical path of `syft.hooking.framework_hook`: the same module under an older name."""

import sys

from syft.hooking import framework_hook
from syft.hooking.framework_hook import *

sys.modules[__name__] = framework_hook
