# SPDX-License-Identifier: Apache-2.0
"""FP8 experts: all of a layer in one tensor, either way round, and under DeepSeek-V4's names."""

import numpy as np
from case import Case, random, spread
from fp8 import BLOCK, E8M0, codes, config, powers, scales


def fused_experts(suffix, weight_suffix="", joint="_"):
    """Decoded they have no suffix, as Transformers names them, whatever the codes had."""
    rng = random(suffix)
    tensors, values = {}, {}
    for name, n, k in [("gate_up_proj", 300, 200), ("down_proj", 200, 150)]:
        module = f"model.layers.0.mlp.experts.{name}"
        weight = codes(rng, (3, n, k))
        scale = scales(rng, (3, -(-n // 128), -(-k // 128)))
        tensors |= {module + weight_suffix: weight, f"{module}{joint}{suffix}": scale}
        values[module] = weight.astype(np.float64) * spread(scale.astype(np.float64), 128, 128, (n, k))
    text = "f32 scale a block of 128x128"
    case = Case("fp8-fused-" + suffix, tensors, BLOCK | {"hidden_size": 200}, values=values)
    case.schemes = dict.fromkeys(values, text)
    return case


TRANSPOSED = {
    # the scale of a tensor, as stored, for experts, in and out; then what it spreads to [E, in, out]
    "scalar": (lambda e, n, k: (), "scale a tensor"),
    "expert": (lambda e, n, k: (e,), "scale a tensor"),
    "expert-4d": (lambda e, n, k: (e, 1, 1), "scale a tensor"),
    "row": (lambda e, n, k: (e, 1, n), "scale a row"),
    "row-vector": (lambda e, n, k: (e, n), "scale a row"),
    "row-other-way": (lambda e, n, k: (e, n, 1), "scale a row"),
    "block": (lambda e, n, k: (e, -(-k // 128), -(-n // 128)), "scale a block of 128x128"),
}


def transposed_experts(name, suffix="weight_scale", config=None):
    """All experts as [E, in, out], as Llama 4 has them in 16 bits, with scales beside them."""
    rng = random(name)
    shape_of, text = TRANSPOSED[name]
    tensors, values, schemes = {}, {}, {}
    for projection, n, k in [("gate_up_proj", 300, 200), ("down_proj", 200, 150)]:
        module = f"language_model.model.layers.0.feed_forward.experts.{projection}"
        weight = codes(rng, (3, k, n))
        scale = scales(rng, shape_of(3, n, k))
        full = scale.astype(np.float64)
        if name == "block":
            full = spread(full, 128, 128, (k, n))
        else:
            full = full.reshape((1, 1, 1) if full.size == 1 else (3, 1, -1))
        tensors |= {module: weight, f"{module}_{suffix}": scale}
        values[module] = weight.astype(np.float64) * full
        schemes[module] = text
    text_config = {"model_type": "llama4_text", "hidden_size": 200}
    return Case(f"fp8-transposed-{name}", tensors, (config or {}) | {"text_config": text_config}, {}, schemes, values)


def transposed():
    yield from (transposed_experts(name) for name in TRANSPOSED if name != "scalar")
    modelopt = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}
    yield transposed_experts("scalar", config=modelopt)
    turns = transposed_experts("row")
    turns.name = "fp8-fault-transposed-in-turn"
    turns.config = {"model_type": "gpt_oss", "hidden_size": 200}
    turns.schemes = {next(iter(turns.schemes)): "gate and up rows in turn of codes are not readable"}
    turns.faults = ("module-unreadable",)
    yield turns
    square = transposed_experts("expert")
    square.name = "fp8-fault-transposed-square"
    module = next(iter(square.tensors))
    square.tensors[module] = codes(random(square.name), (3, 200, 200))
    square.tensors[f"{module}_weight_scale"] = np.ones((3, 200, 1), np.float32)
    square.schemes[module] = "weight_scale of shape [3, 200, 1]"
    square.faults = ("module-unreadable",)
    yield square


def deepseek_v4():
    """Names without "model.", a scale in e8m0, experts in fp8."""
    rng = random("deepseek-v4")
    tensors, values = {}, {}
    for name in ["w1", "w3", "w2"]:
        module = f"layers.0.ffn.experts.0.{name}"
        n, k = (128, 256) if name == "w2" else (256, 128)
        weight = codes(rng, (n, k))
        byte, scale = powers(rng, (n // 128, k // 128))
        tensors |= {f"{module}.weight": weight, f"{module}.scale": byte.view(E8M0)}
        values[f"{module}.weight"] = weight.astype(np.float64) * spread(scale, 128, 128, (n, k))
    case = Case("fp8-deepseek-v4", tensors, config(weight_block_size=[128, 128], scale_fmt="ue8m0"), values=values)
    case.config["expert_dtype"] = "fp8"
    case.schemes = {f"layers.0.ffn.experts.0.{name}": "e8m0 scale a block of 128x128" for name in ["w1", "w2", "w3"]}
    return case


def activation_scales():
    """Beside the experts' own suffixes, under all names."""
    for suffix in ("activation_scale", "qscale_act", "input_scale_ub"):
        case = fused_experts("scale_inv")
        case.name = f"fp8-fused-{suffix}"
        for module in list(case.values):
            case.tensors[f"{module}_{suffix}"] = np.float32(0.02)
        case.notes, case.absent = ("input-scale-unused",), ("module-unreadable",)
        yield case


def cases():
    yield from activation_scales()
    yield fused_experts("scale_inv")
    yield fused_experts("scales_inv")
    yield fused_experts("weight_scale_inv", ".weight", ".")
    yield from transposed()
    yield deepseek_v4()
