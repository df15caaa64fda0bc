"""Models of Hugging Face, small and unmodified, on secrets: what plain torch gives, and cheaper the second time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.workers.virtual import VirtualWorker

transformers = pytest.importorskip("transformers")

HALF = dict(base=2, precision_fractional=16)


def bert() -> tuple[Any, Callable[[Any, Any], Any]]:
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        attn_implementation="eager",
    )
    return transformers.BertModel(config), lambda model, words: model(words).last_hidden_state


def gpt2() -> tuple[Any, Callable[[Any, Any], Any]]:
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2, attn_implementation="eager"
    )
    return transformers.GPT2LMHeadModel(config), lambda model, words: model(words, use_cache=False).logits


def gemma2() -> tuple[Any, Callable[[Any, Any], Any]]:
    """Its norms, written out, are of numbers whose squares are below a unit."""
    config = transformers.Gemma2Config(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=32,
        max_position_embeddings=16,
        attn_implementation="eager",
    )
    return transformers.Gemma2ForCausalLM(config), lambda model, words: model(words, use_cache=False).logits


@pytest.mark.parametrize("made", [bert, gpt2, gemma2])
def test_a_transformer_with_secret_weights_gives_what_it_gives_plainly(hook: Any, me: Any, made: Any) -> None:
    *holders, provider = (VirtualWorker(hook, id=f"{made.__name__}-{n}") for n in range(3))
    torch.manual_seed(0)
    plain, call = made()
    plain.eval()
    words = torch.tensor([[3, 17, 42, 8, 1]])
    secret = copy.deepcopy(plain).fix_precision(**HALF).share(*holders, crypto_provider=provider)
    sent = []
    with torch.no_grad():
        expected = call(plain, words)
        for _ in range(2):
            with sy.mpc.measure() as bill:
                found = call(secret, words)
            sent.append(bill.total.bytes)
            assert (found.get().float_precision() - expected).abs().max() < 1e-2
    assert sent[1] < 0.9 * sent[0]
