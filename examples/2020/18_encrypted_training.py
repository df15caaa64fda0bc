"""Encrypted training: data, labels, model and gradients are shares all the way."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn, optim

import syft as sy

hook = sy.TorchHook(torch)
alice = sy.VirtualWorker(hook, id="alice")
bob = sy.VirtualWorker(hook, id="bob")
crypto_provider = sy.VirtualWorker(hook, id="crypto_provider")
torch.manual_seed(0)

digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
BATCH, N_TRAIN, N_TEST, LR, EPOCHS = 64, 512, 128, 0.1, 8


def one_hot_of(index_tensor):
    onehot = torch.zeros(*index_tensor.shape, 10)
    return onehot.scatter(1, index_tensor.view(-1, 1), 1)


def secret_share(tensor):
    return tensor.fix_precision(precision_fractional=3).share(
        alice, bob, crypto_provider=crypto_provider, requires_grad=True
    )


private_train_loader = [
    (secret_share(images[i : i + BATCH]), secret_share(one_hot_of(labels[i : i + BATCH])))
    for i in range(0, N_TRAIN, BATCH)
]
test_images = (
    images[N_TRAIN : N_TRAIN + N_TEST].fix_precision().share(alice, bob, crypto_provider=crypto_provider)
)
test_labels = labels[N_TRAIN : N_TRAIN + N_TEST]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = x.view(-1, 64)
        x = F.relu(self.fc1(x))
        return self.fc2(x)


model = Net().fix_precision().share(alice, bob, crypto_provider=crypto_provider, requires_grad=True)
optimizer = optim.SGD(model.parameters(), lr=LR)
optimizer = optimizer.fix_precision()

history = []
for epoch in range(EPOCHS):
    model.train()
    for data, target in private_train_loader:
        optimizer.zero_grad()
        output = model(data)
        batch_size = output.shape[0]
        loss = ((output - target) ** 2).sum().refresh() / batch_size
        loss.backward()
        optimizer.step()
    history.append(loss.get().float_precision().item())
    print("epoch", epoch, "loss", history[-1])

model.eval()
with torch.no_grad():
    output = model(test_images)
predicted = output.get().float_precision().argmax(dim=1)
accuracy = (predicted == test_labels).float().mean().item()
print("accuracy", accuracy)
assert history[-1] < history[0]
assert accuracy > 0.65
