"""Historical path of pooling layers: torch's own, which run on pointers, in fixed precision and on shares.

`AvgPool2d` calls its input `data`, as it did.
"""

from torch.nn import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AvgPool1d,
    AvgPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
)

from syft.mpc.nn.pool import AvgPool2d
