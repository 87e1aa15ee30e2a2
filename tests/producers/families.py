# SPDX-License-Identifier: Apache-2.0
"""Parts that every MoE layer of a family has, missing from all layers; and FP8 models whose experts
ModelOpt quantized again."""

import ml_dtypes
import numpy as np
from case import Case, e4m3, random
from layer_faults import drop
from layer_parts import attention, matrix, norm
from small_model import nvfp4

HIDDEN, INNER, EXPERTS, LAYERS = 64, 32, 4, 3
SIZES = {"gate": (INNER, HIDDEN), "up": (INNER, HIDDEN), "down": (HIDDEN, INNER)}
# model type: block of experts, its parts beside the experts
FAMILIES = {
    "deepseek_v3": ("mlp", ("gate.weight", "gate.e_score_correction_bias")),
    "glm4_moe": ("mlp", ("gate.weight", "gate.e_score_correction_bias")),
    "kimi_linear": ("block_sparse_moe", ("gate.weight", "gate.e_score_correction_bias")),
    "minimax_m2": ("block_sparse_moe", ("gate.weight", "e_score_correction_bias")),
    "ernie4_5_moe": ("mlp", ("gate.weight", "moe_statics.e_score_correction_bias")),
    "laguna": ("mlp", ("gate.weight", "experts.e_score_correction_bias")),
    "deepseek_v2": ("mlp", ("gate.weight",)),
    "qwen2_moe": ("mlp", ("gate.weight", "shared_expert", "shared_expert_gate.weight")),
    "qwen3_next": ("mlp", ("gate.weight", "shared_expert", "shared_expert_gate.weight")),
    "gpt_oss": ("mlp", ("router.weight", "router.bias", "sinks")),
}


def part(rng, layer, block, name):
    """Tensors of one part of a layer."""
    if name == "shared_expert":
        return {f"{layer}{block}.{name}.{one}_proj.weight": matrix(rng, *size) for one, size in SIZES.items()}
    if name == "sinks":
        return {f"{layer}self_attn.sinks": matrix(rng, 4)}
    rows = 1 if "shared" in name else EXPERTS
    if "weight" in name:
        return {f"{layer}{block}.{name}": matrix(rng, rows, HIDDEN)}
    return {f"{layer}{block}.{name}": np.linspace(-1, 1, EXPERTS).astype(np.float32)}


