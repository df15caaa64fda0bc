"""Recommender homework: user factors stay at their phones, item factors travel."""

import torch

import syft as sy

torch.manual_seed(0)
hook = sy.TorchHook(torch)
phones = [sy.VirtualWorker(hook, id=f"phone{i}") for i in range(4)]
truth_u, truth_i = torch.randn(4, 3), torch.randn(6, 3)
ratings = truth_u @ truth_i.t()

rows = [
    ratings[i : i + 1].tag("#ratings").describe(f"stars of user {i}").send(p) for i, p in enumerate(phones)
]
users = [torch.randn(1, 3).send(p).requires_grad_() for p in phones]
items = torch.randn(6, 3)
for rnd in range(120):
    new = []
    for p, row, user in zip(phones, rows, users):
        local = items.copy().send(p).requires_grad_()
        loss = ((user @ local.t() - row) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            user -= 0.3 * user.grad
            local -= 0.3 * local.grad
            user.grad.zero_()
        new.append(local.detach().get())
    items = sum(new) / len(new)
error = sum(
    (((u.detach() @ items.copy().send(p).t() - r) ** 2).mean()).get() for p, u, r in zip(phones, users, rows)
)
print("error", float(error))
assert error < 0.2
print([len(p._objects) for p in phones], rows[0].description)
