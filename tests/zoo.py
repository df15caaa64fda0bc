"""The models of the zoo: small, random weights, written as people write them; one entry each.

An entry makes a model, a batch of keyword arguments and a loss. Names of the Hugging Face models are theirs; no weights
are downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import torch_zoo

VOCABULARY = 61


def logits(output: Any) -> torch.Tensor:
    return output.logits


def first(output: Any) -> torch.Tensor:
    return output[0]


def the_same(output: Any) -> torch.Tensor:
    return output


@dataclass(frozen=True)
class Entry:
    """One model of the zoo.

    make     the model, in evaluation mode
    batch    keyword arguments of a call
    loss     a scalar of what the call returns
    library  the package it needs beside torch
    outputs  the tensor of what the call returns to look at, without the loss
    without_labels  keyword arguments of a call without labels, if these are not just left out
    """

    name: str
    make: Callable[[], nn.Module]
    batch: Callable[[], dict[str, Any]]
    loss: Callable[[Any], torch.Tensor]
    library: str = "torch"
    outputs: Callable[[Any], torch.Tensor] = the_same
    without_labels: Callable[[], dict[str, Any]] | None = None

    def inputs(self) -> dict[str, Any]:
        """Arguments of a call that has no labels."""
        if self.without_labels is not None:
            return self.without_labels()
        return {name: value for name, value in self.batch().items() if name != "labels"}


def ids(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def floats(*shape: int, seed: int = 2) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def mean_square(output: Any) -> torch.Tensor:
    return (output**2).mean()


def own_loss(output: Any) -> torch.Tensor:
    return output.loss


# -- Hugging Face ------------------------------------------------------------------------------------


def hugging_face(model: str, config: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        torch.manual_seed(0)
        return getattr(transformers, model)(getattr(transformers, config)(**options)).eval()

    return make


def _with_fixed_features(make: Callable[[], Any]) -> Callable[[], nn.Module]:
    """A model of sounds whose feature encoder is not trained, as one fine-tunes it."""

    def made() -> nn.Module:
        model = make()
        model.freeze_feature_encoder()
        return model  # type: ignore[no-any-return]

    return made


_TOKENS: dict[str, Any] = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_ENCODER: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
_DECODER: dict[str, Any] = {**_ENCODER, "num_key_value_heads": 1, "max_position_embeddings": 32, **_TOKENS}


def language() -> dict[str, Any]:
    text = ids(2, 6)
    return {"input_ids": text, "labels": text}


def masked_language() -> dict[str, Any]:
    mask = torch.ones(2, 6, dtype=torch.int64)
    mask[1, 4:] = 0
    return {**language(), "attention_mask": mask}


def classified() -> dict[str, Any]:
    return {**masked_language(), "labels": torch.tensor([0, 1])}


TRANSFORMERS = [
    Entry(
        "BERT",
        hugging_face("BertForSequenceClassification", "BertConfig", **_ENCODER, **_TOKENS),
        classified,
        own_loss,
        "transformers",
        logits,
    ),
    Entry(
        "RoBERTa",
        hugging_face("RobertaForMaskedLM", "RobertaConfig", **_ENCODER, **_TOKENS),
        masked_language,
        own_loss,
        "transformers",
        logits,
    ),
    Entry(
        "DistilBERT",
        hugging_face(
            "DistilBertForSequenceClassification",
            "DistilBertConfig",
            dim=16,
            n_layers=2,
            n_heads=2,
            hidden_dim=32,
            vocab_size=VOCABULARY,
        ),
        classified,
        own_loss,
        "transformers",
        logits,
    ),
    Entry(
        "GPT-2",
        hugging_face(
            "GPT2LMHeadModel", "GPT2Config", n_embd=16, n_layer=2, n_head=2, n_positions=32, **_TOKENS
        ),
        language,
        own_loss,
        "transformers",
        logits,
    ),
    Entry(
        "Llama",
        hugging_face("LlamaForCausalLM", "LlamaConfig", **_DECODER),
        language,
        own_loss,
        "transformers",
        logits,
    ),
    Entry(
        "Mistral",
        hugging_face("MistralForCausalLM", "MistralConfig", sliding_window=4, head_dim=8, **_DECODER),
        language,
        own_loss,
        "transformers",
        logits,
    ),
    Entry(
        "Qwen2",
        hugging_face("Qwen2ForCausalLM", "Qwen2Config", **_DECODER),
        masked_language,
        own_loss,
        "transformers",
        logits,
    ),
    Entry(
        "T5",
        hugging_face(
            "T5ForConditionalGeneration",
            "T5Config",
            d_model=16,
            d_kv=8,
            d_ff=32,
            num_layers=2,
            num_heads=2,
            vocab_size=VOCABULARY,
            decoder_start_token_id=0,
        ),
        lambda: {"input_ids": ids(2, 6), "labels": ids(2, 4, seed=3)},
        own_loss,
        "transformers",
        logits,
        lambda: {"input_ids": ids(2, 6), "decoder_input_ids": ids(2, 4, seed=3)},
    ),
    Entry(
        "ViT",
        hugging_face("ViTForImageClassification", "ViTConfig", **_ENCODER, image_size=8, patch_size=4),
        lambda: {"pixel_values": floats(2, 3, 8, 8), "labels": torch.tensor([0, 1])},
        own_loss,
        "transformers",
        logits,
    ),
    Entry(
        "CLIP",
        hugging_face(
            "CLIPModel",
            "CLIPConfig",
            text_config={**_ENCODER, **_TOKENS, "max_position_embeddings": 16},
            vision_config={**_ENCODER, "image_size": 8, "patch_size": 4},
            projection_dim=8,
        ),
        lambda: {"input_ids": ids(2, 6), "pixel_values": floats(2, 3, 8, 8), "return_loss": True},
        own_loss,
        "transformers",
        lambda output: output.logits_per_image,
        lambda: {"input_ids": ids(2, 6), "pixel_values": floats(2, 3, 8, 8)},
    ),
    Entry(
        "Whisper",
        hugging_face(
            "WhisperForConditionalGeneration",
            "WhisperConfig",
            **_TOKENS,
            num_mel_bins=8,
            d_model=16,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=32,
            decoder_ffn_dim=32,
            max_source_positions=10,
            max_target_positions=16,
            decoder_start_token_id=1,
        ),
        lambda: {"input_features": floats(2, 8, 20), "labels": ids(2, 4)},
        own_loss,
        "transformers",
        logits,
        lambda: {"input_features": floats(2, 8, 20), "decoder_input_ids": ids(2, 4)},
    ),
    Entry(
        "Mamba",
        hugging_face(
            "MambaForCausalLM",
            "MambaConfig",
            **_TOKENS,
            hidden_size=16,
            state_size=4,
            num_hidden_layers=2,
            use_associative_scan=False,
        ),
        language,
        own_loss,
        "transformers",
        logits,
    ),
    Entry(
        "Wav2Vec2",
        _with_fixed_features(
            hugging_face(
                "Wav2Vec2ForSequenceClassification",
                "Wav2Vec2Config",
                **_ENCODER,
                vocab_size=VOCABULARY,
                pad_token_id=0,
                conv_dim=(8, 8),
                conv_stride=(4, 2),
                conv_kernel=(8, 4),
                num_conv_pos_embeddings=4,
                num_conv_pos_embedding_groups=2,
                apply_spec_augment=False,
                layerdrop=0.0,
            )
        ),
        lambda: {"input_values": floats(2, 160), "labels": torch.tensor([0, 1])},
        own_loss,
        "transformers",
        logits,
    ),
]


# -- plain torch ---------------------------------------------------------------------------------------


def seeded(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        torch.manual_seed(0)
        return make().eval()

    return made


def images() -> dict[str, Any]:
    return {"x": floats(2, 3, 8, 8)}


def padded() -> dict[str, Any]:
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 4:] = True
    return {"source": ids(2, 6), "target": ids(2, 4, seed=3), "padding": padding}


PLAIN = [
    Entry("ResNet", seeded(torch_zoo.ResNet), images, mean_square),
    Entry("VGG", seeded(torch_zoo.VGG), images, mean_square),
    Entry("DenseNet", seeded(torch_zoo.DenseNet), images, mean_square),
    Entry("MobileNet", seeded(torch_zoo.MobileNet), images, mean_square),
    Entry("ConvNeXt (timm's way)", seeded(torch_zoo.ConvNext), images, mean_square),
    Entry("nn.Transformer", seeded(torch_zoo.Translator), padded, mean_square),
    Entry(
        "Diffusion U-Net",
        seeded(torch_zoo.UNet),
        lambda: {"x": floats(2, 3, 8, 8), "steps": torch.tensor([3, 40])},
        mean_square,
    ),
    Entry(
        "Graph convolution",
        seeded(torch_zoo.GraphConvolution),
        lambda: {"x": floats(4, 5), "edges": torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])},
        mean_square,
    ),
    Entry(
        "LSTM",
        seeded(torch_zoo.Tagger),
        lambda: {"ids": ids(2, 6)},
        lambda output: (output[0] ** 2).mean(),
        outputs=first,
    ),
]
ALL = [*TRANSFORMERS, *PLAIN]
