# SPDX-License-Identifier: Apache-2.0
"""AutoRound's exports of MLX's words: codes along the rows with a scale and an offset a group."""

import numpy as np
from auto_round_floats import config
from case import bf16, random, spread
from compressed_matrices import EXPERT, case_of


def words_of(codes, bits):
    """[.., k] codes to [.., k * bits / 32] words, lowest bits first."""
    stream = (codes[..., None] >> np.arange(bits)) & 1
    return np.packbits(stream.astype(np.uint8).reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little").view(np.uint32)


def affine(rng, shape, bits, group, dtype):
    """Parts, values and sums of magnitudes of words with a scale and an offset a group."""
    codes = rng.integers(0, 1 << bits, shape)
    grid = (*shape[:-1], shape[-1] // group)
    scales = (rng.choice([-1, 1], grid) * np.exp2(rng.uniform(-9, -5, grid))).astype(dtype)
    biases = (scales.astype(np.float64) * -rng.uniform(0, 1 << bits, grid)).astype(dtype)
    products = codes * spread(scales.astype(np.float64), 1, group, shape)
    offsets = spread(biases.astype(np.float64), 1, group, shape)
    return {"weight": words_of(codes, bits), "scales": scales, "biases": biases}, products + offsets, np.abs(products) + np.abs(offsets)


def affine_case(name, bits=4, group=64, dtype=np.float16, packing="auto_round:mlx", shape=(48, 192)):
    rng = random(name)
    settings = config("int", bits=bits, packing=packing)
    settings["quantization_config"]["group_size"] = group
    case = case_of(name, {}, settings, "")
    for part in ("gate", "up", "down"):
        module = f"{EXPERT}{part}_proj"
        size = shape if part != "down" else (shape[1], shape[0])
        if size[1] % group or size[1] * bits % 32:
            size = shape
        parts, values, sums = affine(rng, size, bits, group, dtype)
        case.tensors |= {f"{module}.{suffix}": tensor for suffix, tensor in parts.items()}
        case.values[f"{module}.weight"], case.magnitudes[f"{module}.weight"] = values, sums
        case.schemes[module] = f"AutoRound INT{bits} (u{bits}"
    return case


def sizes():
    """Words along the rows with a scale and an offset a group."""
    for bits, group, dtype in [(2, 32, np.float32), (3, 64, np.float16), (4, 64, bf16(0).dtype), (4, 32, np.float16), (5, 64, np.float16), (6, 64, bf16(0).dtype), (8, 64, np.float16)]:
        yield affine_case(f"auto-round-mlx-{bits}-{group}", bits, group, dtype)
    yield affine_case("auto-round-mlx-no-prefix", packing="mlx")
    both = affine_case("auto-round-mlx-both-keys")
    both.config["quantization"] = {"bits": 4, "group_size": 64}
    yield both
    own = affine_case("auto-round-mlx-rule")
    module, rng = f"{EXPERT}down_proj", random("rule")
    parts, values, sums = affine(rng, (192, 64), 8, 32, np.float16)
    own.tensors |= {f"{module}.{suffix}": tensor for suffix, tensor in parts.items()}
    own.values[f"{module}.weight"], own.magnitudes[f"{module}.weight"] = values, sums
    own.schemes[module] = "AutoRound INT8"
    own.config["quantization_config"]["extra_config"] = {module: {"bits": 8, "group_size": 32}}
    yield own
    stacked = affine_case("auto-round-mlx-stacked")
    stacked.tensors = {"model.norm.weight": bf16(np.ones(128))}
    stacked.values, stacked.schemes, stacked.magnitudes = {}, {}, {}
    stacked.config |= {"model_type": "qwen3_moe", "hidden_size": 128}
    for part, shape in [("gate", (3, 64, 128)), ("up", (3, 64, 128)), ("down", (3, 128, 64))]:
        module = f"model.layers.0.mlp.switch_mlp.{part}_proj"
        parts, stacked.values[f"{module}.weight"], stacked.magnitudes[f"{module}.weight"] = affine(rng, shape, 4, 32, np.float16)
        stacked.tensors |= {f"{module}.{suffix}": tensor for suffix, tensor in parts.items()}
        stacked.schemes[module] = "AutoRound INT4"
    stacked.config["quantization_config"]["group_size"] = 32
    yield stacked
    yield from faults()


def faults():
    unread = ("module-unreadable",)
    up = f"{EXPERT}up_proj."
    for name, faults, change in [
        ("group", unread, lambda t, c: c.update(group_size=32)),
        ("bits", unread, lambda t, c: c.update(bits=8)),
        ("no-bits", unread, lambda t, c: c.pop("bits")),
        ("biases-shape", unread, lambda t, c: t.update({up + "biases": t[up + "biases"][:, :-1]})),
        ("biases-type", unread, lambda t, c: t.update({up + "biases": t[up + "biases"].astype(np.int32)})),
        ("other-part", unread, lambda t, c: t.update({up + "g_idx": np.zeros(192, np.int32)})),
        ("biases-nan", ("zeros-value",), lambda t, c: t[up + "biases"].__setitem__((3, 1), np.nan)),
        ("scales-nan", ("scale-nan",), lambda t, c: t[up + "scales"].__setitem__((3, 1), np.nan)),
        ("format", ("config-format",), lambda t, c: c.update(packing_format="auto_round:auto_gptq")),
    ]:
        case = affine_case(f"auto-round-fault-mlx-{name}")
        case.schemes, case.faults = {}, faults
        change(case.tensors, case.config["quantization_config"])
        yield case
    # Without a config nothing tells their width.
    parts = {"weight": np.zeros((48, 8), np.uint32), "scales": np.ones((48, 2), np.float16), "biases": np.ones((48, 2), np.float16)}
    modules = {f"{EXPERT}{part}_proj": (parts, np.zeros((48, 64))) for part in ("gate", "up")}
    yield case_of("auto-round-mlx-no-config", modules, {}, "MLX: words along the rows", faults=unread)


def copies():
    """MLX's own block beside AutoRound's."""
    for fault, copied, more in [
        ("bits", {"bits": 8, "group_size": 32}, {}),
        ("group", {"bits": 4, "group_size": 32}, {}),
        ("mode", {"bits": 4, "group_size": 64, "mode": "mxfp4"}, {}),
        ("mode-alone", {"mode": "mxfp4"}, {}),
        ("one", {"bits": 4, "group_size": 64, f"{EXPERT}up_proj": {"bits": 8, "group_size": 64}}, {}),
        ("plain", {"bits": 4, "group_size": 64, f"{EXPERT}up_proj": False}, {}),
    ]:
        case = affine_case(f"auto-round-fault-mlx-copy-{fault}")
        case.config["quantization"] = copied
        rule = "module-unreadable" if fault == "bits" else "config-places-differ"
        case.faults, case.schemes, case.refused = (rule,), {}, fault == "bits"
        yield case
    for kind in ("mx_fp4", "nv_fp4", "fp8", "zzz", 7):
        case = affine_case(f"auto-round-fault-mlx-type-{kind}")
        case.config["quantization_config"]["data_type"] = kind
        case.faults = ("config-format",)
        yield case
    case = affine_case("auto-round-mlx-copy-modes")
    case.config["quantization"] = {"bits": 4, "group_size": 64, "mode": "affine", f"{EXPERT}up_proj": {"bits": 4}}
    yield case


def cases():
    yield from sizes()
    yield from copies()
