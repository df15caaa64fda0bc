"""Shares that lie on a device: what runs there without a copy to the CPU, and what the backends have in common.

The tests marked `gpu` need a CUDA device and Triton, and run by `make gpu`; the others run everywhere, and stand for the
device by tensors without values (`fake_cuda`).
"""

from __future__ import annotations

import secrets

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import nn

from fake_cuda import CUDA, RefusingCopies, fake_cuda
from mpc.coverage import LAYERS, LOSSES
from syft.mpc import kernels
from syft.mpc.cuda import aes_tables, residues
from syft.mpc.drivers import Lockstep, Shares
from syft.mpc.placing import placed
from syft.mpc.protocols import beaver, fss, select, truncate
from syft.mpc.provider import Provider
from syft.mpc.randomness import Stream, new_seed
from syft.mpc.recording import RecordingVoidError, record
from syft.mpc.sharing import secret_of

BINARY = {"base": 2, "precision_fractional": 16}

needs_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here"),
]
DEVICES = [torch.device("cpu"), pytest.param(torch.device("cuda"), marks=needs_gpu)]


def words(*shape: int, device: torch.device | str = "cpu") -> torch.Tensor:
    return Stream().words(shape).to(device)


def exact(x: torch.Tensor, y: torch.Tensor) -> list[list[int]]:
    """The product of two matrices in Python's integers, mod 2^64, as signed words."""
    rows, columns = x.tolist(), list(zip(*y.tolist(), strict=True))
    sums = [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in rows]
    return [[(s + 2**63) % 2**64 - 2**63 for s in row] for row in sums]


# -- randomness ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", [None, *DEVICES])
def test_what_is_drawn_together_is_what_is_drawn_one_by_one(device):
    seed, shapes = new_seed(), [(3,), (), (2, 5), (0,), (1025,), (4096, 2)]
    together = list(Stream(seed).draw_all(shapes, device))
    one_by_one = Stream(seed)
    for made, shape in zip(together, shapes, strict=True):
        assert tuple(made.shape) == shape
        assert made.untyped_storage().nbytes() <= 8 * made.numel() + 16  # nobody else's words beside it
        assert torch.equal(made, one_by_one.draw(shape, device))


# -- function secret sharing -----------------------------------------------------------------------------


