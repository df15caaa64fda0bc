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
# # 4. Three real processes
#
# So far the workers were played inside one process. Here each hospital is a process of its own with its own data, and
# you talk to it over a TCP connection. On three machines the program is the same, with certificates and tokens in
# addition (tutorial 15).
#
# ## The owner's program
#
# Each owner runs this. It makes up some patients, offers them for training under the name `scans`, and serves until
# its standard input is closed.

# %%
import subprocess
import sys
import tempfile
from pathlib import Path

owner_program = """
import sys
import torch
from torch.utils.data import TensorDataset
import syft as sy

number = int(sys.argv[1])
torch.manual_seed(number)
x = torch.randn(200, 10)
y = (x @ torch.linspace(-1, 1, 10) > 0).long()

server = sy.NetworkServerWorker(sy.TorchHook(torch), "tcp://127.0.0.1:0", id=f"hospital-{number}")
server.add_dataset(TensorDataset(x, y), "scans")  # offered for training; cannot be fetched
server.start(block=False)
print(server.address, flush=True)
sys.stdin.read()  # until whoever started us is gone
server.stop()
"""
folder = tempfile.TemporaryDirectory()
program = Path(folder.name) / "owner.py"
program.write_text(owner_program)

processes = [
    subprocess.Popen(
        [sys.executable, program, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    for number in range(3)
]
addresses = [process.stdout.readline().strip() for process in processes]
print(addresses)

# %% [markdown]
# ## The data scientist's program

# %%
import torch
from torch import nn

import syft as sy
from syft.federated import Trainer

hook = sy.TorchHook(torch)
# patience: how many seconds a call waits for a worker that cannot be reached; 30 by default
hospitals = [sy.connect(address, patience=1.0) for address in addresses]
print(hospitals)

# %% [markdown]
# A worker on a network denies by default. You can compute with what you bring, and train on what is offered. The rows
# themselves cannot be fetched.

# %%
mine = torch.arange(3.0).send(hospitals[0])
print((mine + 1).get())

# %% [markdown]
# Now the training, with the same `Trainer` as before. Model and loss are traced and travel as plans: lists of torch
# operations that the worker checks. No Python code travels.

# %%
torch.manual_seed(100)
x = torch.randn(300, 10)
y = (x @ torch.linspace(-1, 1, 10) > 0).long()


def accuracy(output, target):
    return (output.argmax(1) == target).float().mean()


trainer = Trainer(
    nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2)),
    nn.CrossEntropyLoss(),
    hospitals,
    dataset_key="scans",
    batch_size=20,
    optimizer_args={"lr": 0.2},
    evaluate=torch.utils.data.TensorDataset(x, y),
    metrics={"accuracy": accuracy},
    seed=1,
)
history = trainer.fit(rounds=4)
for report in history.rounds:
    print(report)
assert history.curve("accuracy")[1][-1] > 0.85

# %% [markdown]
# ## When a hospital goes away
#
# One process ends. The next round says so and goes on with the others.

# %%
processes[2].stdin.close()
processes[2].wait()

report = trainer.fit(rounds=5).rounds[-1]
print("used:", report.accepted)
print("missing:", [failure.client for failure in report.failures])
assert report.accepted == ("hospital-0", "hospital-1")

# %%
for hospital in hospitals:
    hospital.close()
for process in processes[:2]:
    process.stdin.close()
for process in processes:
    process.wait()
    process.stdout.close()
folder.cleanup()

# %% [markdown]
# Next: [strategies and drop-outs](05_strategies_and_dropouts.ipynb). More:
# [Training over a network](../federated_network.md), [Workers on a network](../network.md).
