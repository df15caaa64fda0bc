"""Historical path of convolutions: torch's own, which run on pointers, in fixed precision and on shares."""

from torch.nn import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
