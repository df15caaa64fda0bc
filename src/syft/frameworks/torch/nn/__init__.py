"""Historical path of layers that run on chains: torch's own do. Those of 2020 have their structure of then."""

from syft.frameworks.torch.nn import functional as functional
from syft.frameworks.torch.nn.conv import *
from syft.frameworks.torch.nn.pool import *
from syft.frameworks.torch.nn.rnn import *
