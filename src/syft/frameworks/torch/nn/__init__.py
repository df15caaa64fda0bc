"""Historical path of layers that run on chains: torch's own do, so these are torch's own."""

from syft.frameworks.torch.nn import functional as functional
from syft.frameworks.torch.nn.conv import *
from syft.frameworks.torch.nn.pool import *
from syft.frameworks.torch.nn.rnn import *
