"""The historical path of `syft.tensors.logging`: the same module under an older name."""

import sys

from syft.tensors import logging
from syft.tensors.logging import *

sys.modules[__name__] = logging
