"""Historical path of linear algebra on secrets."""

from syft.frameworks.torch.linalg import lr as lr
from syft.frameworks.torch.linalg import operations as operations
from syft.mpc.linalg import DASH as DASH
from syft.mpc.linalg import EncryptedLinearRegression as EncryptedLinearRegression
from syft.mpc.linalg import inv_sym as inv_sym
from syft.mpc.linalg import qr as qr
