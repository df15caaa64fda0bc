"""The cases of MPC that ours and the peers run: one table, so that all run the same. Imports nothing."""

from __future__ import annotations

#: elements, or the edge of a square matrix, or the batch; small ones for `--tiny`
SIZES = {
    "lt_1e6": (1_000_000, 1000),
    "relu_1e6": (1_000_000, 1000),
    "mul_1e6": (1_000_000, 1000),
    "matmul_512": (512, 16),
    "matmul_1024": (1024, 16),
    "mlp_128": (128, 2),
    "cnn_1": (1, 1),
    "cnn_128": (128, 2),
    "sgd_mse": (64, 2),
    "sgd_ce": (64, 2),
    "softmax": (32, 2),
    "exp_1e5": (100_000, 100),
    "sigmoid_1e5": (100_000, 100),
    "tanh_1e5": (100_000, 100),
    "reciprocal_1e5": (100_000, 100),
    "sqrt_1e5": (100_000, 100),
    "log_1e5": (100_000, 100),
    "max_pool": (32, 8),
    "conv": (56, 8),
}

#: These are of numbers above 0: as CrypTen's documentation has it, between 0.1 and 100 for `sqrt`, `log` and `1 / x`.
POSITIVE = ("reciprocal_1e5", "sqrt_1e5", "log_1e5")
#: Functions of single numbers: their errors are told beside those of the encoded numbers, too.
FUNCTIONS = ("exp_1e5", "sigmoid_1e5", "tanh_1e5", *POSITIVE)


def size_of(case: str, is_tiny: bool) -> int:
    return SIZES[case][is_tiny]
