"""Split learning as a class: three parts of a net on three machines."""

import torch
from sklearn.datasets import load_digits
from torch import nn, optim

import syft as sy

hook = sy.TorchHook(torch)
torch.manual_seed(0)


class SplitNN:
    def __init__(self, models, optimizers):
        self.models = models
        self.optimizers = optimizers
        self.outputs = [None] * len(models)
        self.inputs = [None] * len(models)

    def zero_grads(self):
        for opt in self.optimizers:
            opt.zero_grad()

    def forward(self, x):
        self.inputs[0] = x
        self.outputs[0] = self.models[0](self.inputs[0])
        for i in range(1, len(self.models)):
            # A leaf at the next machine; requires_grad_ before or after the move.
            moved = self.outputs[i - 1].detach().requires_grad_()
            if self.outputs[i - 1].location != self.models[i].location:
                moved = moved.move(self.models[i].location).requires_grad_()
            self.inputs[i] = moved
            self.outputs[i] = self.models[i](self.inputs[i])
        return self.outputs[-1]

    def backward(self):
        for i in range(len(self.models) - 2, -1, -1):
            grad = self.inputs[i + 1].grad.copy()
            if self.outputs[i].location != self.inputs[i + 1].location:
                grad = grad.move(self.outputs[i].location)
            self.outputs[i].backward(grad)

    def step(self):
        for opt in self.optimizers:
            opt.step()


digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
trainloader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(images[:960], labels[:960]), batch_size=64, shuffle=True
)

models = [
    nn.Sequential(nn.Linear(64, 48), nn.ReLU()),
    nn.Sequential(nn.Linear(48, 32), nn.ReLU()),
    nn.Sequential(nn.Linear(32, 10), nn.LogSoftmax(dim=1)),
]
optimizers = [optim.SGD(model.parameters(), lr=0.5) for model in models]
alice = sy.VirtualWorker(hook, id="alice")
claire = sy.VirtualWorker(hook, id="claire")
bob = sy.VirtualWorker(hook, id="bob")
for model, location in zip(models, (alice, claire, bob), strict=True):
    model.send(location)

splitNN = SplitNN(models, optimizers)
criterion = nn.NLLLoss()
counts = []
for epoch in range(8):
    running_loss = 0
    for x, y in trainloader:
        x = x.send(alice)
        y = y.send(bob)
        splitNN.zero_grads()
        pred = splitNN.forward(x)
        loss = criterion(pred, y)
        loss.backward()
        splitNN.backward()
        splitNN.step()
        running_loss += loss.get()
        counts.append(sum(len(w._objects) for w in (alice, claire, bob)))
    print(f"epoch {epoch}: {running_loss / len(trainloader):.3f}")
assert counts[3] == counts[-1], "the workers' memory grows from batch to batch"
assert running_loss / len(trainloader) < 0.7

for model in models:
    model.get()
net = nn.Sequential(*models)
accuracy = (net(images[960:]).argmax(1) == labels[960:]).float().mean().item()
print("accuracy", accuracy)
assert accuracy > 0.75
