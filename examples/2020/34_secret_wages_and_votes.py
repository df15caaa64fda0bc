"""Three unions compare wages: sums, a weighted mean and who pays most, on secret shares."""

import torch as th

import syft as sy

hook = sy.TorchHook(th)
a, b, c = (sy.VirtualWorker(hook, id=n) for n in ("anna", "boris", "chen"))
dealer = sy.VirtualWorker(hook, id="dealer")

wages = {"north": th.tensor([2100.0, 1950.5, 2480.0]), "south": th.tensor([1800.0, 2020.0, 1990.25])}
shared = {k: v.fix_prec().share(a, b, c, crypto_provider=dealer) for k, v in wages.items()}
total = shared["north"] + shared["south"]
mean = (total.sum() / 6).get().float_prec()
expected = th.cat(list(wages.values())).mean()
assert abs(mean - expected) < 0.1, (mean, expected)

higher = (shared["north"] > shared["south"]).get().float_prec()
assert higher.tolist() == [1.0, 0.0, 1.0]
stacked = th.stack([shared["north"], shared["south"]])
best = stacked.max().get().float_prec()
assert abs(best - 2480) < 0.1

votes = [th.tensor([1, 0, 0]), th.tensor([0, 1, 0]), th.tensor([0, 1, 0])]
ballots = [v.share(a, b, c, crypto_provider=dealer) for v in votes]
tally = ballots[0]
for ballot in ballots[1:]:
    tally = tally + ballot
winner = tally.argmax().get()
assert int(winner) == 1, winner
print("tally", tally.get().tolist())
