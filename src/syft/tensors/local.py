"""`LocalTensor`: the node that does nothing. `Wrapper > LocalTensor > tensor`.

Whatever is done to it is done to the tensor below, and the result is a `LocalTensor` again. It serves as
a neutral element: code that wants a chain can be given a tensor that needs no special treatment.
"""

from __future__ import annotations

from syft.core.abstract import AbstractTensor
from syft.core.hook_args import default_register_tensor


class LocalTensor(AbstractTensor):
    """A tensor that is here and behaves as torch says."""


default_register_tensor(LocalTensor)
