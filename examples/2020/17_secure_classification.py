"""Secure classification: the server's model and the client's images stay secret from those who compute."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn, optim

import syft as sy

hook = sy.TorchHook(torch)
client = sy.VirtualWorker(hook, id="client")
bob = sy.VirtualWorker(hook, id="bob")
alice = sy.VirtualWorker(hook, id="alice")
crypto_provider = sy.VirtualWorker(hook, id="crypto_provider")
torch.manual_seed(0)


class Arguments:
    batch_size, test_batch_size, epochs, lr = 64, 50, 8, 0.01


args = Arguments()
digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
train_loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(images[:1500], labels[:1500]), batch_size=args.batch_size, shuffle=True
)
test_loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(images[1500:1600], labels[1500:1600]), batch_size=args.test_batch_size
)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        return self.fc2(x)


# The server trains in the clear, on data of its own.
model = Net()
optimizer = optim.Adam(model.parameters(), lr=args.lr)
for _ in range(args.epochs):
    for data, target in train_loader:
        optimizer.zero_grad()
        F.cross_entropy(model(data), target).backward()
        optimizer.step()

# Then both sides share what is theirs.
private_test_loader = [
    (
        data.fix_precision().share(alice, bob, crypto_provider=crypto_provider),
        target.share(alice, bob, crypto_provider=crypto_provider),
    )
    for data, target in test_loader
]
plain = torch.cat([model(data).argmax(dim=1) for data, _ in test_loader])
model.fix_precision().share(alice, bob, crypto_provider=crypto_provider)

n_correct = 0
encrypted_predictions = []
model.eval()
with torch.no_grad():
    for data, target in private_test_loader:
        output = model(data)
        pred = output.argmax(dim=1)
        encrypted_predictions.append(pred.copy().get())
        n_correct += pred.eq(target.view_as(pred)).sum()
n_correct = n_correct.copy().get().float_precision().long().item()
n_total = 100
print(f"{n_correct}/{n_total} right")
assert n_correct / n_total > 0.85
predicted = torch.cat([p.float_precision() if p.is_wrapper else p for p in encrypted_predictions]).long()
assert (predicted == plain).float().mean() > 0.97
