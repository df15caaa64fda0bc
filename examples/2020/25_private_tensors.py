"""Data that only some may fetch."""

import torch

import syft as sy
from syft.exceptions import GetNotPermittedError, SendNotPermittedError

hook = sy.TorchHook(torch)
hospital = sy.VirtualWorker(hook, id="hospital")

pressure = torch.tensor([120.0, 80.0]).tag("#blood").private_tensor(allowed_users=("ana", "ben"))
pointer = pressure.send(hospital, user="ana")
print(pointer)


def refused(error, call):
    try:
        call()
    except error as refusal:
        print("as expected:", refusal)
        return True
    return False


assert refused(GetNotPermittedError, lambda: pointer.get(user="eve"))
assert refused(GetNotPermittedError, pointer.get)

# What is computed from it is as private.
mean = pointer.mean()
assert refused(GetNotPermittedError, lambda: mean.get(user="eve"))
assert mean.get(user="ben").item() == 100
assert refused(
    SendNotPermittedError, lambda: torch.ones(2).private_tensor(allowed_users="ana").send(hospital, user="an")
)

found = hospital.search("#blood")
assert len(found) == 1
home = pointer.get(user="ana")
assert refused(SendNotPermittedError, lambda: home.send(hospital))
