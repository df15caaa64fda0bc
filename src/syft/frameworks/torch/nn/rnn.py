"""Historical path of recurrent layers: those of `syft.mpc.nn`, which have the structure of 2020."""

from syft.mpc.nn.rnn import (
    GRU,
    LSTM,
    RNN,
    GRUCell,
    LSTMCell,
    RNNBase,
    RNNCell,
    RNNCellBase,
)
