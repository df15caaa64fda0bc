"""A spam filter: a GRU written out by hand, trained on messages that never leave their owners."""

import numpy as np
import torch
from torch import nn

import syft as sy

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
anne = sy.VirtualWorker(hook, id="anne")
torch.manual_seed(0)
rng = np.random.default_rng(0)

VOCAB_SIZE, LENGTH, EMBEDDING_DIM, HIDDEN_DIM, BATCH_SIZE, EPOCHS, CLIP, LR = 40, 8, 10, 8, 20, 8, 5, 1.0
# Spam uses the upper half of the vocabulary more often.
labels = rng.integers(0, 2, 240)
inputs = np.where(rng.random((240, LENGTH)) < 0.75, labels[:, None], 1 - labels[:, None]) * 20 + rng.integers(
    0, 20, (240, LENGTH)
)
train_inputs, test_inputs = torch.tensor(inputs[:200]), torch.tensor(inputs[200:])
train_labels, test_labels = torch.tensor(labels[:200]), torch.tensor(labels[200:])
half = 100

bob_dataset = sy.BaseDataset(train_inputs[:half], train_labels[:half]).send(bob)
anne_dataset = sy.BaseDataset(train_inputs[half:], train_labels[half:]).send(anne)
federated_train_dataset = sy.FederatedDataset([bob_dataset, anne_dataset])
federated_test_dataset = sy.FederatedDataset([sy.BaseDataset(test_inputs, test_labels).send(bob)])
federated_train_loader = sy.FederatedDataLoader(federated_train_dataset, shuffle=True, batch_size=BATCH_SIZE)
federated_test_loader = sy.FederatedDataLoader(federated_test_dataset, shuffle=False, batch_size=BATCH_SIZE)


class GRUCell(nn.Module):
    def __init__(self, input_size, hidden_size, bias=True):
        super().__init__()
        self.fc_ir = nn.Linear(input_size, hidden_size, bias=bias)
        self.fc_hr = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.fc_iz = nn.Linear(input_size, hidden_size, bias=bias)
        self.fc_hz = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.fc_in = nn.Linear(input_size, hidden_size, bias=bias)
        self.fc_hn = nn.Linear(hidden_size, hidden_size, bias=bias)

    def forward(self, x, h):
        x = x.view(-1, x.shape[1])
        r = torch.sigmoid(self.fc_ir(x) + self.fc_hr(h))
        z = torch.sigmoid(self.fc_iz(x) + self.fc_hz(h))
        n = torch.tanh(self.fc_in(x) + r * self.fc_hn(h))
        return (1 - z) * n + z * h


class GRU(nn.Module):
    def __init__(self, vocab_size, output_size=1, embedding_dim=50, hidden_dim=10, bias=True, dropout=0.1):
        super().__init__()
        self.hidden_dim = hidden_dim
        self.dropout = nn.Dropout(p=dropout)
        self.embedding = nn.Embedding(vocab_size, embedding_dim)
        self.gru_cell = GRUCell(embedding_dim, hidden_dim)
        self.fc = nn.Linear(hidden_dim, output_size)
        self.sigmoid = nn.Sigmoid()

    def forward(self, x, h):
        x = self.embedding(x)
        for t in range(x.shape[1]):
            h = self.gru_cell(x[:, t, :], h)
        out = self.fc(self.dropout(h))
        return self.sigmoid(out), h


model = GRU(vocab_size=VOCAB_SIZE, hidden_dim=HIDDEN_DIM, embedding_dim=EMBEDDING_DIM)
criterion = nn.BCELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=LR)

for e in range(EPOCHS):
    losses = []
    for inputs, labels in federated_train_loader:
        worker = inputs.location
        h = torch.Tensor(np.zeros((BATCH_SIZE, HIDDEN_DIM))).send(worker)
        model.send(worker)
        optimizer.zero_grad()
        output, _ = model(inputs, h)
        loss = criterion(output.squeeze(), labels.float())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        model.get()
        losses.append(loss.get())
    print(f"epoch {e + 1}: {sum(losses) / len(losses):.4f}")

preds, truth = [], []
model.eval()
with torch.no_grad():
    for inputs, labels in federated_test_loader:
        worker = inputs.location
        h = torch.Tensor(np.zeros((BATCH_SIZE, HIDDEN_DIM))).send(worker)
        model.send(worker)
        output, _ = model(inputs, h)
        preds.append(output.squeeze().get())
        truth.append(labels.get())
        model.get()
accuracy = ((torch.cat(preds) > 0.5).long() == torch.cat(truth)).float().mean().item()
print("accuracy", accuracy)
assert accuracy > 0.75
