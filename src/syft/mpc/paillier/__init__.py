"""Additively homomorphic tensors: whoever has the public key adds and scales, whoever has the private key reads.

After Paillier, "Public-key cryptosystems based on composite degree residuosity classes", EUROCRYPT 1999. Modules, in
the order they import each other:

    scheme       the formulas, on plain integers
    keys         `keygen`, public and private keys
    tensor       `PaillierTensor`: ciphertexts as a tensor, how it is made, read and sent
    rules        what it can do
    methods      `tensor.encrypt(...)` and `tensor.decrypt(...)`, also for secret shares
"""

from syft.mpc.paillier import rules as _rules  # noqa: F401  (adds the rules)
from syft.mpc.paillier.keys import PaillierPrivateKey, PaillierPublicKey, ShortKeyWarning, keygen
from syft.mpc.paillier.tensor import PaillierTensor

__all__ = ["PaillierPrivateKey", "PaillierPublicKey", "PaillierTensor", "ShortKeyWarning", "keygen"]
