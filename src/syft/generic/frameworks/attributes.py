"""The historical path of `syft.hooking.attributes`: the same module under an older name."""

import sys

from syft.hooking import attributes
from syft.hooking.attributes import *

sys.modules[__name__] = attributes
