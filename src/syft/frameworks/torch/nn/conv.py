"""Historical path of convolutions: torch's own, which run on pointers, in fixed precision and on shares.

`Conv2d` calls its input `data`, as it did.
"""

from torch.nn import (
    Conv1d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)

from syft.mpc.nn.conv import Conv2d
