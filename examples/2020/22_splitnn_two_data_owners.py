"""Vertical split: two owners hold different columns of the same people, a third the labels."""

import torch
from torch import nn, optim

import syft as sy

hook = sy.TorchHook(torch)
torch.manual_seed(2)
bank = sy.VirtualWorker(hook, id="bank")
shop = sy.VirtualWorker(hook, id="shop")
server = sy.VirtualWorker(hook, id="server")

everything = torch.randn(200, 6)
label = (everything[:, :3].sum(1) * everything[:, 3:].sum(1) > 0).long()
left, right, label_ptr = everything[:, :3].send(bank), everything[:, 3:].send(shop), label.send(server)

segments = {
    "bank": nn.Sequential(nn.Linear(3, 8), nn.Tanh()).send(bank),
    "shop": nn.Sequential(nn.Linear(3, 8), nn.Tanh()).send(shop),
    "server": nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 2)).send(server),
}
opts = [optim.Adam(m.parameters(), lr=0.02) for m in segments.values()]
losses = []
for _ in range(120):
    for opt in opts:
        opt.zero_grad()
    left_out, right_out = segments["bank"](left), segments["shop"](right)
    at_server = [out.detach().requires_grad_().move(server).requires_grad_() for out in (left_out, right_out)]
    output = segments["server"](torch.cat(at_server, dim=1))
    loss = nn.functional.cross_entropy(output, label_ptr)
    loss.backward()
    left_out.backward(at_server[0].grad.copy().move(bank))
    right_out.backward(at_server[1].grad.copy().move(shop))
    for opt in opts:
        opt.step()
    losses.append(loss.get().item())
print(losses[0], losses[-1])
assert losses[-1] < losses[0] / 3
for segment in segments.values():
    segment.get()
