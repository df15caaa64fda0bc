"""The historical path of `syft.federated.dataloader`: the same module under an older name."""

import sys

from syft.federated import dataloader
from syft.federated.dataloader import *

sys.modules[__name__] = dataloader
