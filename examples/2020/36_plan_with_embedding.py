"""A spam filter as a plan: weights are fetched by a phone, run there, and never see the text elsewhere."""

import torch as th

import syft as sy

hook = sy.TorchHook(th)
th.manual_seed(3)
bob = sy.VirtualWorker(hook, id="bob")


class Spam(sy.Plan):
    def __init__(self):
        super().__init__()
        self.table = th.nn.Embedding(20, 4)
        self.out = th.nn.Linear(4, 2)

    def forward(self, words):
        h = self.table(words).mean(dim=1)
        return th.nn.functional.log_softmax(self.out(h), dim=1)


spam = Spam()
words = th.tensor([[1, 2, 3], [4, 5, 6]])
spam.build(words)
here = spam(words)
ptr = spam.send(bob)
there = ptr(words.send(bob)).get()
assert th.allclose(here, there, atol=1e-6)
fetched = sy.local_worker.fetch_plan(ptr.id_at_location, bob)
assert th.allclose(fetched(words), here, atol=1e-6)
print("plan", here.exp()[:, 1].tolist())


@sy.func2plan(args_shape=[(3, 1)])
def normalise(x):
    return (x - x.mean()) / (x.std() + 0.1)


p = normalise.send(bob)
print(p(th.tensor([[1.0], [2.0], [3.0]]).send(bob)).get().view(-1))
