"""Linear regression over data that is spread over three owners, who learn nothing of each other's rows."""

import torch

import syft as sy
from syft.frameworks.torch.linalg import EncryptedLinearRegression

hook = sy.TorchHook(torch)
alice = sy.VirtualWorker(hook, id="alice")
bob = sy.VirtualWorker(hook, id="bob")
charlie = sy.VirtualWorker(hook, id="charlie")
crypto_prov = sy.VirtualWorker(hook, id="crypto_prov")
hbc_worker = sy.VirtualWorker(hook, id="hbc_worker")
torch.manual_seed(0)

K = 2
coef = torch.tensor([0.5, -1.25])
Xs = [10 * torch.rand(n, K) for n in (60, 40, 50)]
ys = [X @ coef + 2 + 0.1 * torch.randn(len(X)) for X in Xs]
X_ptrs = [X.send(w) for X, w in zip(Xs, (alice, bob, charlie), strict=True)]
y_ptrs = [y.send(w) for y, w in zip(ys, (alice, bob, charlie), strict=True)]

crypto_lr = EncryptedLinearRegression(
    crypto_provider=crypto_prov, hbc_worker=hbc_worker, precision_fractional=6
)
crypto_lr.fit(X_ptrs, y_ptrs)
crypto_lr.summarize()

X_all = torch.cat([torch.cat([torch.ones(len(X), 1), X], 1) for X in Xs])
wanted = torch.linalg.lstsq(X_all, torch.cat(ys).unsqueeze(1)).solution.squeeze()
got = torch.cat(
    [torch.as_tensor(crypto_lr.intercept).reshape(1).float(), torch.as_tensor(crypto_lr.coef).float()]
)
print(got, wanted)
assert torch.allclose(got, wanted, atol=0.02)

prediction = crypto_lr.predict(Xs[0].copy() if hasattr(Xs[0], "copy") else Xs[0])
assert torch.allclose(torch.as_tensor(prediction).float().view(-1), Xs[0] @ coef + 2, atol=0.2)
