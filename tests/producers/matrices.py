# SPDX-License-Identifier: Apache-2.0
"""Matrices stored twice, or with tensors beside them that nothing applies; square experts; routers."""

from dataclasses import replace

import numpy as np
from case import Case, bf16, e4m3, random
from small_model import (
    ATTENTION,
    DOWN,
    EXPERTS,
    HIDDEN,
    INNER,
    LAYER,
    block,
    change,
    fp8_model,
    modelopt_model,
    nvfp4,
    plain,
    plain_model,
    quantize,
)


def plain_values():
    """Numbers that are none in weights that are copied, and a type that nothing reads."""
    for make in (modelopt_model, plain_model):
        for name, tensor in [
            ("matrix", ATTENTION + "q_proj.weight"),
            ("norm", "model.norm.weight"),
            ("router", LAYER + "mlp.gate.weight"),
            ("embedding", "model.embed_tokens.weight"),
        ]:
            for value in (np.nan, np.inf, -np.inf):
                case = make(f"fault-value-{make.__name__}-{name}-{value}")
                change(case, tensor, 7, value)
                case.faults = ("weight-nan",)
                yield case
            case = make(f"fault-f64-{make.__name__}-{name}")
            case.tensors[tensor] = case.tensors[tensor].astype(np.float64)
            case.faults = ("tensor-dtype",)
            yield case
    # Masks and sinks hide what they hide.
    case = Case("no-fault-masks", {}, {"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "ignore": ["*attn*"]}})
    case.tensors = nvfp4(random("masks"), LAYER + "mlp.down_proj", HIDDEN, INNER)
    case.tensors[ATTENTION + "attention_mask"] = np.full((4, 4), -np.inf, np.float32)
    case.tensors[ATTENTION + "sinks"] = bf16(np.full(4, -np.inf))
    yield case


def square_experts():
    """[experts, a, a]: which way round only another matrix or the family tells."""
    size, shape = 32, (EXPERTS, 32, 32)

    def case(name, model_type, gate_up=None):
        config = {"hidden_size": size} | ({"model_type": model_type} if model_type else {})
        halves = ("gate_up_proj",) if gate_up else ("gate_proj", "up_proj")
        tensors = {f"{LAYER}mlp.experts.{half}": plain(random(half), *(gate_up or shape)) for half in halves}
        tensors[f"{LAYER}mlp.experts.down_proj"] = plain(random("down"), *shape)
        return Case(name, tensors, config)

    yield case("square-experts-of-a-family", "qwen3_5_moe")
    yield case("square-experts-of-a-family-that-turns", "llama4")
    yield case("square-experts-beside-rows", None, (EXPERTS, 2 * size, size))
    yield case("square-experts-beside-columns", "anything", (EXPERTS, size, 2 * size))
    for name, model_type in [("no-family", None), ("another-family", "anything")]:
        unknown = case(f"fault-square-experts-{name}", model_type)
        unknown.faults = ("module-unreadable",)
        yield unknown


COMPANIONS = {
    "weight_offset": lambda n, k: bf16(np.ones((n, k // 16))),
    "smooth_scale": lambda n, k: bf16(np.ones(k)),
    "channel_scale": lambda n, k: np.ones(n, np.float32),
    "codebook": lambda n, k: np.ones((16, 4), np.float16),
    "weight_perm": lambda n, k: np.arange(k, dtype=np.int64),
    "lora_A.weight": lambda n, k: bf16(np.ones((4, k))),
    "weight.more": lambda n, k: np.ones(n, np.uint8),
}


def companions():
    """Tensors beside the codes that nothing applies, whoever wrote the codes."""
    for make in (modelopt_model, fp8_model):
        for suffix, values in COMPANIONS.items():
            case = make(f"fault-companion-{make.__name__}-{suffix}")
            case.tensors[f"{DOWN}.{suffix}"] = values(HIDDEN, INNER)
            case.faults = ("module-unreadable",)
            yield case
    fused = Case("fault-companion-of-fused-experts", {}, {"model_type": "llama4", "hidden_size": HIDDEN})
    name = LAYER + "feed_forward.experts.gate_up_proj"
    fused.tensors[name] = np.full((EXPERTS, HIDDEN // 2, 2 * INNER), 0x22, np.uint8)
    fused.tensors[name + "_weight_scale"] = e4m3(np.ones((EXPERTS, HIDDEN // 16, 2 * INNER)))
    fused.tensors[name + "_weight_scale_2"] = np.float32(0.01)
    yield replace(fused, name="no-fault-companion-of-fused-experts")
    fused.tensors = fused.tensors | {name + "_weight_offset": bf16(np.ones((EXPERTS, 2 * INNER)))}
    fused.faults = ("module-unreadable",)
    yield fused
    # The router's own tensors are the model's.
    router = modelopt_model("no-fault-companion-of-the-router")
    router.config["model_type"] = "deepseek_v3"
    quantize(router, LAYER + "mlp.gate", EXPERTS, HIDDEN)
    router.tensors[LAYER + "mlp.gate.e_score_correction_bias"] = np.ones(EXPERTS, np.float32)
    router.warnings = ("router-quantized", "config-excludes-quantized")
    yield router


def twice():
    """One matrix in two places, in the ways that files have them."""
    fused = {"gate_up": (2 * INNER, HIDDEN), "down": (HIDDEN, INNER)}

    def add(case, name, *shape):
        case.tensors[LAYER + name] = plain(random(name), *shape)

    for name, change in {
        "gate-up-of-all": lambda c: add(c, "mlp.experts.gate_up_proj", EXPERTS, *fused["gate_up"]),
        "gate-up-of-one": lambda c: add(c, "mlp.experts.0.gate_up_proj.weight", *fused["gate_up"]),
        "second-name": lambda c: add(c, "mlp.experts.0.w2.weight", *fused["down"]),
        "second-block": lambda c: add(c, "block_sparse_moe.experts.0.w1.weight", INNER, HIDDEN),
        "second-prefix": lambda c: c.tensors.update({f"language_model.{DOWN}.weight": plain(random("p"), HIDDEN, INNER)}),
        "qkv": lambda c: add(c, "self_attn.qkv_proj.weight", 64, HIDDEN),
    }.items():
        for make in (modelopt_model, plain_model):
            case = make(f"fault-twice-{name}-{make.__name__}")
            change(case)
            case.faults = ("matrix-twice",)
            yield case
    # Two models in one file have layers of the same numbers.
    two = modelopt_model("two-models-in-one-file")
    two.config["model_type"] = "qwen3_omni_moe"
    block(two, ignore=["lm_head", "*mlp.gate", "*self_attn*"])
    two.tensors = {
        prefix + name: value for name, value in two.tensors.items() for prefix in ("thinker.", "talker.")
    }
    yield two


def quantized_routers():
    """Under the names of every family."""
    for name in ("mlp.gate", "mlp.router", "block_sparse_moe.router.layer", "mixer.gate", "router.proj", "mlp.gate.wg"):
        case = Case(
            f"fault-router-{name}",
            nvfp4(random(name), LAYER + name, 16, HIDDEN),
            {"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}},
        )
        case.faults = ("router-quantized",)
        yield case
    # Gemma's own factor of the router is none of a quantizer.
    gemma = plain_model("router-factor-of-its-own")
    gemma.config["model_type"] = "gemma4"
    gemma.tensors[LAYER + "router.proj.weight"] = gemma.tensors.pop(LAYER + "mlp.gate.weight")
    gemma.tensors[LAYER + "router.scale"] = bf16(np.ones(HIDDEN))
    gemma.tensors[LAYER + "router.per_expert_scale"] = bf16(np.ones(EXPERTS))
    yield gemma


def cases():
    yield from quantized_routers()
    yield from twice()
    yield from companions()
    yield from plain_values()
    yield from square_experts()
