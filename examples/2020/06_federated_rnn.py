"""A recurrent net that tells made-up languages apart, letter by letter, on words held by two owners."""

import random

import torch
from torch import nn

import syft as sy

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
alice = sy.VirtualWorker(hook, id="alice")
torch.manual_seed(3)
random.seed(3)

letters = "abcdefghijklmnopqrstuvwxyz"
languages = {"openish": ("aeiou", "lmnr"), "closedish": ("y", "bdgkptxz")}
names = list(languages)


def make_word(language):
    vowels, consonants = languages[language]
    return "".join(random.choice(random.choice((vowels, consonants))) for _ in range(random.randint(3, 6)))


def word_to_tensor(word):
    tensor = torch.zeros(len(word), 1, len(letters))
    for position, letter in enumerate(word):
        tensor[position][0][letters.index(letter)] = 1
    return tensor


class RNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.i2h = nn.Linear(input_size + hidden_size, hidden_size)
        self.i2o = nn.Linear(input_size + hidden_size, output_size)
        self.softmax = nn.LogSoftmax(dim=1)

    def forward(self, input, hidden):
        combined = torch.cat((input, hidden), 1)
        return self.softmax(self.i2o(combined)), self.i2h(combined)

    def init_hidden(self):
        return torch.zeros(1, self.hidden_size)


data = {worker: [] for worker in (bob, alice)}
for worker in data:
    for index in range(40):
        language = names[index % 2]
        label = torch.tensor([names.index(language)])
        data[worker].append((word_to_tensor(make_word(language)).send(worker), label.send(worker)))

criterion = nn.NLLLoss()
model = RNN(len(letters), 16, len(names))
learning_rate = 0.05


def train_on(worker, word, label):
    model.send(worker)
    hidden = model.init_hidden().send(worker)
    model.zero_grad()
    for letter in range(word.size()[0]):
        output, hidden = model(word[letter], hidden)
    loss = criterion(output, label)
    loss.backward()
    for param in model.parameters():
        param.data.add_(param.grad.data, alpha=-learning_rate)
    model.get()
    return loss.get().item()


for epoch in range(2):
    total = sum(train_on(w, *data[w][i]) for i in range(40) for w in (bob, alice))
    print(f"epoch {epoch}: mean loss {total / 80:.3f}")

right = 0
for index in range(40):
    language = names[index % 2]
    hidden = model.init_hidden()
    for letter in word_to_tensor(make_word(language)):
        output, hidden = model(letter, hidden)
    right += output.argmax().item() == names.index(language)
print("right:", right, "of 40")
assert right >= 34
