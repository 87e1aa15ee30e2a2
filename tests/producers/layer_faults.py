# SPDX-License-Identifier: Apache-2.0
"""Layers, experts and projections that are missing from models of families that fewbit does not run
and from GGUF files: compared with each other, for no config tells."""

import numpy as np
from case import Case, bf16, random, with_fault
from raw_gguf import U32, RawGguf, u32
from small_model import nvfp4

INNER, HIDDEN, EXPERTS, LAYERS = 32, 64, 4, 3
SIZES = {"gate": (INNER, HIDDEN), "up": (INNER, HIDDEN), "down": (HIDDEN, INNER)}
CONFIG = {
    "model_type": "deepseek_v3",
    "n_routed_experts": EXPERTS,
    "num_hidden_layers": LAYERS,
    "hidden_size": HIDDEN,
    "moe_intermediate_size": INNER,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
}


def matrix(rng, n, k):
    return bf16(rng.normal(0, 0.05, (n, k)))


def moe_layer(rng, layer, quantized=False):
    out = {f"model.layers.{layer}.mlp.gate.weight": matrix(rng, EXPERTS, HIDDEN)}
    for expert in range(EXPERTS):
        for name, (n, k) in SIZES.items():
            module = f"model.layers.{layer}.mlp.experts.{expert}.{name}_proj"
            out |= nvfp4(rng, module, n, k) if quantized else {module + ".weight": matrix(rng, n, k)}
    for name, (n, k) in SIZES.items():
        out[f"model.layers.{layer}.mlp.shared_experts.{name}_proj.weight"] = matrix(rng, n, k)
    return out


def model(name, quantized=False, draft=False):
    """The first layer dense, then two of experts; a draft layer of a dense MLP without a gate."""
    rng = random(name)
    tensors = {f"model.layers.0.mlp.{part}_proj.weight": matrix(rng, n, k) for part, (n, k) in SIZES.items()}
    for layer in range(1, LAYERS):
        tensors |= moe_layer(rng, layer, quantized)
    if draft:
        tensors |= {f"model.layers.{LAYERS}.mlp.{part}_proj.weight": matrix(rng, *SIZES[part]) for part in ("up", "down")}
        tensors[f"model.layers.{LAYERS}.eh_proj.weight"] = matrix(rng, HIDDEN, 2 * HIDDEN)
    block = {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4", "ignore": ["*.gate", "*shared*", "*layers.0.*"]}
    return Case(name, tensors, CONFIG | ({"quantization_config": block} if quantized else {}))


def quantized_model(name):
    return model(name, quantized=True)


def without_config(name):
    case = model(name)
    case.config = {"model_type": "another"}
    return case


def gguf(name):
    rng = random(name)
    case = RawGguf(name, {}, pairs=[("qwen3moe.block_count", U32, u32(2)), ("qwen3moe.expert_count", U32, u32(EXPERTS))])
    for layer in range(2):
        case.tensors[f"blk.{layer}.ffn_gate_inp.weight"] = floats(rng, (EXPERTS, HIDDEN))
        for part, size in SIZES.items():
            case.tensors[f"blk.{layer}.ffn_{part}_exps.weight"] = floats(rng, (EXPERTS, *size))
    return case


def floats(rng, shape):
    return (0, shape, rng.normal(0, 0.05, shape).astype(np.float32).tobytes())


def drop(*words):
    """All tensors whose name has every word."""

    def apply(case):
        names = [name for name in case.tensors if all(word in name for word in words)]
        assert names
        for name in names:
            del case.tensors[name]

    return apply


def rows(expert):
    def apply(case):
        case.tensors[f"model.layers.2.mlp.experts.{expert}.up_proj.weight"] = matrix(random("rows"), 48, HIDDEN)

    return apply


FAULTS = {
    "up": ("experts-missing", drop("layers.2", "experts.", "up_proj")),
    "up-everywhere": ("experts-missing", drop("experts.", "up_proj")),
    "gate": ("experts-missing", drop("layers.2", "experts.", "gate_proj")),
    "down": ("experts-missing", drop("layers.1", "experts.", "down_proj")),
    "experts": ("experts-missing", drop("layers.2", "experts.")),
    "shared": ("projection-missing", drop("layers.2", "shared_experts.up_proj")),
    "layer": ("layers-missing", drop("layers.1.")),
}


def of_each(base, make, faults):
    yield make(f"no-fault-missing-{base}")
    for name, (rule, apply) in faults.items():
        case = with_fault(make, f"{base}-{name}", rule, apply)
        # Without all its layers, a model has other faults too.
        case.warnings = ("layer-not-runnable",)
        yield case


def two_stacks(name):
    """Layers of the same numbers, with experts of other numbers and sizes."""
    case = model(name)
    talker = {f"thinker.{key}": value for key, value in case.tensors.items()}
    rng = random(name + "talker")
    for layer in range(LAYERS):
        module = f"talker.model.layers.{layer}.mlp"
        talker[f"{module}.gate.weight"] = matrix(rng, EXPERTS + 2, HIDDEN)
        for expert in range(EXPERTS + 2):
            for part, (n, k) in {"gate": (48, HIDDEN), "up": (48, HIDDEN), "down": (HIDDEN, 48)}.items():
                talker[f"{module}.experts.{expert}.{part}_proj.weight"] = matrix(rng, n, k)
    case.tensors = talker
    case.config = {"model_type": "another"}
    return case


def cases():
    yield model("no-fault-missing-draft", draft=True)
    yield two_stacks("no-fault-two-stacks")
    yield with_fault(
        two_stacks, "second-stack", "experts-missing", drop("talker", "layers.1", "experts.5", "up_proj")
    )
    yield from of_each("plain", model, FAULTS | {"first-layer": ("layers-missing", drop("layers.0."))})
    yield from of_each("nvfp4", quantized_model, FAULTS)
    yield from of_each("no-config", without_config, FAULTS | {"shape": ("experts-shape", rows(2))})
    yield from of_each(
        "gguf",
        gguf,
        {
            "gate": ("experts-missing", drop("blk.1", "gate_exps")),
            "experts": ("experts-missing", drop("blk.1", "_exps")),
            "layer": ("layers-missing", drop("blk.0")),
        },
    )
