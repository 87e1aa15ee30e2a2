# SPDX-License-Identifier: Apache-2.0
"""FP8 codes with one scale a tensor, row, block or group of 32, under all the names they have."""

import ml_dtypes
import numpy as np
from case import Case, bf16, random, spread

MODULE = "model.layers.0.mlp.up_proj"
E8M0 = ml_dtypes.float8_e8m0fnu
CODES = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}


def config(**extra):
    return {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", **extra}}


BLOCK = config(fmt="e4m3", weight_block_size=[128, 128])


def codes(rng, shape, dtype="e4m3"):
    """Every finite code, in random order."""
    every = np.arange(256, dtype=np.uint8)
    finite = every[np.isfinite(every.view(CODES[dtype]).astype(np.float64))]
    return rng.choice(finite, shape).astype(np.uint8).view(CODES[dtype])


def scales(rng, shape, dtype=np.float32):
    return np.exp2(rng.uniform(-10, -6, shape)).astype(np.float32).astype(dtype)


def powers(rng, shape):
    """Powers of two as e8m0 bytes and as numbers."""
    byte = rng.integers(115, 124, shape).astype(np.uint8)
    return byte, np.exp2(byte.astype(np.float64) - 127)


def one(name, weight, scale, values, text, suffix="weight_scale", config=None, module=MODULE, more=None, **rest):
    """A checkpoint of one quantized matrix and a norm."""
    tensors = {f"{module}.weight": weight, f"{module}.{suffix}": scale, "model.norm.weight": bf16(np.ones(8))}
    tensors |= {f"{module}.{key}": value for key, value in (more or {}).items()}
    values = {f"{module}.weight": values, "model.norm.weight": np.ones(8)}
    schemes = {module: text, "model.norm": "bf16"}
    return Case("fp8-" + name, tensors, {} if config is None else config, {}, schemes, values, **rest)


def granular(name, shape, scale_shape, rows, cols, text, dtype=np.float32, code="e4m3", **rest):
    """scale_shape: as stored; rows and cols: weights that share a scale, 0 for all."""
    rng = random(name)
    weight = codes(rng, shape, code)
    n, k = shape[-2:]
    grid = (*shape[:-2], -(-n // rows) if rows else 1, -(-k // cols) if cols else 1)
    scale = scales(rng, grid, dtype)
    values = weight.astype(np.float64) * spread(scale.astype(np.float64), rows, cols, shape)
    return one(name, weight, scale.reshape(scale_shape), values, text, **rest)


def tensors_and_rows():
    static = {"input_scale": np.float32(0.1)}
    yield granular("tensor", (24, 40), (), 0, 0, "e4m3, f32 scale a tensor, e4m3 act", config=config())
    for name in ["float8_e4m3fn", "torch.float8_e4m3fn", "E4M3"]:
        yield granular(f"fmt-{name}", (24, 40), (), 0, 0, "e4m3, f32 scale a tensor", config=config(fmt=name))
    yield granular("tensor-1", (24, 40), (1,), 0, 0, "scale a tensor", config=config(activation_scheme="static"), more=static)
    yield granular("tensor-no-config", (24, 40), (1, 1), 0, 0, "f32 scale a tensor)")
    yield granular("row", (24, 40), (24, 1), 1, 0, "bf16 scale a row", bf16(0).dtype, config=config())
    yield granular(
        "row-fbgemm",
        (24, 40),
        (24,),
        1,
        0,
        "f32 scale a row, e4m3 act",
        config={"quantization_config": {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}},
        more={"input_scale_ub": np.array([1200], np.float32)},
    )
    yield granular("row-f16", (24, 40), (24, 1), 1, 0, "f16 scale a row", np.float16, config=config())
    for suffix in ["scale", "scale_inv", "weight_scale_inv", "qscale_weight"]:
        yield granular("tensor-" + suffix, (24, 40), (1,), 0, 0, "f32 scale a tensor", suffix=suffix, config=config())
    for producer in ["compressed-tensors", "quark", "auto-round"]:
        name = {"quark": "Quark", "auto-round": "AutoRound"}.get(producer, producer)
        yield granular(
            "row-" + producer,
            (24, 40),
            (24, 1),
            1,
            0,
            name + " FP8",
            bf16(0).dtype,
            config={"quantization_config": {"quant_method": producer}},
        )


def blocks():
    for n, k in [(256, 384), (300, 200), (130, 129), (64, 96)]:
        grid = (-(-n // 128), -(-k // 128))
        yield granular(
            f"block-{n}x{k}", (n, k), grid, 128, 128, "f32 scale a block of 128x128", suffix="weight_scale_inv", config=BLOCK
        )
    yield granular(
        "block-bf16", (300, 200), (3, 2), 128, 128, "bf16 scale a block", bf16(0).dtype, suffix="weight_scale_inv", config=BLOCK
    )
    yield granular("block-no-config", (300, 200), (3, 2), 128, 128, "block of 128x128", suffix="weight_scale_inv")
    yield granular("block-named-scale", (300, 200), (3, 2), 128, 128, "block of 128x128", config=BLOCK)
    yield granular("block-4d", (300, 200), (3, 1, 2, 1), 128, 128, "block of 128x128", config=BLOCK)
    for rows, cols in [(32, 32), (64, 128), (96, 48)]:
        grid = (-(-100 // rows), -(-150 // cols))
        yield granular(
            f"block-of-{rows}x{cols}",
            (100, 150),
            grid,
            rows,
            cols,
            f"block of {rows}x{cols}",
            suffix="weight_scale_inv",
            config=config(weight_block_size=[rows, cols]),
        )


def blocks_of_halves():
    """gate and up of 192 rows: each in blocks of its own, alone or one above the other."""
    alone = granular(
        "block-ragged-half",
        (192, 200),
        (2, 2),
        128,
        128,
        "f32 scale a block of 128x128",
        suffix="weight_scale_inv",
        config=BLOCK,
        module="model.layers.0.mlp.gate_proj",
        notes=("scale-block-ragged",),
    )
    yield alone
    rng = random("pieces")
    weight = codes(rng, (384, 200))
    scale = scales(rng, (4, 2))
    halves = [spread(scale[rows].astype(np.float64), 128, 128, (192, 200)) for rows in (slice(2), slice(2, 4))]
    values = weight.astype(np.float64) * np.concatenate(halves)
    module = "model.layers.0.mlp.gate_up_proj"
    yield one("block-pieces", weight, scale, values, "FP8", "weight_scale_inv", BLOCK, module, notes=("scale-pieces",))


def powers_of_two():
    for name, stored, suffix, extra in [
        ("f8", "e8m0", "scale", {"scale_fmt": "ue8m0"}),
        ("u8", "u8", "weight_scale_inv", {"scale_fmt": "ue8m0"}),
        ("f32", "f32", "weight_scale_inv", {"scale_fmt": "ue8m0"}),
        ("no-scale-fmt", "e8m0", "scale", {}),
    ]:
        rng = random(name)
        weight = codes(rng, (300, 200))
        byte, scale = powers(rng, (3, 2))
        kept = {"e8m0": byte.view(E8M0), "u8": byte, "f32": scale.astype(np.float32)}[stored]
        yield one(
            "ue8m0-" + name,
            weight,
            kept,
            weight.astype(np.float64) * spread(scale, 128, 128, (300, 200)),
            "FP8 (e4m3, f32 scale a block" if stored == "f32" else "FP8 (e4m3, e8m0 scale a block",
            suffix,
            config(weight_block_size=[128, 128], **extra),
        )
    for stored in ["u8", "e8m0"]:
        rng = random(stored)
        weight = codes(rng, (24, 80))
        byte, scale = powers(rng, (24, 3))
        values = weight.astype(np.float64) * spread(scale, 1, 32, (24, 80))
        yield one("mx-" + stored, weight, byte if stored == "u8" else byte.view(E8M0), values, "e8m0 scale a group of 32")


def other_codes():
    for code in ["e5m2", "e4m3fnuz", "e5m2fnuz"]:
        yield granular(code, (24, 40), (24, 1), 1, 0, f"({code}, f32 scale a row", code=code, config=config(fmt=code))


def every_byte_twice_fnuz():
    """The same byte means half as much, so twice the scale gives the same values."""
    every = np.array([b for b in range(256) if b not in (0x7F, 0x80, 0xFF)], np.uint8).reshape(23, 11)
    values = every.view(CODES["e4m3"]).astype(np.float64) * 0.25
    case = one("fnuz-is-half", every.view(CODES["e4m3fnuz"]), np.float32(0.5), values, "e4m3fnuz")
    return case


def fused_on_disk():
    """gate and up in one matrix, with one scale for both or one for each."""
    module = "model.layers.0.mlp.gate_up_proj"
    yield granular("fused-one-scale", (48, 40), (1,), 0, 0, "f32 scale a tensor", module=module, config=config())
    yield granular("fused-two-scales", (48, 40), (2,), 24, 0, "f32 scale a run of 24 rows", module=module, config=config())


def fused_qkv():
    """q, k and v in one matrix with a scale each; heads say which rows are whose."""
    rng = random("fused-qkv")
    weight = codes(rng, (64, 40))
    scale = scales(rng, (3,))
    rows = np.repeat(scale.astype(np.float64), [32, 16, 16])[:, None]
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    module = "model.layers.0.self_attn.qkv_proj"
    text = "f32 scale a run of 16 rows"
    case = one("fused-qkv", weight, scale, weight.astype(np.float64) * rows, text, config=config() | heads, module=module)
    yield case
    alone = one("fault-fused-qkv", weight, scale, weight.astype(np.float64), "", config=config(), module=module)
    alone.schemes[module] = "weight_scale of shape [3] for a weight of [64, 40]"
    alone.faults = ("module-unreadable",)
    yield alone


def left_over():
    """A scale beside 16-bit weights is not theirs."""
    plain = bf16(np.ones((24, 40)))
    case = one("left-over", plain, np.ones((1, 1), np.float32), np.ones((24, 40)), "bf16", "weight_scale_inv")
    case.faults = ("scale-unapplied",)
    return case


def pieces():
    """Four pieces of 40 rows, each with its own blocks of 32: 8 rows of scales, not 5."""
    rng = random("pieces")
    weight = codes(rng, (160, 64))
    scale = scales(rng, (8, 2))
    full = np.concatenate([spread(scale[2 * i : 2 * i + 2].astype(np.float64), 32, 32, (40, 64)) for i in range(4)])
    return one(
        "pieces",
        weight,
        scale,
        weight.astype(np.float64) * full,
        "f32 scale a block of 8x32",
        "weight_scale_inv",
        config(weight_block_size=[32, 32]),
        module="model.layers.0.self_attn.qkv_proj",
        warnings=("fused-order-unknown",),
    )


def outer_matrices():
    """Embeddings and output heads under the names that families give them."""
    for module in ("model.embed_tokens", "backbone.embeddings", "gpt_neox.embed_in", "embed_out", "transformer.output_layer", "lm_head"):
        case = granular(f"outer-{module}", (48, 64), (48, 1), 1, 0, "f32 scale a row", module=module)
        case.notes = ("embedding-quantized",)
        yield case
    case = granular("outer-none", (48, 64), (48, 1), 1, 0, "f32 scale a row")
    case.absent = ("embedding-quantized",)
    yield case


def static_activations():
    """Their scales must be there where the config says so."""
    for name, says, suffix in [
        ("missing", "static", None),
        ("input", "static", "input_scale"),
        ("activation", "static", "activation_scale"),
        ("dynamic", "dynamic", None),
    ]:
        case = granular(
            f"static-{name}", (48, 64), (), 0, 0, "f32 scale a tensor", config=config(activation_scheme=says)
        )
        if suffix:
            case.tensors[f"{MODULE}.{suffix}"] = np.float32(0.01)
        case.faults = ("input-scale-missing",) if name == "missing" else ()
        yield case
    for name, spelling in [("mistral", "up_proj_activation_scale"), ("mistral-native", "up_proj_qscale_act"), ("underscore", "up_proj_input_scale")]:
        case = granular(f"static-{name}", (48, 64), (), 0, 0, "e4m3 act", config=config(activation_scheme="static"))
        case.tensors["model.layers.0.mlp." + spelling] = np.float32(0.01)
        case.notes = ("input-scale-unused",)
        case.absent = ("input-scale-missing",)
        yield case
    # One of two layers.
    case = granular("static-one-missing", (48, 64), (), 0, 0, "f32 scale a tensor", config={})
    for suffix in ("weight", "weight_scale"):
        case.tensors[f"model.layers.1.mlp.up_proj.{suffix}"] = case.tensors[f"{MODULE}.{suffix}"]
    case.tensors[f"{MODULE}.input_scale"] = np.float32(0.01)
    case.notes = ("input-scale-missing",)
    case.values = {}
    yield case


def cases():
    yield from blocks_of_halves()
    yield from tensors_and_rows()
    yield from blocks()
    yield from powers_of_two()
    yield from other_codes()
    yield every_byte_twice_fnuz()
    yield from fused_on_disk()
    yield from fused_qkv()
    yield left_over()
    yield pieces()
    yield from static_activations()
    yield from outer_matrices()
