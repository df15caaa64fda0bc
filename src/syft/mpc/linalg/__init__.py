"""Linear algebra on secrets.

Modules, in the order they import each other:

    scaling       brings a secret matrix to entries below one, and results back, exactly
    operations    `inv_sym`, `qr`
    student       tails of Student's distribution, on public numbers
    moments       sums over owners' data, made where the data is and shared
    lr            `EncryptedLinearRegression`, `DASH`
"""

from syft.mpc.linalg.lr import DASH, EncryptedLinearRegression
from syft.mpc.linalg.operations import inv_sym, qr

__all__ = ["DASH", "EncryptedLinearRegression", "inv_sym", "qr"]