def by_tables(key: bytes, block: bytes) -> bytes:
    """AES-128 of one block by the tables of the device, a round as its kernel does it."""
    table, keys = (
        [int(v) & 0xFFFFFFFF for v in found]
        for found in (aes_tables.round_table(), aes_tables.round_keys(key))
    )

    def rotated(x: int, by: int) -> int:
        return ((x << by) | (x >> (32 - by))) & 0xFFFFFFFF

    state = [int.from_bytes(block[i : i + 4], "little") ^ keys[i // 4] for i in range(0, 16, 4)]
    for number in range(1, aes_tables.ROUNDS + 1):
        found = []
        for column in range(4):
            entries = [table[(state[(column + row) % 4] >> (8 * row)) & 255] for row in range(4)]
            if number == aes_tables.ROUNDS:  # without MixColumns: S(x) is the second byte
                mixed = sum(((entry >> 8) & 255) << (8 * row) for row, entry in enumerate(entries))
            else:
                mixed = 0
                for row, entry in enumerate(entries):
                    mixed ^= rotated(entry, 8 * row) if row else entry
            found.append(mixed ^ keys[4 * number + column])
        state = found
    return b"".join(word.to_bytes(4, "little") for word in state)


def test_the_devices_tables_are_those_of_aes():
    key, plain = bytes(range(16)), bytes.fromhex("00112233445566778899aabbccddeeff")
    assert by_tables(key, plain).hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"  # FIPS 197, appendix C.1
    for _ in range(20):
        key, plain = secrets.token_bytes(16), secrets.token_bytes(16)
        encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
        assert by_tables(key, plain) == encryptor.update(plain)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize(("less", "levels"), [(True, 63), (False, 64), (True, 9)])
@pytest.mark.parametrize("count", [1, 300])
def test_keys_are_made_and_evaluated_on_the_device_as_on_the_cpu(less, levels, count):
    inside = (1 << levels) - 1 if levels < 64 else -1
    alpha, z = words(count) & inside, words(count) & inside
    z[: count // 2] = alpha[: count // 2]
    seeds = [words(count, 2), words(count, 2)]
    made = fss.generate(alpha, seeds, levels, less)
    there = fss.generate(alpha.cuda(), [seed.cuda() for seed in seeds], levels, less)
    assert torch.equal(there.cpu(), made)
    shares = [
        fss.evaluate(rank, z.cuda(), seed.cuda(), there, levels, less).cpu()
        for rank, seed in enumerate(seeds)
    ]
    for rank, seed in enumerate(seeds):
        assert torch.equal(shares[rank], fss.evaluate(rank, z, seed, made, levels, less))
    assert torch.equal(shares[0] ^ shares[1], (z < alpha if less else z == alpha).long())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("times", [1, 4])  # from the third run on they are recorded
def test_comparisons_by_function_secret_sharing_stay_on_the_device(device, times):
    driver = Lockstep(2, Provider(2))
    x = torch.tensor([-3, 0, 4, 2**62, -(2**62), 2**63 - 1, -(2**63)], device=device)
    for _ in range(times):
        mask = words(7, device=device)
        shares = Shares((mask, x - mask))
        found = driver.run(select.is_negative, shares, how="fss")
        assert {share.device.type for share in found} == {device.type}
        assert (found[0] + found[1]).tolist() == (x < 0).long().tolist()
        kept = driver.run(select.relu, shares, how="fss")
        assert (kept[0] + kept[1]).tolist() == x.relu().tolist()


# -- kernels -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("rows", "inner", "columns"), [(3, 5, 4), (33, 70, 9), (1, 300, 2)])
def test_a_matrix_product_is_that_of_pythons_integers(device, rows, inner, columns):
    x, y = words(rows, inner, device=device), words(inner, columns, device=device)
    assert kernels.matmul(x, y).tolist() == exact(x, y)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "options",
    [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": 2}, {"groups": 2, "padding": 1}],
)
def test_a_convolution_and_its_gradients_are_those_of_torch_on_the_cpu(device, options):
    x, weight = words(2, 4, 9, 9), words(6, 4 // options.get("groups", 1), 3, 3)
    made = kernels.conv(x.to(device), weight.to(device), **options)
    expected = F.conv2d(x, weight, None, **options)
    assert torch.equal(made.cpu(), expected)
    grad = words(*expected.shape)
    shape = {k: v for k, v in options.items() if k != "groups"}
    groups = options.get("groups", 1)
    back = kernels.conv_grad_input(
        grad.to(device), weight.to(device), input_size=(9, 9), groups=groups, **shape
    )
    assert torch.equal(
        back.cpu(), kernels.conv_grad_input(grad, weight, input_size=(9, 9), groups=groups, **shape)
    )
    for_weight = kernels.conv_grad_weight(
        x.to(device), grad.to(device), kernel_size=(3, 3), groups=groups, **shape
    )
    assert torch.equal(
        for_weight.cpu(), kernels.conv_grad_weight(x, grad, kernel_size=(3, 3), groups=groups, **shape)
    )


@pytest.mark.parametrize("device", DEVICES)
def test_batches_broadcast_as_in_torch(device):
    for left, right in [((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((4,), (4,)), ((3, 4), (4,))]:
        x, y = words(*left), words(*right)
        assert torch.equal(kernels.matmul(x.to(device), y.to(device)).cpu(), torch.matmul(x, y))


@pytest.mark.parametrize("extreme", [-(2**63), 2**63 - 1])
def test_residues_tell_the_largest_sums_apart(extreme):
    x, y = torch.full((2, 4096), extreme), torch.full((4096, 2), extreme)
    assert torch.equal(residues.matmul_by_residues(x, y), x @ y)
    x, y = words(5, 300), words(300, 4)
    assert torch.equal(residues.matmul_by_residues(x, y), x @ y)


def test_residues_are_refused_where_their_sums_do_not_fit():
    assert len(residues.moduli_for(4096).moduli) == 18
    with pytest.raises(ValueError, match="sums 1 to"):
        residues.moduli_for(residues.MAX_INNER + 1)


# -- randomness ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_wide_words_are_chacha20_under_the_next_32_bytes(device):
    seed = new_seed()
    made = [Stream(seed).wide_words((1001,), device)]
    key = Stream(seed).raw(32)
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    assert made[0].cpu().numpy().tobytes() == cipher.update(bytes(8008))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_the_devices_cipher_gives_the_published_key_stream():
    """RFC 8439, section 2.3.2."""
    from syft.mpc.cuda import chacha

    state = np.zeros(12, dtype=np.int32)
    state[:8] = np.frombuffer(bytes(range(32)), dtype=np.int32)
    state[8] = 1
    state[9:] = np.frombuffer(bytes.fromhex("000000090000004a00000000"), dtype=np.int32)
    out = torch.empty(8, dtype=torch.int64, device="cuda")
    made = chacha.fill(out, torch.from_numpy(state).cuda()).cpu().numpy().tobytes()
    assert made.hex().startswith("10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e")


# -- programs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("holders", [2, 3])
def test_programs_give_the_same_on_every_device_run_after_run(device, holders):
    """The third run and the later ones are replayed on a device."""
    driver = Lockstep(holders, Provider(holders))
    for run in range(5):
        value = words(200) >> 3
        parts = [words(200) for _ in range(holders - 1)]
        shares = Shares(t.to(device) for t in (*parts, value - sum(parts)))
        negative = driver.run(select.is_negative, shares)
        assert torch.equal(sum(negative).cpu(), (value < 0).long()), run
        squared = driver.run(beaver.square, shares)
        assert torch.equal(sum(squared).cpu(), value * value), run
        cut = sum(driver.run(truncate.truncate, shares, 1 << 16)).cpu()
        assert int((cut - (value >> 16)).abs().max()) <= 1
        assert driver.cost.rounds == (run + 1) * 6


def test_shares_on_two_devices_are_refused():
    driver = Lockstep(2, Provider(2))
    with pytest.raises(ValueError, match="cpu and meta"):
        driver.run(beaver.square, Shares((torch.zeros(3).long(), torch.zeros(3, device="meta").long())))


def test_a_constant_is_brought_to_a_device_once():
    with fake_cuda():
        value = torch.arange(5)
    assert placed(torch.arange(5), torch.device("cpu")).device.type == "cpu"
    first = placed(torch.arange(7), CUDA)
    assert placed(torch.arange(7), CUDA) is first
    assert placed(torch.arange(8), CUDA) is not first
    assert placed(torch.arange(7).double(), CUDA) is not first
    assert value.shape == (5,)


OPERATIONS = {
    "add": lambda s: s(3, 4) + s(3, 4) + torch.ones(4),
    "product": lambda s: s(3, 4) * s(3, 4) * torch.rand(4),
    "matmul": lambda s: s(3, 4) @ s(4, 5) @ torch.rand(5, 2),
    "relu": lambda s: s(300, 4).relu(),
    "gelu": lambda s: F.gelu(s(30, 4)),
    "softmax": lambda s: s(3, 10).softmax(-1),
    "layer_norm": lambda s: F.layer_norm(s(3, 16), (16,), s(16), s(16)),
    "rms_norm": lambda s: F.rms_norm(s(3, 8), (8,), s(8)),
    "conv": lambda s: F.conv2d(s(1, 3, 8, 8), s(4, 3, 3, 3), s(4), stride=2, padding=1),
    "public_conv": lambda s: F.conv2d(s(1, 3, 8, 8), torch.rand(4, 3, 3, 3)),
    "max_pool": lambda s: F.max_pool2d(s(1, 2, 8, 8), 3, 2, 1),
    "avg_pool": lambda s: F.adaptive_avg_pool2d(s(1, 2, 8, 8), 1),
    "exp_log": lambda s: s(5).exp().log(),
    "sqrt_rsqrt": lambda s: s(5).sqrt() + s(5).rsqrt(),
    "division": lambda s: s(5) / s(5) + s(5).reciprocal(),
    "sigmoid_tanh": lambda s: s(5).sigmoid() + s(5).tanh(),
    "argmax": lambda s: s(3, 5).argmax(-1),
    "where": lambda s: torch.where(s(3) > 0, s(3), s(3)),
    "embedding": lambda s: F.embedding(torch.tensor([1, 2]), s(10, 4)),
    "attention": lambda s: F.scaled_dot_product_attention(
        s(1, 2, 6, 4), s(1, 2, 6, 4), s(1, 2, 6, 4), is_causal=True
    ),
    "structure": lambda s: torch.cat([s(3, 2), s(3, 2)], 1)[:, 1:].transpose(0, 1).contiguous().var(1),
}


QUICK = {
    "add",
    "argmax",
    "conv",
    "embedding",
    "matmul",
    "max_pool",
    "product",
    "public_conv",
    "relu",
    "structure",
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in sorted(OPERATIONS)],
)
def test_an_operation_stays_on_the_device_and_reads_no_value(workers, name):
    alice, bob, carol = workers.alice, workers.bob, workers.charlie

    def secret(*shape: int):
        return (
            torch.empty(*shape, device=CUDA).fix_precision(**BINARY).share(alice, bob, crypto_provider=carol)
        )

    with fake_cuda():
        node = OPERATIONS[name](secret)
        while not hasattr(node, "pointers"):
            node = node.child
        found = {p.location._entries[p.id_at_location].value.device for p in node.pointers}
    assert found == {CUDA}


def places_of(secret):
    node = secret_of(secret.child)
    shares = {p.location._entries[p.id_at_location].value.device for p in node.pointers}
    assert shares == {node.device}
    return node.device, node.home


def test_secrets_and_models_move_and_gradients_come_back(workers):
    holders, options = (workers.alice, workers.bob), {"crypto_provider": workers.charlie}
    here, there = (torch.device("cpu"),) * 2, (CUDA, CUDA)
    with fake_cuda():
        x = torch.empty(2, 3, device=CUDA).fix_precision(**BINARY).share(*holders, **options)
        y = x.cpu()
        assert (places_of(x), places_of(y), places_of(y.to(CUDA))) == (there, here, there)
        assert places_of(y.to(CUDA, torch.float64)) == places_of(x.to(torch.float64)) == there
        assert places_of(y.to(device=CUDA, dtype=torch.float64, copy=True)) == there
        assert places_of(y.to(CUDA, None, False, True)) == there
        assert y.to("cpu") is y
        assert y.to("cpu", copy=True) is not y
        assert places_of(x.to(torch.ones(1))) == there  # torch's own conversions move nothing
        assert x.device == y.device == torch.device("cpu")
        assert x.to(y.device) is x  # nor do those of models
        assert places_of(x.to(device=x.device, dtype=torch.float64)) == there
        assert places_of(x.to(torch.device("cpu"))) == here
        assert x.cpu().get().child.child.device == here[0]
        with torch.device(CUDA):
            model = nn.Linear(3, 2)
        model.fix_precision(**BINARY).share(*holders, **options)
        assert places_of(model.cpu().weight) == here
        assert places_of(model.to(CUDA)(x)) == there
        with torch.enable_grad():
            leaf = x.requires_grad_()
            leaf.cpu().sum().backward()
            assert places_of(leaf.grad) == there


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_secret_says_that_there_is_no_device_to_move_to(workers):
    x = torch.ones(2).fix_precision().share(workers.alice, workers.bob, crypto_provider=workers.charlie)
    with pytest.raises(ValueError, match="finds no CUDA device"):
        x.cuda()


# Layers and losses of docs/secrets_coverage.md that are not slow here.
QUICK_CASES = {"Linear", "Conv2d", "ReLU", "Embedding", "MSELoss", "L1Loss", "AvgPool2d", "MaxPool2d"}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, id=c.name, marks=() if c.name in QUICK_CASES else pytest.mark.slow)
        for c in (*LAYERS, *LOSSES)
    ],
)
def test_what_the_table_of_coverage_lists_stays_on_the_device_there_and_back(workers, case):
    """No copy to the CPU, no operation on two devices, no value that is read: forwards, and in the gradients."""
    holders, options = (workers.alice, workers.bob), {"crypto_provider": workers.charlie}

    def shared(value):
        value = torch.empty(value.shape, dtype=value.dtype, device=CUDA)
        return (value.fix_precision(**BINARY) if value.is_floating_point() else value).share(
            *holders, **options
        )

    with fake_cuda(), torch.enable_grad():
        with torch.device(CUDA):
            module = case.make()
        inputs = [shared(x) for x in case.inputs()]
        inputs = [
            x.requires_grad_() if x.is_floating_point() and (case in LAYERS or not i) else x
            for i, x in enumerate(inputs)
        ]
        if isinstance(module, nn.Module):
            module.fix_precision(**BINARY).share(*holders, **options)
        with RefusingCopies():
            out = module(*inputs)
            out = out[0] if isinstance(out, tuple) else out
            out.sum().backward()
        leaves = [x for x in inputs if x.requires_grad]
        found = [out, *(x.grad for x in leaves)]
        assert all(one is not None for one in found)
        nodes = [secret_of(one.child) for one in found]
        places = {p.location._entries[p.id_at_location].value.device for n in nodes for p in n.pointers}
        assert places == {CUDA}


# -- on a real device ------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_a_model_on_the_device_gives_what_torch_gives(workers):
    alice, bob, carol = workers.alice, workers.bob, workers.charlie
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 5),
    )
    model = model.eval().cuda()
    x = torch.randn(2, 3, 8, 8, device="cuda")
    expected = model(x)
    secret = {"crypto_provider": carol}
    hidden = x.fix_precision(**BINARY).share(alice, bob, **secret)
    model.fix_precision(**BINARY).share(alice, bob, **secret)
    with torch.no_grad():
        for _ in range(4):
            got = model(hidden).get().float_precision()
            assert got.device.type == "cuda"
            assert torch.allclose(got, expected, atol=2e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_training_on_the_device_follows_plain_training(workers):
    alice, bob, carol = workers.alice, workers.bob, workers.charlie
    torch.manual_seed(secrets.randbelow(100))
    x, y = torch.randn(16, 6, device="cuda"), torch.randn(16, 2, device="cuda")
    plain = nn.Linear(6, 2).cuda()
    shared = nn.Linear(6, 2).cuda()
    shared.load_state_dict(plain.state_dict())
    options = {"crypto_provider": carol}
    hidden, target = (t.fix_precision(**BINARY).share(alice, bob, **options) for t in (x, y))
    shared.fix_precision(**BINARY).share(alice, bob, **options)
    optimizers = [
        torch.optim.SGD(plain.parameters(), 0.1),
        torch.optim.SGD(shared.parameters(), 0.1).fix_precision(),
    ]
    for _ in range(5):
        for model, data, label, optimizer in (
            (plain, x, y, optimizers[0]),
            (shared, hidden, target, optimizers[1]),
        ):
            optimizer.zero_grad()
            (((model(data) - label) ** 2).sum() / 16).backward()
            optimizer.step()
    shared.get().float_precision()
    assert torch.allclose(shared.weight, plain.weight, atol=5e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_a_recorded_model_answers_other_inputs_until_its_weights_change(workers):
    alice, bob, carol = workers.alice, workers.bob, workers.charlie
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Softmax(-1)
    ).cuda()
    plain = nn.Sequential(
        nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Softmax(-1)
    ).cuda()
    plain.load_state_dict(model.state_dict())

    def secret(value):
        return value.fix_precision(**BINARY).share(alice, bob, crypto_provider=carol)

    secret(model)
    fast = record(model, secret(torch.randn(3, 8, device="cuda")))
    opened = set()
    for ahead in (False, True, True, False):
        x = torch.randn(3, 8, device="cuda")
        if ahead:
            fast.provide()
        stored = len(alice._entries)
        answer = fast(secret(x))
        shares = fast._group.read(answer.child.child)
        opened.add(tuple(shares[0].flatten().tolist()))
        assert torch.allclose(answer.get().float_precision(), plain(x), atol=2e-3)
        del answer, shares
        assert len(alice._entries) == stored
    assert len(opened) == 4  # fresh randomness each time
    with pytest.raises(ValueError, match="Record again for another shape"):
        fast(secret(torch.randn(2, 8, device="cuda")))
    with pytest.raises(ValueError, match="kind or precision"):
        fast(torch.randn(3, 8, device="cuda").fix_precision(base=2, precision_fractional=12).share(
            alice, bob, crypto_provider=carol
        ))  # fmt: skip
    with torch.no_grad():
        model[0].weight.mul_(2)
    with pytest.raises(RecordingVoidError, match="written to"):
        fast(secret(torch.randn(3, 8, device="cuda")))


def test_record_needs_secrets_on_a_device(workers):
    with pytest.raises(TypeError, match="no secret"):
        record(lambda x: x, torch.ones(2))
    shared = torch.ones(2).fix_precision().share(workers.alice, workers.bob, crypto_provider=workers.charlie)
    with pytest.raises(ValueError, match="lie on cpu"):
        record(lambda x: x, shared)
