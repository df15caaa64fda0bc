"""The course's first lessons: databases, a differencing attack, randomised response, and noise."""

import torch

import syft as sy

hook = sy.TorchHook(torch)
hospital = sy.VirtualWorker(hook, id="hospital")
torch.manual_seed(0)


def get_parallel_db(db, remove_index):
    return torch.cat((db[0:remove_index], db[remove_index + 1 :]))


def create_db_and_parallels(num_entries):
    db = torch.rand(num_entries) > 0.5
    return db, [get_parallel_db(db, i) for i in range(len(db))]


db, pdbs = create_db_and_parallels(100)


def sensitivity(query, db, pdbs):
    full = query(db)
    return max(torch.abs(query(pdb) - full).item() for pdb in pdbs)


assert sensitivity(lambda d: d.float().sum(), db, pdbs) == 1
assert abs(sensitivity(lambda d: d.float().mean(), db, pdbs) - 1 / 200) < 2e-3

# A differencing attack, on remote data.
remote = db.float().send(hospital)
tenth = remote.sum() - get_parallel_db(db, 10).float().send(hospital).sum()
assert tenth.get().item() == db[10].float().item()


# Local differential privacy: everyone flips coins.
def randomised_mean(db):
    first, second = torch.rand(len(db)) > 0.5, torch.rand(len(db)) > 0.5
    answers = torch.where(first, db, second).float()
    return answers.mean() * 2 - 0.5


big, _ = torch.rand(20_000) > 0.3, None
assert abs(randomised_mean(big) - big.float().mean()) < 0.03

# Global differential privacy: Laplace noise on the sum, where the data is.
epsilon = 0.5
noise = torch.distributions.Laplace(0.0, 1 / epsilon).sample((1,))
noisy = (remote.sum() + noise.send(hospital)).get()
assert abs(noisy.item() - db.sum().item()) < 30
