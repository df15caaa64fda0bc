"""A class exercise: find odd heartbeats at a clinic with a small autoencoder that is trained there."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

import syft as sy

torch.manual_seed(1)
hook = sy.TorchHook(torch)
clinic = sy.VirtualWorker(hook, id="clinic")

time = torch.linspace(0, 6.28, 32)
normal = torch.stack([torch.sin(time + 0.1 * torch.randn(1)) + 0.05 * torch.randn(32) for _ in range(120)])
odd = torch.stack([torch.sin(2 * time) + 0.05 * torch.randn(32) for _ in range(10)])
beats = normal.send(clinic)
strange = odd.tag("#odd").send(clinic)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(32, 8), nn.Tanh())
        self.decoder = nn.Linear(8, 32)

    def forward(self, x):
        return self.decoder(self.encoder(x))


model = AutoEncoder()
model.send(clinic)
optimizer = optim.Adam(params=model.parameters(), lr=0.02)
losses = []
for epoch in range(60):
    optimizer.zero_grad()
    loss = F.mse_loss(model(beats), beats)
    loss.backward()
    optimizer.step()
    losses.append(loss.get().item())
assert losses[-1] < 0.2 * losses[0]

found = clinic.search("#odd")[0]
usual = ((model(beats) - beats) ** 2).mean(dim=1)
unusual = ((model(found) - found) ** 2).mean(dim=1)
limit = usual.get().max().item()
print("of 10 odd beats", int((unusual.get() > limit).sum()), "are found")
model.get()
