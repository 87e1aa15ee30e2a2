# SPDX-License-Identifier: Apache-2.0
"""GGUF files put together by hand: every version, and types that the reference package lacks."""

from dataclasses import dataclass, field

import numpy as np
from case import Case, random

U16, U32, STRING, ARRAY = 2, 4, 8, 9  # numbers of types of values


def u32(value):
    return value.to_bytes(4, "little")


@dataclass
class RawGguf(Case):
    """tensors: name -> (number of the type, shape, bytes). What else there is, is there to be wrong."""

    version: int = 3
    pairs: list = field(default_factory=list)  # (key, number of the type, bytes, or the text of a string)
    alignment: int = 32
    more_pairs: int = 0  # that the count tells and that are not there
    more_tensors: int = 0
    shift: int = 0  # of the last tensor's offset
    damage: object = None  # called with the bytes of the file
    file: str = "model.gguf"

    def length(self, value):
        return value.to_bytes(4 if self.version == 1 else 8, "little")

    def string(self, text):
        return self.length(len(text.encode())) + text.encode()

    def pad(self, data):
        return data + bytes(-len(data) % self.alignment)

    def content(self):
        pairs = [("general.architecture", STRING, "qwen3moe"), *self.pairs]
        out = b"GGUF" + u32(self.version)
        out += self.length(len(self.tensors) + self.more_tensors) + self.length(len(pairs) + self.more_pairs)
        for key, kind, value in pairs:
            out += self.string(key) + u32(kind) + (self.string(value) if isinstance(value, str) else value)
        data = b""
        for name, (kind, shape, raw) in self.tensors.items():
            offset = len(data) + (self.shift if name == list(self.tensors)[-1] else 0)
            dims = b"".join(map(self.length, reversed(shape)))
            out += self.string(name) + u32(len(shape)) + dims + u32(kind) + offset.to_bytes(8, "little")
            data = self.pad(data + raw)
        return self.pad(out) + data

    def write(self, folder):
        folder.mkdir(parents=True)
        content = self.content()
        (folder / self.file).write_bytes(self.damage(content) if self.damage else content)


def f16_at(rng, blocks, at):
    """Finite numbers at these bytes of every block, and the numbers [.., blocks, 1]."""
    scales = rng.standard_normal(blocks.shape[:-1]).astype(np.float16)
    blocks[..., at : at + 2] = scales.view(np.uint8).reshape(*blocks.shape[:-1], 2)
    return scales.astype(np.float64)[..., None]


def bits(data, width):
    """[.., bytes] to [.., codes], low bits first."""
    codes = (data[..., None] >> np.arange(0, 8, width)) & (2**width - 1)
    return codes.reshape(*data.shape[:-1], -1).astype(np.int64)


def digits(data, count):
    """[.., bytes] to base-3 digits [.., count * bytes]: all first ones, then all second ones."""
    steps = [((data.astype(np.int64) * 3**n & 255) * 3) >> 8 for n in range(count)]
    return np.concatenate(steps, axis=-1)


def signs(rng, blocks):
    return f16_at(rng, blocks, 0) * (2 * bits(blocks[..., 2:], 1) - 1)


def pairs_of_bits(rng, blocks):
    return f16_at(rng, blocks, 0) * (bits(blocks[..., 2:], 2) - 1)


def base_3(rng, blocks):
    codes = [digits(blocks[..., :16], 5), digits(blocks[..., 16:24], 5), digits(blocks[..., 24:26], 4)]
    return f16_at(rng, blocks, 26) * (np.concatenate(codes, axis=-1) - 1)


def bytes_behind_two(rng, blocks):
    f16_at(rng, blocks, 2)  # the sum of the codes, which nothing needs
    return f16_at(rng, blocks, 0) * blocks[..., 4:].view(np.int8).astype(np.float64)


def bytes_behind_f32(rng, blocks):
    scales = rng.standard_normal(blocks.shape[:-1]).astype(np.float32)
    blocks[..., :4] = scales.view(np.uint8).reshape(*blocks.shape[:-1], 4)
    return scales.astype(np.float64)[..., None] * blocks[..., 4:260].view(np.int8).astype(np.float64)


# name -> number, elements and bytes of a block, values of random blocks whose scales it makes finite
TYPES = {
    "Q8_1": (9, 32, 36, bytes_behind_two),
    "Q8_K": (15, 256, 292, bytes_behind_f32),
    "Q1_0": (41, 128, 18, signs),
    "Q2_0": (42, 64, 18, pairs_of_bits),
    "Q2_0 (128)": (42, 128, 34, pairs_of_bits),
    "PQ2_0": (142, 128, 34, pairs_of_bits),
    "PTQ1_0": (143, 128, 28, base_3),
}


def blocks(rng, name, shape):
    """A tensor as RawGguf takes it, and its values."""
    number, elements, size, decode = TYPES[name]
    data = rng.integers(0, 256, (*shape[:-1], shape[-1] // elements, size), dtype=np.uint8)
    values = decode(rng, data).reshape(shape)
    return (number, shape, data.tobytes()), values


def whole(name, kind):
    """A layer with two stacked experts of one type."""
    rng = random(name)
    case = RawGguf(name, {})
    for tensor, n in [("ffn_gate_exps", 8), ("ffn_up_exps", 8), ("ffn_down_exps", 16)]:
        full = f"blk.0.{tensor}.weight"
        case.tensors[full], case.values[full] = blocks(rng, kind, (2, n, 256))
        case.schemes[f"blk.0.{tensor}"] = "GGUF P" + kind[:4] if kind == "Q2_0 (128)" else f"GGUF {kind}"
    return case
