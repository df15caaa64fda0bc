"""A convolutional net on images that are spread over two owners (digits of 8x8, bundled with scikit-learn)."""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn, optim

import syft as sy

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
alice = sy.VirtualWorker(hook, id="alice")


class Arguments:
    def __init__(self):
        self.batch_size = 64
        self.test_batch_size = 300
        self.epochs = 4
        self.lr = 0.05
        self.momentum = 0.9
        self.no_cuda = False
        self.seed = 1
        self.log_interval = 5
        self.save_model = False


args = Arguments()
use_cuda = not args.no_cuda and torch.cuda.is_available()
torch.manual_seed(args.seed)
device = torch.device("cuda" if use_cuda else "cpu")
kwargs = {"num_workers": 1, "pin_memory": True} if use_cuda else {}

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
train_set = sy.BaseDataset(images[:1200], labels[:1200])
test_set = torch.utils.data.TensorDataset(images[1200:], labels[1200:])

federated_train_loader = sy.FederatedDataLoader(
    train_set.federate((bob, alice)), batch_size=args.batch_size, shuffle=True, **kwargs
)
test_loader = torch.utils.data.DataLoader(test_set, batch_size=args.test_batch_size, shuffle=True, **kwargs)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, 1)
        self.conv2 = nn.Conv2d(16, 32, 2, 1)
        self.fc1 = nn.Linear(2 * 2 * 32, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2, 2)
        x = x.view(-1, 2 * 2 * 32)
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x), dim=1)


def train(args, model, device, federated_train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(federated_train_loader):
        model.send(data.location)
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        model.get()
        if batch_idx % args.log_interval == 0:
            loss = loss.get()
            print(f"epoch {epoch} batch {batch_idx}/{len(federated_train_loader)} loss {loss.item():.4f}")


def test(model, device, test_loader):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    accuracy = correct / len(test_loader.dataset)
    print(f"test loss {test_loss / len(test_loader.dataset):.4f}, accuracy {accuracy:.2f}")
    return accuracy


model = Net().to(device)
optimizer = optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
for epoch in range(1, args.epochs + 1):
    train(args, model, device, federated_train_loader, optimizer, epoch)
    accuracy = test(model, device, test_loader)
assert accuracy > 0.7
