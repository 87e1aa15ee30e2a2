# SPDX-License-Identifier: Apache-2.0
"""Plain weights in every float type and every order of experts. Their values are such that NVFP4
holds them exactly: they are quantized, decoded and compared."""

import ml_dtypes
import numpy as np
from case import E2M1, Case, bf16, random, spread

LAYER = "model.layers.0."


def exact(rng, shape, dtype=bf16(0).dtype):
    """[.., n, k] values: in each matrix the largest is 6 * 448 units, in each block of 16 it is 6
    times a number that e4m3 holds."""
    codes = rng.integers(0, 16, shape)
    codes[..., ::16] = 7  # 6
    scales = rng.choice([1.0, 2.5, 7, 30, 448], (*shape[:-1], shape[-1] // 16))
    scales[..., 0, 0] = 448
    values = E2M1[codes] * spread(scales, 1, 16, shape) * 2.0**-15
    assert (values.astype(dtype).astype(np.float64) == values).all()
    return values


def case_of(name, experts, config, transposed=False, dtype=bf16(0).dtype, **more):
    """experts: names of tensors -> shapes [.., n, k]; stored [.., k, n] where `transposed`."""
    rng = random(name)
    case = Case(name, {}, config, lossless_nvfp4=True, **more)
    for tensor, shape in experts.items():
        values = exact(rng, shape, dtype)
        if transposed:
            values = np.ascontiguousarray(values.swapaxes(-1, -2))
        case.tensors[tensor], case.values[tensor] = values.astype(dtype), values
        module = tensor.removesuffix(".weight")
        case.schemes[module] = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}[np.dtype(dtype).name]
    norm = rng.uniform(0.5, 1.5, 64).astype(dtype)
    case.tensors["model.norm.weight"], case.values["model.norm.weight"] = norm, norm.astype(np.float64)
    return case


def each(experts, block="mlp", names=("gate_proj", "up_proj", "down_proj"), inner=48):
    """One matrix an expert and projection; `names` of gate, up and down, of those that there are."""
    sizes = {"gate": (inner, 64), "up": (inner, 64), "down": (64, inner)}
    return {
        f"{LAYER}{block}.experts.{expert}.{names[i]}.weight": size
        for expert in range(experts)
        for i, size in enumerate(sizes.values())
        if names[i]
    }


def qwen3(name, dtype=bf16(0).dtype):
    return case_of(name, each(2), {"model_type": "qwen3_moe", "hidden_size": 64}, dtype=dtype)


def fused(block, suffix="", names=("gate_up_proj", "down_proj"), inner=48):
    return {f"{LAYER}{block}.{names[0]}{suffix}": (3, 2 * inner, 64), f"{LAYER}{block}.{names[1]}{suffix}": (3, 64, inner)}


def cases():
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        yield qwen3(f"plain-{np.dtype(dtype).name}", dtype)
    yield case_of("plain-mixtral", each(2, "block_sparse_moe", ("w1", "w3", "w2")), {"model_type": "mixtral"})
    yield case_of("plain-nemotron", each(2, "mixer", (None, "up_proj", "down_proj")), {"model_type": "nemotron_h"})
    rows = {"model_type": "qwen3_5_moe", "text_config": {"hidden_size": 64}}
    yield case_of("plain-rows", fused("mlp.experts"), rows)
    yield case_of("plain-rows-f32", fused("mlp.experts"), rows, dtype=np.float32)
    granite = fused("block_sparse_moe", ".weight", ("input_linear", "output_linear"))
    yield case_of("plain-granite", granite, {"model_type": "granitemoe", "hidden_size": 64})
    for model, block in [("llama4_text", "feed_forward.experts"), ("qwen3_vl_moe_text", "mlp.experts"), ("gpt_oss", "mlp.experts")]:
        config = {"text_config": {"model_type": model, "hidden_size": 64}}
        yield case_of(f"plain-columns-{model}", fused(block), config, transposed=True)
        # Both sides are as long as the hidden size: the family tells.
        square = {f"{LAYER}{block}.gate_up_proj": (2, 64, 64), f"{LAYER}{block}.down_proj": (2, 64, 64)}
        yield case_of(f"plain-columns-square-{model}", square, config, transposed=True)
    square = {f"{LAYER}mlp.experts.gate_up_proj": (2, 64, 64), f"{LAYER}mlp.experts.down_proj": (2, 64, 64)}
    yield case_of("plain-square-rows", square, {"model_type": "qwen3_5_moe", "hidden_size": 64})
