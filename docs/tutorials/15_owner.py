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
# # 15. Running a worker for your hospital
#
# This is the owner's side. You have a folder of files. You want named people to compute on it, nobody to take it
# away, a record of who asked what, and a limit on what they learn. At the end a worker runs in a process of its own
# and two users have tried it.
#
# You need: `pip install 'resyft[dp]'`.

# %%
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

import syft as sy

hook = sy.TorchHook(torch)
home = Path(tempfile.mkdtemp())  # in a real project: a directory that only you can read

# %% [markdown]
# ## 1. The data
#
# An ordinary folder: here CSV files, and Parquet, NumPy, safetensors and folders of images as well. Each file is tagged
# with `#` and its name.

# %%
data = home / "data"
data.mkdir()
torch.manual_seed(0)
rows = (45 + 14 * torch.randn(600)).clamp(0, 100)
(data / "ages.csv").write_text("age\n" + "".join(f"{age:.0f}\n" for age in rows))
(data / "ages.toml").write_text('description = "Age at admission, 2019 to 2024."\n')

# %% [markdown]
# ## 2. Who may do what
#
# A policy file. Everybody who proves a name may connect and compute; `may_get = "own"` lets them fetch what they
# brought themselves. Eve may not connect.

# %%
(home / "policy.toml").write_text("""
[defaults]
may_connect = true
may_compute = true
may_get = "own"

[limits]
max_bytes = "1 GiB"
seconds_per_operation = 30

[users.eve]
may_connect = false
""")

# %% [markdown]
# ## 3. Tokens and a budget
#
# A token is a signed text that proves a name. The budget says how much each user may learn about the ages. In a
# terminal the same is
#
# ```bash
# syft token new ann --worker hospital
# syft budget create budgets
# syft budget set budgets --dataset '#ages' --epsilon 1
# ```

# %%
from syft.dp.worker_budgets import BudgetBook, Limit
from syft.identity import TokenAuthority

authority = TokenAuthority.create(home / "tokens")
tokens = {name: authority.issue(name, lifetime=3600, worker="hospital") for name in ("ann", "eve")}

book = BudgetBook.create(home / "budgets")
book.set_limit("#ages", Limit(epsilon=1.0, delta=0.0))

# %% [markdown]
# ## 4. Serve
#
# The command is `syft worker`; here we start it from Python. For other machines you add `--tls` with a certificate
# (`syft cert make`) and a public address; without both, only this machine is served. Each user's operations run in a
# process of their own.

# %%
worker = subprocess.Popen(
    [sys.executable, "-m", "syft", "worker", "--id", "hospital", "--listen", "tcp://127.0.0.1:0"]
    + ["--data", data, "--policy", home / "policy.toml", "--tokens", home / "tokens"]
    + ["--budgets", home / "budgets", "--audit", home / "audit.jsonl"],
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,  # its log
    text=True,
)
said = worker.stdout.readline()
address = re.search(r"at (\S+?),", said).group(1)
print(re.sub(r"\d{4,}", "...", said))

# %% [markdown]
# ## 5. Ann works
#
# She finds the data and computes with it. She cannot fetch it, and she is charged for what she is told.

# %%
with sy.connect(address, token=tokens["ann"], auto_add=False) as hospital:
    (ages,) = hospital.search("#ages")
    print(ages.shape)
    try:
        ages.mean().get()
    except sy.exceptions.GetNotPermittedError as error:
        print(error)
    else:
        raise AssertionError("the owner's data left")
    mean = hospital.release(ages[:, 0], "mean", epsilon=0.8, bounds=(0, 100))
    print(f"released mean: {mean:.1f}")
    try:
        hospital.release(ages[:, 0], "mean", epsilon=0.8, bounds=(0, 100))
    except sy.exceptions.BudgetExceededError as error:
        print(error)
    else:
        raise AssertionError("the budget was ignored")
assert abs(mean - rows.mean()) < 5

# %% [markdown]
# ## 6. Eve does not

# %%
try:
    sy.connect(address, token=tokens["eve"], auto_add=False)
except PermissionError as error:
    print(error)
except ConnectionError as error:
    print(error)
else:
    raise AssertionError("eve connected")

# %% [markdown]
# ## 7. Read the log, and stop

# %%
worker.terminate()
worker.wait()
worker.stdout.close()

from syft.policy.audit import read_audit_log

lines = list(read_audit_log(home / "audit.jsonl"))
for line in lines:
    print(f"{line.user or '-':5} {line.action:10} {'granted' if line.granted else 'refused'}")
assert any(line.user == "ann" and not line.granted for line in lines)
assert any(line.user == "eve" and not line.granted for line in lines)

# %%
state = BudgetBook(home / "budgets").state("#ages", "ann")
print(f"ann spent {state.spent:.1f} and has {state.left:.1f} left")
assert abs(state.left - 0.2) < 1e-9

# %% [markdown]
# What was spent is still spent after a restart. Everything here and more (mutual TLS, restarts, isolation):
# [Running a worker for your data](../owner.md), [The command line](../command_line.md).
