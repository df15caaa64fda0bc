# ---
# jupyter:
#   jupytext:
#     formats: py:percent,ipynb
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 10. A Hugging Face model: remote, federated, encrypted
#
# The models of `transformers` run as they are. This tutorial takes a small BERT with random weights (nothing is
# downloaded) and uses it in three ways: on a worker, as a federated training, and on secret shares.
#
# You need: `pip install resyft transformers`.

# %%
import torch
from torch import nn
from torch.utils.data import TensorDataset
from transformers import BertConfig, BertForSequenceClassification

import syft as sy
from syft.federated import Trainer

hook = sy.TorchHook(torch)
alice, bob, provider = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob", "provider"))

config = BertConfig(
    vocab_size=60,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    num_labels=2,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def new_model():
    torch.manual_seed(0)
    return BertForSequenceClassification(config)


# %% [markdown]
# The task: sentences of eight made-up words; the class says whether word 7 is among them.

# %%
torch.manual_seed(1)
ids = torch.randint(8, 60, (320, 8))
labels = torch.randint(2, (320,))
ids[labels == 1, torch.randint(1, 8, ((labels == 1).sum(),))] = 7
ids.shape

# %% [markdown]
# ## Remote
#
# The model makes positions and masks on the way. They are made on bob, too.

# %%
model = new_model().eval()
with torch.no_grad():
    here = model(input_ids=ids[:4]).logits
    model.send(bob)
    there = model(input_ids=ids[:4].send(bob)).logits.get()
    model.get()
assert torch.equal(here, there)
print("remote logits equal local ones, bit for bit")

# %% [markdown]
# ## Federated
#
# `Trainer` gives the output of the model to the loss. BERT returns a record of several tensors, so a small module picks
# the logits.


# %%
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = new_model()

    def forward(self, input_ids):
        return self.bert(input_ids=input_ids).logits


def accuracy(output, target):
    return (output.argmax(1) == target).float().mean()


clients = {f"clinic-{i}": TensorDataset(ids[i:240:4], labels[i:240:4]) for i in range(4)}
trainer = Trainer(
    Classifier(),
    nn.CrossEntropyLoss(),
    clients,
    epochs=2,
    batch_size=20,
    optimizer="Adam",
    optimizer_args={"lr": 0.01},
    evaluate=TensorDataset(ids[240:], labels[240:]),
    metrics={"accuracy": accuracy},
    seed=1,
)
history = trainer.fit(rounds=5)
print(history.rounds[-1])
assert history.curve("accuracy")[1][-1] > 0.9

# %% [markdown]
# ## Encrypted
#
# The trained weights are shared between alice and bob. Token ids are public here; weights and everything computed
# from them are secret.

# %%
trained = trainer.model.bert.eval()
with torch.no_grad():
    expected = trained(input_ids=ids[240:244]).logits
    trained.fix_precision(base=2, precision_fractional=16).share(alice, bob, crypto_provider=provider)
    with sy.mpc.measure() as bill:
        logits = trained(input_ids=ids[240:244]).logits
    opened = logits.get().float_precision()
print("encrypted:", opened.argmax(1).tolist(), " open:", expected.argmax(1).tolist())
print(f"{bill.total.rounds} rounds, {bill.total.bytes / 1e6:.1f} MB")
assert torch.allclose(opened, expected, atol=0.05)

# %% [markdown]
# Next: [DP-SGD](11_dp_sgd.ipynb). Twenty models and what works with each: [Real models](../real_models.md).
