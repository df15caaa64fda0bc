"""Layers as the programs of 2020 build them: `syft.frameworks.torch.nn`.

torch's own layers run on every chain. These have the structure and the names of parameters of that time. May import
torch only.
"""

from syft.mpc.nn.conv import Conv2d as Conv2d
from syft.mpc.nn.pool import AvgPool2d as AvgPool2d
from syft.mpc.nn.rnn import GRU as GRU
from syft.mpc.nn.rnn import LSTM as LSTM
from syft.mpc.nn.rnn import RNN as RNN
from syft.mpc.nn.rnn import GRUCell as GRUCell
from syft.mpc.nn.rnn import LSTMCell as LSTMCell
from syft.mpc.nn.rnn import RNNBase as RNNBase
from syft.mpc.nn.rnn import RNNCell as RNNCell
from syft.mpc.nn.rnn import RNNCellBase as RNNCellBase
