# SPDX-License-Identifier: Apache-2.0
"""AutoRound's exports of floats, in compressed-tensors' names and packing."""

import copy

import numpy as np
import plain
from case import E2M1, pack_nibbles, random, spread
from compressed_matrices import EXPERT, case_of, fp4, fp8
from compressed_tensors_faults import broken


def config(data_type, bits=4, packing="auto_round:llm_compressor", **more):
    return {
        "quantization_config": {
            "quant_method": "auto-round",
            "bits": bits,
            "sym": True,
            "data_type": data_type,
            "act_bits": 16,
            "packing_format": packing,
        }
        | more
    }


def e5m3(byte):
    exponent, mantissa = byte >> 3, byte & 7
    normal = np.exp2(exponent - 15.0) * (1 + mantissa / 8)
    return np.where(exponent == 0, np.exp2(-14.0) * mantissa / 8, normal)


def second_version(rng, n, k):
    """NVFP4 with e5m3 scales, which reach so far that they need no second factor."""
    codes = rng.integers(0, 16, (n, k))
    scales = rng.integers(1, 140, (n, k // 16))
    parts = {"weight_packed": pack_nibbles(codes), "weight_scale": scales.astype(np.uint8)}
    return parts, E2M1[codes] * spread(e5m3(scales), 1, 16, (n, k))


def whole(name, settings, scheme, make):
    rng = random(name)
    modules = {f"{EXPERT}{part}_proj": make(rng, n, k) for part, n, k in [("gate", 48, 64), ("up", 48, 64), ("down", 64, 64)]}
    return case_of(name, modules, settings, scheme)


def nv(rng, n, k):
    return fp4(rng, n, k, divisor=1234.5)


def mx(rng, n, k):
    return fp4(rng, n, k, mx=True)


def block_fp8(rng, n, k):
    parts, values = fp8(rng, n, k, "block")
    return {"weight": parts["weight"], "weight_scale_inv": parts["weight_scale"].astype(np.float32)}, values


def plain_export():
    """Quantized and decoded again: the tensors are plain, and say all."""
    block = config("int", group_size=32, packing="auto_round:fake")["quantization_config"]
    for name, packing in [("fake", "auto_round:fake"), ("fake-mx", "fake")]:
        case = plain.qwen3(f"auto-round-{name}", np.float16)
        case.config["quantization_config"] = block | {"packing_format": packing}
        case.notes = ("config-producer",)
        yield case
    quantized = whole("auto-round-fault-fake-of-codes", config("mx_fp", packing="auto_round:fake"), "AutoRound", mx)
    quantized.faults = ("config-format",)
    yield quantized


def mlx():
    """Words along the rows with a scale and a bias a group: named, with the config and without."""
    parts = {"weight": np.zeros((48, 8), np.uint32), "scales": np.ones((48, 2), np.float16), "biases": np.ones((48, 2), np.float16)}
    for name, settings in [("", config("int", packing="auto_round:mlx")), ("-no-prefix", config("int", packing="mlx")), ("-no-config", {})]:
        modules = {f"{EXPERT}{part}_proj": (parts, np.zeros((48, 64))) for part in ("gate", "up")}
        yield case_of(f"auto-round-mlx{name}", modules, settings, "MLX: words along the rows", faults=("module-unreadable",))


def cases():
    mx_config = config("mx_fp", group_size=32)
    yield whole("auto-round-mxfp4", mx_config, "AutoRound MXFP4", mx)
    yield whole("auto-round-nvfp4", config("nv_fp", group_size=16), "AutoRound NVFP4", nv)
    settings = config("nvfp4_v2", packing="auto_round:llm_compressor_nvfp4_e5m3", group_size=16)
    yield whole("auto-round-nvfp4-v2", settings, "AutoRound NVFP4", second_version)
    settings = config("fp8_e4m3", 8, "auto_round:fp8_static", group_size=-1, fmt="e4m3")
    yield whole("auto-round-fp8", settings, "AutoRound FP8", lambda rng, n, k: fp8(rng, n, k, "channel"))
    settings = config("fp8", 8, "auto_round:fp8", group_size=-1, fmt="e4m3", activation_scheme="static")
    yield whole("auto-round-fp8-tensor", settings, "AutoRound FP8", lambda rng, n, k: fp8(rng, n, k, "tensor"))
    settings = config("fp8", 8, "auto_round:fp8", group_size=[128, 128], fmt="e4m3")
    yield whole("auto-round-fp8-block", settings, "f32 scale a block of 128x128", block_fp8)
    settings = config("mx_fp8e4m3", 8, group_size=32)
    yield whole("auto-round-mxfp8", settings, "AutoRound MXFP8", lambda rng, n, k: fp8(rng, n, k, "mx"))
    yield from plain_export()
    yield from mlx()
    integer = whole("auto-round-mx-int4", config("mx_int4", group_size=32), "AutoRound", mx)
    case = broken("auto-round-mx-int", ("module-unreadable",), lambda *_: None, copy.deepcopy(integer))
    case.name = "auto-round-fault-mx-int4"
    yield case
