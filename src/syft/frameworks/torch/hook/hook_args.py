"""The historical path of `syft.core.hook_args`: the same module under an older name."""

import sys

from syft.core import hook_args
from syft.core.hook_args import *

sys.modules[__name__] = hook_args
