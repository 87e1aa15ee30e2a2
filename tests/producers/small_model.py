# SPDX-License-Identifier: Apache-2.0
"""A whole small model of one layer: in ModelOpt NVFP4, in FP8, in 16 bits; and one matrix in MXFP8."""

import numpy as np
from case import Case, bf16, e4m3, random

HIDDEN, INNER, EXPERTS, VOCAB, HEADS, KV_HEADS, HEAD_DIM = 32, 16, 4, 64, 2, 1, 16
LAYER = "model.layers.0."
ATTENTION = LAYER + "self_attn."
EXPERT = LAYER + "mlp.experts.{}.{}_proj"
UP = EXPERT.format(0, "up")
DOWN = EXPERT.format(1, "down")
GATE = EXPERT.format(0, "gate")
EXCLUDED = ["lm_head", "model.layers.0.mlp.gate", "model.layers.0.self_attn*"]


def config(**changes):
    out = {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": HIDDEN,
        "intermediate_size": 48,
        "moe_intermediate_size": INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "max_position_embeddings": 128,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "eos_token_id": 3,
        "torch_dtype": "bfloat16",
    }
    return out | changes


def plain(rng, *shape):
    return bf16(rng.normal(0, 0.05, shape))


def backbone(rng):
    out = {
        "model.embed_tokens.weight": plain(rng, VOCAB, HIDDEN),
        "model.norm.weight": bf16(np.ones(HIDDEN)),
        LAYER + "input_layernorm.weight": bf16(np.ones(HIDDEN)),
        LAYER + "post_attention_layernorm.weight": bf16(np.ones(HIDDEN)),
        LAYER + "mlp.gate.weight": plain(rng, EXPERTS, HIDDEN),
        ATTENTION + "q_norm.weight": bf16(np.ones(HEAD_DIM)),
        ATTENTION + "k_norm.weight": bf16(np.ones(HEAD_DIM)),
    }
    for name, n, k in [
        ("q", HEADS * HEAD_DIM, HIDDEN),
        ("k", KV_HEADS * HEAD_DIM, HIDDEN),
        ("v", KV_HEADS * HEAD_DIM, HIDDEN),
        ("o", HIDDEN, HEADS * HEAD_DIM),
    ]:
        out[f"{ATTENTION}{name}_proj.weight"] = plain(rng, n, k)
    return out


def projections():
    for expert in range(EXPERTS):
        for name, n, k in [("gate", INNER, HIDDEN), ("up", INNER, HIDDEN), ("down", HIDDEN, INNER)]:
            yield EXPERT.format(expert, name), n, k


def nvfp4(rng, module, n, k):
    return {
        f"{module}.weight": rng.integers(0, 256, (n, k // 2)).astype(np.uint8),
        f"{module}.weight_scale": e4m3(np.exp2(rng.uniform(-2, 2, (n, k // 16)))),
        f"{module}.weight_scale_2": np.float32(0.01),
    }


def modelopt_model(name):
    rng = random(name)
    tensors = backbone(rng)
    for module, n, k in projections():
        tensors |= nvfp4(rng, module, n, k)
    block = {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "ignore": list(EXCLUDED)}
    return Case(name, tensors, config(quantization_config=block))


def fp8(rng, module, n, k):
    return {
        f"{module}.weight": e4m3(rng.normal(0, 50, (n, k))),
        f"{module}.weight_scale": np.float32(0.001),
    }


def fp8_model(name):
    rng = random(name)
    tensors = backbone(rng)
    for module, n, k in projections():
        tensors |= fp8(rng, module, n, k)
    ignored = ["lm_head", "model.layers.0.mlp.gate", "model.layers.0.self_attn"]
    block = {"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": ignored}
    case = Case(name, tensors, config(quantization_config=block))
    case.warnings = ("layer-not-runnable",)
    return case


def mxfp8_matrix(name):
    """One matrix with exponents in bytes."""
    rng = random(name)
    tensors = {
        "model.layers.0.mlp.up_proj.weight": e4m3(rng.normal(0, 50, (8, 64))),
        "model.layers.0.mlp.up_proj.weight_scale": rng.integers(110, 120, (8, 2)).astype(np.uint8),
    }
    return Case(name, tensors, {"quantization_config": {"quant_method": "modelopt", "quant_algo": "MXFP8"}})


def plain_model(name):
    rng = random(name)
    tensors = backbone(rng)
    for module, n, k in projections():
        tensors[module + ".weight"] = plain(rng, n, k)
    return Case(name, tensors, config())


def second_layer(case, layer=1):
    for name in [name for name in case.tensors if name.startswith(LAYER)]:
        case.tensors[name.replace("layers.0", f"layers.{layer}")] = case.tensors[name]


def change(case, name, index, value):
    array = np.array(case.tensors[name])
    array.reshape(-1)[index] = value
    case.tensors[name] = array


def block(case, **changes):
    case.config["quantization_config"] |= changes


def quantize(case, module, n, k):
    case.tensors.pop(module + ".weight", None)
    case.tensors |= nvfp4(random(module), module, n, k)
