"""Historical path of recurrent layers: torch's own, which run on pointers, in fixed precision and on shares."""

from torch.nn import (
    GRU,
    LSTM,
    RNN,
    GRUCell,
    LSTMCell,
    RNNBase,
    RNNCell,
    RNNCellBase,
)
