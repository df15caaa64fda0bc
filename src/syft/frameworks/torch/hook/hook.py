"""The historical path of `syft.hooking.torch_hook`: the same module under an older name."""

import sys

from syft.hooking import torch_hook
from syft.hooking.torch_hook import *

sys.modules[__name__] = torch_hook
