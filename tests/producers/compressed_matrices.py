# SPDX-License-Identifier: Apache-2.0
"""Matrices as compressed-tensors stores them, and the configs that go with them."""

import numpy as np
from case import E2M1, Case, bf16, e4m3, pack_nibbles, random, spread
from words import pack_stream

EXPERT = "model.layers.0.mlp.experts.0."
LINEAR = ["Linear"]


def config(weights, kind="pack-quantized", inputs=None, ignore=("lm_head",), targets=LINEAR):
    return {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": kind,
            "quantization_status": "compressed",
            "ignore": list(ignore),
            "config_groups": {
                "group_0": {"targets": list(targets), "weights": weights, "input_activations": inputs},
            },
        }
    }


def args(bits=4, **more):
    return {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32} | more


def floats(bits, **more):
    return {"num_bits": bits, "type": "float", "symmetric": True} | more


class Integers:
    """One matrix as tensors, and its values. `group` 0: a scale a row; None: one for all."""

    def __init__(self, rng, n, k, bits=4, group=32, dtype=bf16, zeros=None, order=False, pack=pack_stream):
        half = 1 << (bits - 1)
        self.codes = rng.integers(-half, half, (n, k))
        columns = -(-k // group) if group else 1
        rows = 1 if group is None else n
        self.scales = dtype(np.exp2(rng.uniform(-6, 2, (rows, columns))))
        self.zero = rng.integers(-half, half, (rows, columns)) if zeros else np.zeros((rows, columns), int)
        of_column = np.arange(k) // (group or k)
        if order:
            of_column = rng.permutation(of_column)
        wide = self.scales.astype(np.float64)
        row = 0 if rows == 1 else slice(None)
        self.values = (self.codes - self.zero[row][..., of_column]) * wide[row][..., of_column]
        packed = pack(self.codes + half, bits)
        self.parts = {
            "weight_packed": packed,
            "weight_scale": self.scales.reshape(-1) if group is None else self.scales,
            "weight_shape": np.array([n, k], np.int64),
        }
        if zeros == "packed":
            self.parts["weight_zero_point"] = np.ascontiguousarray(pack(self.zero.T + half, bits).T)
        if zeros == "plain":
            self.parts["weight_zero_point"] = self.zero.astype(np.int8)
        if order:
            self.parts["weight_g_idx"] = of_column.astype(np.int32)


def case_of(name, modules, settings, scheme, **more):
    """modules: name -> (parts, values)."""
    tensors, values = {}, {}
    for module, (parts, matrix) in modules.items():
        tensors |= {f"{module}.{suffix}": part for suffix, part in parts.items()}
        values[f"{module}.weight"] = matrix
    tensors["model.norm.weight"] = bf16(np.ones(64))
    return Case(name, tensors, settings, {}, dict.fromkeys(modules, scheme), values, **more)


def integers(name, settings=None, scheme="compressed-tensors INT4", shape=(48, 64), **more):
    rng = random(name)
    n, k = shape
    modules = {}
    for projection, rows, columns in [("gate", n, k), ("up", n, k), ("down", k, n)]:
        matrix = Integers(rng, rows, columns, **more)
        modules[f"{EXPERT}{projection}_proj"] = (matrix.parts, matrix.values)
    return case_of(name, modules, settings or config(args()), scheme)


def fp4(rng, n, k, mx=False, divisor=None):
    """The divisor is one that gate and up of an expert share, else a random one."""
    codes = rng.integers(0, 16, (n, k))
    if mx:
        bytes_ = rng.integers(100, 129, (n, -(-k // 32))).astype(np.uint8)
        scales = np.exp2(bytes_.astype(np.float64) - 127)
        return {"weight_packed": pack_nibbles(codes), "weight_scale": bytes_}, E2M1[codes] * spread(scales, 1, 32, (n, k))
    scales = e4m3(np.exp2(rng.uniform(-5, 5, (n, k // 16))))
    divisor = np.float32(rng.uniform(500, 4000) if divisor is None else divisor)
    # The reciprocal, and its product with the scale, are rounded to f32.
    scale = (scales.astype(np.float32) * (np.float32(1) / divisor)).astype(np.float64)
    parts = {
        "weight_packed": pack_nibbles(codes),
        "weight_scale": scales,
        "weight_global_scale": np.array([divisor], np.float32),
    }
    return parts, E2M1[codes] * spread(scale, 1, 16, (n, k))


NVFP4 = floats(4, strategy="tensor_group", group_size=16)
MXFP4 = floats(4, strategy="group", group_size=32, scale_dtype="torch.uint8")


def fp8(rng, n, k, granularity):
    codes = e4m3(rng.uniform(-400, 400, (n, k)))
    if granularity == "mx":
        scale = rng.integers(90, 120, (n, k // 32)).astype(np.uint8)
        wide = spread(np.exp2(scale.astype(np.float64) - 127), 1, 32, (n, k))
    else:
        shape = {"tensor": (1, 1), "channel": (n, 1), "block": (-(-n // 128), -(-k // 128))}[granularity]
        scale = bf16(np.exp2(rng.uniform(-8, 0, shape)))
        rows, cols = {"tensor": (0, 0), "channel": (1, 0), "block": (128, 128)}[granularity]
        wide = spread(scale.astype(np.float64), rows, cols, (n, k))
    if granularity == "tensor":
        scale = scale.reshape(1)
    return {"weight": codes, "weight_scale": scale}, codes.astype(np.float64) * wide
