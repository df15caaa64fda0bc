"""Families of models written out in plain torch: of torchvision and timm, a diffusion U-Net, a graph layer, an LSTM."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    """The block of a ResNet."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.downsample(x)
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)
        )
        self.layers = nn.Sequential(Residual(4, 4, 1), Residual(4, 8, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.flatten(self.avgpool(self.layers(self.stem(x))), 1))


class VGG(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inside = 3
        for outside in (4, "M", 8, "M"):
            if outside == "M":
                layers.append(nn.MaxPool2d(2, 2))
            else:
                layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU(inplace=True)]
                inside = outside
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Linear(8 * 4, 16), nn.ReLU(True), nn.Dropout(), nn.Linear(16, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.flatten(self.features(x), 1))


class DenseNet(nn.Module):
    """Every layer sees the outputs of all before it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.dense = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(4 + 2 * i), nn.ReLU(), nn.Conv2d(4 + 2 * i, 2, 3, padding=1))
            for i in range(3)
        )
        self.transition = nn.Sequential(nn.BatchNorm2d(10), nn.ReLU(), nn.Conv2d(10, 6, 1), nn.AvgPool2d(2))
        self.fc = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = [self.stem(x)]
        for layer in self.dense:
            features.append(layer(torch.cat(features, 1)))
        x = self.transition(torch.cat(features, 1))
        return self.fc(F.adaptive_avg_pool2d(F.relu(x), (1, 1)).flatten(1))


class InvertedResidual(nn.Module):
    """The block of a MobileNet: depthwise convolution, squeeze and excitation."""

    def __init__(self, inside: int, hidden: int, outside: int, stride: int) -> None:
        super().__init__()
        self.use_residual = stride == 1 and inside == outside
        self.expand = nn.Sequential(
            nn.Conv2d(inside, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.Hardswish()
        )
        self.depth = nn.Sequential(
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
        )
        self.squeeze, self.excite = nn.Conv2d(hidden, 4, 1), nn.Conv2d(4, hidden, 1)
        self.project = nn.Sequential(nn.Conv2d(hidden, outside, 1, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.depth(self.expand(x))
        scale = F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(h, 1)))))
        h = self.project(h * scale)
        return x + h if self.use_residual else h


class MobileNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            nn.Conv2d(3, 4, 3, 2, 1), InvertedResidual(4, 8, 4, 1), InvertedResidual(4, 8, 6, 2)
        )
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x).mean([2, 3]))


class ConvNext(nn.Module):
    """timm's way: LayerNorm over channels, a learnt scale of layers, paths that are dropped at random."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 2, 2)
        self.depth = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.norm = nn.LayerNorm(6)
        self.up, self.down = nn.Linear(6, 12), nn.Linear(12, 6)
        self.gamma = nn.Parameter(torch.full((6,), 0.5))
        self.head = nn.Linear(6, 3)
        self.drop = 0.3

    def _dropped(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return x
        keep = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(1 - self.drop)
        return x * keep.div_(1 - self.drop)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        h = self.norm(self.depth(x).permute(0, 2, 3, 1))
        h = (self.gamma * self.down(F.gelu(self.up(h)))).permute(0, 3, 1, 2)
        x = x + self._dropped(h)
        return self.head(x.mean((-2, -1)))


class Translator(nn.Module):
    """`nn.Transformer` with sinusoidal positions, a causal mask and padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(61, 16)
        self.transformer = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
        self.head = nn.Linear(16, 61)

    def _positions(self, length: int) -> torch.Tensor:
        place = torch.arange(length).unsqueeze(1)
        angle = place * torch.exp(torch.arange(0, 16, 2) * (-math.log(10000.0) / 16))
        table = torch.zeros(length, 16)
        table[:, 0::2] = torch.sin(angle)
        table[:, 1::2] = torch.cos(angle)
        return table

    def forward(self, source: torch.Tensor, target: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        length = target.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.embed(source) + self._positions(source.shape[1])
        y = self.embed(target) + self._positions(length)
        padded = padding.float().masked_fill(padding, float("-inf"))
        out = self.transformer(
            x,
            y,
            tgt_mask=mask,
            src_key_padding_mask=padded,
            memory_key_padding_mask=padded,
            tgt_is_causal=True,
        )
        return self.head(out)


class UNet(nn.Module):
    """A diffusion model's: embedded time steps, group norms, attention, skip connections, upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 8))
        self.down = nn.Conv2d(3, 8, 3, padding=1)
        self.smaller = nn.Conv2d(8, 8, 3, 2, 1)
        self.norm = nn.GroupNorm(2, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.up = nn.ConvTranspose2d(8, 8, 2, 2)
        self.out = nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        frequencies = torch.exp(-math.log(1000.0) * torch.arange(4, dtype=torch.float32) / 4)
        angles = steps.float()[:, None] * frequencies[None]
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
        first = F.silu(self.down(x)) + time
        h = F.silu(self.norm(self.smaller(first)))
        batch, channels, height, width = h.shape
        tokens = h.flatten(2).transpose(1, 2)
        h = h + self.attention(tokens, tokens, tokens, need_weights=False)[0].transpose(1, 2).reshape(
            batch, channels, height, width
        )
        return self.out(torch.cat([F.interpolate(self.up(h), scale_factor=1), first], 1))


class GraphConvolution(nn.Module):
    """Messages along edges, added up at the nodes and divided by their degrees."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.other = nn.Linear(5, 6), nn.Linear(5, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        source, target = edges
        messages = self.other(x)[source]
        total = torch.zeros(x.shape[0], 6).index_add_(0, target, messages)
        degree = torch.zeros(x.shape[0]).index_add_(0, target, torch.ones(edges.shape[1])).clamp(min=1)
        return self.head(F.relu(self.own(x) + total / degree.unsqueeze(1)))


class Tagger(nn.Module):
    """An LSTM over words, from a learnt first state."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(61, 8)
        self.lstm = nn.LSTM(8, 6, num_layers=2, batch_first=True, bidirectional=True)
        self.first = nn.Parameter(torch.zeros(4, 1, 6))
        self.head = nn.Linear(12, 5)

    def forward(self, ids: torch.Tensor) -> Any:
        start = self.first.expand(-1, ids.shape[0], -1).contiguous()
        out, (hidden, _) = self.lstm(self.embed(ids), (start, torch.zeros_like(start)))
        return self.head(out), hidden
