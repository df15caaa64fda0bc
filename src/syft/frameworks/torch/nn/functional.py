"""Historical path of functions of layers: `torch.nn.functional` under an older name."""

import sys

from torch.nn import functional
from torch.nn.functional import *

sys.modules[__name__] = functional