def family(name, model_type, **config):
    rng = random(name)
    block, parts = FAMILIES[model_type]
    sizes = {"num_experts": EXPERTS, "num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "num_experts_per_tok": 2}
    case = Case(name, {"model.embed_tokens.weight": matrix(rng, 96, HIDDEN), "model.norm.weight": norm(HIDDEN)})
    case.config = {"model_type": model_type} | sizes | config
    for number in range(LAYERS):
        layer = f"model.layers.{number}."
        case.tensors |= {f"{layer}{one}_layernorm.weight": norm(HIDDEN) for one in ("input", "post_attention")}
        # Biases of an attention are none of the router.
        case.tensors |= attention(rng, layer) | {f"{layer}self_attn.q_proj.bias": matrix(rng, 64)}
        for name_of_part in parts:
            case.tensors |= part(rng, layer, block, name_of_part)
        for expert in range(EXPERTS):
            for one, size in SIZES.items():
                case.tensors[f"{layer}{block}.experts.{expert}.{one}_proj.weight"] = matrix(rng, *size)
    return case


def lacking(name, model_type, word, said, **config):
    case = family(f"fault-family-{name}", model_type, **config)
    drop(word)(case)
    case.faults, case.said = ("tensor-missing",), said
    return case


def family_cases():
    for model_type, (_, parts) in FAMILIES.items():
        yield family(f"no-fault-family-{model_type}", model_type)
        if "e_score_correction_bias" in parts[-1]:
            said = ("no e_score_correction_bias beside the router", f"model_type is {model_type}")
            yield lacking(f"{model_type}-bias", model_type, "e_score_correction_bias", said)
    for model_type in ("qwen2_moe", "qwen3_next"):
        yield lacking(f"{model_type}-shared", model_type, "shared_expert.", ("no shared expert",))
        yield lacking(f"{model_type}-gate", model_type, "shared_expert_gate.", ("no gate of the shared expert",))
    yield lacking("gpt_oss-bias", "gpt_oss", "router.bias", ("no bias of the router",))
    yield lacking("gpt_oss-sinks", "gpt_oss", "sinks", ("no sinks of the attention",))
    yield lacking("routing-bias", "minimax_m2", "correction_bias", ("use_routing_bias is true",), use_routing_bias=True)
    # What a release says that it has not.
    for model_type, says in (
        ("minimax_m2", {"use_routing_bias": False}),
        ("deepseek_v3", {"topk_method": "greedy"}),
        ("kimi_linear", {"moe_router_activation_func": "softmax"}),
        ("ernie4_5_moe", {"moe_use_aux_free": False}),
    ):
        case = family(f"no-fault-family-{model_type}-without", model_type, **says)
        drop("correction_bias")(case)
        yield case
    case = family("no-fault-family-qwen2_moe-without", "qwen2_moe", shared_expert_intermediate_size=0)
    drop("shared_expert")(case)
    yield case


def block_fp8(rng, module, n, k):
    """DeepSeek-V4's names: exponents of blocks of 128x128."""
    scale = np.full((-(-n // 128), -(-k // 128)), 119, np.uint8).view(ml_dtypes.float8_e8m0fnu)
    return {f"{module}.weight": e4m3(rng.normal(0, 50, (n, k))), f"{module}.scale": scale}


def mxfp4(rng, module, n, k):
    """DeepSeek-V4's experts: two codes a signed byte, an exponent a group of 32."""
    scale = np.full((n, k // 32), 121, np.uint8).view(ml_dtypes.float8_e8m0fnu)
    return {f"{module}.weight": rng.integers(-128, 128, (n, k // 2)).astype(np.int8), f"{module}.scale": scale}


def quantized_again(name, ignore, **block):
    """Experts in NVFP4, those of the token-prediction layer in MXFP4 as before, all else in FP8."""
    rng = random(name)
    case = Case(name, {"embed.weight": matrix(rng, 96, HIDDEN), "norm.weight": norm(HIDDEN), "head.weight": matrix(rng, 96, HIDDEN)})
    layers = {}
    for layer in ("layers.0.", "layers.1.", "mtp.0."):
        for one in ("wq", "wo"):
            case.tensors |= block_fp8(rng, f"{layer}attn.{one}", HIDDEN, HIDDEN)
        case.tensors |= {f"{layer}attn_norm.weight": norm(HIDDEN), f"{layer}ffn_norm.weight": norm(HIDDEN)}
        case.tensors[f"{layer}ffn.gate.weight"] = matrix(rng, EXPERTS, HIDDEN)
        case.tensors[f"{layer}ffn.gate.bias"] = np.linspace(-1, 1, EXPERTS).astype(np.float32)
        for expert in range(EXPERTS):
            for one, size in zip(("w1", "w3", "w2"), SIZES.values()):
                module = f"{layer}ffn.experts.{expert}.{one}"
                case.tensors |= (mxfp4 if "mtp" in layer else nvfp4)(rng, module, *size)
                if "mtp" not in layer:
                    case.tensors[f"{module}.input_scale"] = np.float32(0.002)
                    layers[module] = {"quant_algo": "NVFP4", "group_size": 16}
    case.tensors |= {"mtp.0.e_proj.weight": matrix(rng, HIDDEN, HIDDEN), "mtp.0.h_proj.weight": matrix(rng, HIDDEN, HIDDEN)}
    case.tensors |= {f"mtp.0.{one}.weight": norm(HIDDEN) for one in ("enorm", "hnorm", "norm")}
    method = {"quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0", "weight_block_size": [128, 128]}
    again = {"moe_quant_algo": "NVFP4", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers, "ignore": ignore}
    sizes = {"model_type": "deepseek_v4", "n_routed_experts": EXPERTS, "num_hidden_layers": 2, "hidden_size": HIDDEN}
    case.config = sizes | {"num_nextn_predict_layers": 1, "quantization_config": method | again | block}
    case.schemes = {"layers.0.attn.wq": "FP8", "layers.0.ffn.experts.0.w1": "NVFP4", "mtp.0.ffn.experts.0.w1": "MXFP4"}
    case.notes, case.absent = ("draft-scheme",), ("config-producer", "pattern-unmatched", "config-excludes-quantized")
    return case


def cases():
    yield from family_cases()
    yield quantized_again("released-fp8-experts-nvfp4", ["head", "layers.*.ffn.gate", "layers.0.attn*", "mtp*"])
    yield quantized_again("released-fp8-experts-nvfp4-names", ["head", "layers.0.ffn.gate", "layers.1.ffn.gate", "mtp"])
    yield quantized_again("released-fp8-experts-nvfp4-all", [])
    case = quantized_again("fault-fp8-experts-nvfp4-other", [], moe_quant_algo="FP8", quantized_layers={})
    case.faults, case.notes, case.absent = ("config-algorithm",), (), ()
    yield case
