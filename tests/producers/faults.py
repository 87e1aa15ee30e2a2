# SPDX-License-Identifier: Apache-2.0
"""One small checkpoint for each fault that the check knows, and the same ones without."""

import numpy as np
from case import bf16, e4m3, random, with_fault
from small_model import (
    ATTENTION,
    DOWN,
    EXCLUDED,
    EXPERT,
    EXPERTS,
    GATE,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    LAYER,
    UP,
    VOCAB,
    block,
    change,
    fp8_model,
    modelopt_model,
    mxfp8_matrix,
    plain,
    projections,
    quantize,
    second_layer,
)


def remove(case, *names):
    for name in names:
        del case.tensors[name]


def scale_bits(case, byte):
    """One scale of UP becomes this byte."""
    scales = np.array(case.tensors[UP + ".weight_scale"])
    scales.view(np.uint8).reshape(-1)[3] = byte
    case.tensors[UP + ".weight_scale"] = scales


def as_plain(case, module, n, k):
    for name in [name for name in case.tensors if name.startswith(module + ".")]:
        del case.tensors[name]
    case.tensors[module + ".weight"] = plain(random(module), n, k)


def every_expert_but_one(case):
    block(case, ignore=[*EXCLUDED, "*experts.0.*"])
    case.notes = ("layer-not-runnable",)  # one scheme a layer is what backends run
    as_plain(case, EXPERT.format(0, "gate"), INNER, HIDDEN)
    as_plain(case, EXPERT.format(0, "up"), INNER, HIDDEN)
    as_plain(case, EXPERT.format(0, "down"), HIDDEN, INNER)


def plain_second_layer(case):
    second_layer(case)
    case.config["num_hidden_layers"] = 2
    case.config["quantization_config"]["ignore"].append("model.layers.1.*")
    for module, n, k in projections():
        as_plain(case, module.replace("layers.0", "layers.1"), n, k)


def draft_layer(case):
    second_layer(case)
    for module, n, k in projections():
        as_plain(case, module.replace("layers.0", "layers.1"), n, k)
    case.tensors["model.layers.1.eh_proj.weight"] = plain(random("eh"), HIDDEN, 2 * HIDDEN)


def set_tensor(case, name, value):
    case.tensors[name] = value


def fused_qkv(case):
    """q, k and v in one matrix, of which the list names one."""
    parts = [case.tensors.pop(f"{ATTENTION}{name}_proj.weight") for name in "qkv"]
    case.tensors[ATTENTION + "qkv_proj.weight"] = np.concatenate(parts)
    case.config["model_type"] = "another_moe"
    block(case, ignore=["lm_head", "model.layers.0.mlp.gate", "self_attn.o_proj*", "self_attn.q_proj"])


def zero_biases(case):
    """Beside every projection, as GPTQ exporters write them; one of minus zero."""
    for module, n, _ in [*projections(), (ATTENTION + "q_proj", HEADS * HEAD_DIM, 0)]:
        case.tensors[module + ".bias"] = np.full(n, -0.0, np.float16)


def tokenizer(size):
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    vocab = {chr(0x100 + id): id for id in range(size)}
    return {"version": "1.0", "added_tokens": [], "pre_tokenizer": byte_level, "decoder": byte_level} | {
        "model": {"type": "BPE", "vocab": vocab, "merges": []}
    }


def uncalibrated(case):
    """One expert whose activation scale is 1, as before calibration, beside another's."""
    set_tensor(case, EXPERT.format(0, "up") + ".input_scale", np.float32(0.003))
    set_tensor(case, EXPERT.format(2, "up") + ".input_scale", np.float32(1))


def all_of_one(case):
    """1 for every expert is a scale like another."""
    for expert in range(EXPERTS):
        set_tensor(case, EXPERT.format(expert, "up") + ".input_scale", np.float32(1))
    return case


def other_globals():
    """gate and up with factors of their own: as divisors, and in bf16."""
    case = modelopt_model("fault-ct-gate-up-global")
    names = {"weight": "weight_packed", "weight_scale_2": "weight_global_scale"}
    for module, _, _ in projections():
        for old, new in names.items():
            case.tensors[f"{module}.{new}"] = case.tensors.pop(f"{module}.{old}")
        case.tensors[f"{module}.weight_global_scale"] = np.full(1, 50 if module == GATE else 100, np.float32)
    weights = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
    ignore = ["lm_head", "re:.*mlp.gate$", "re:.*self_attn.*"]
    case.config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ignore,
    }
    case.faults = ("gate-up-global",)
    yield case
    case = modelopt_model("fault-quark-gate-up-global")
    for module, _, _ in projections():
        case.tensors[f"{module}.weight_scale_2"] = bf16(0.02 if module == GATE else 0.01)
    weights = [{"dtype": "fp4", "qscheme": "per_group", "group_size": 16}, {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}]
    case.config["quantization_config"] = {"quant_method": "quark", "global_quant_config": {"weight": weights}, "exclude": EXCLUDED}
    case.faults = ("gate-up-global",)
    yield case
    # A factor that is none is one finding, and no ratio.
    for name, value, rule in (("0", 0, "global-scale-zero"), ("negative", -0.001, "global-scale-value")):
        case = modelopt_model(f"fault-nvfp4-up-global-{name}")
        set_tensor(case, UP + ".weight_scale_2", np.float32(value))
        case.faults, case.absent = (rule,), ("gate-up-global",)
        yield case


def quantized_attention(name, key_factor=0.01):
    """q, k and v with a factor each."""
    case = modelopt_model(name)
    rng = random(name)
    for part, n in (("q", HEADS * HEAD_DIM), ("k", KV_HEADS * HEAD_DIM), ("v", KV_HEADS * HEAD_DIM)):
        quantize(case, f"{ATTENTION}{part}_proj", n, HIDDEN)
        set_tensor(case, f"{ATTENTION}{part}_proj.weight_scale_2", np.float32(key_factor if part == "k" else 0.01))
    block(case, ignore=["lm_head", "model.layers.0.mlp.gate", "model.layers.0.self_attn.o_proj"])
    return case


def other_draft(name):
    """A token-prediction layer whose experts are in MXFP4, in a model of NVFP4."""
    case = modelopt_model(name)
    second_layer(case)
    for module, n, k in projections():
        module, rng = module.replace("layers.0", "layers.1"), random(module)
        for tensor in [tensor for tensor in case.tensors if tensor.startswith(module + ".")]:
            del case.tensors[tensor]
        case.tensors[f"{module}.weight"] = rng.integers(0, 256, (n, k // 2)).astype(np.uint8)
        case.tensors[f"{module}.weight_scale"] = np.full((n, -(-k // 32)), 121, np.uint8)
    case.tensors["model.layers.1.eh_proj.weight"] = plain(random("eh"), HIDDEN, 2 * HIDDEN)
    case.notes = ("draft-scheme", "layers-prediction")
    return case


def without_algorithm():
    """A method alone, beside plain weights."""
    case = modelopt_model("fault-modelopt-without-algorithm")
    for module, n, k in projections():
        as_plain(case, module, n, k)
    case.config["quantization_config"] = {"quant_method": "modelopt_fp4"}
    case.faults = ("config-expects-quantized",)
    case.said = ("quantization_config is ModelOpt's, without a quant_algo, and it does not exclude it",)
    return case


def fused_globals():
    yield quantized_attention("no-fault-fused-global")
    case = quantized_attention("fault-fused-global", 0.04)
    case.faults, case.said = ("fused-global",), ("k_proj, q_proj, v_proj differ in 1 of 1 layers, by up to 4 times",)
    yield case


# rule -> what makes it, from a ModelOpt NVFP4 model
NVFP4_FAULTS = {
    "scale-missing": lambda c: remove(c, UP + ".weight_scale"),
    "scale-dtype": lambda c: set_tensor(c, UP + ".weight_scale", np.full((INNER, 2), 56, np.uint8)),
    "scale-shape": lambda c: set_tensor(c, UP + ".weight_scale", e4m3(np.ones((INNER, 4)))),
    "scale-without-weight": lambda c: set_tensor(c, LAYER + "mlp.extra.weight_scale", e4m3(np.ones((4, 2)))),
    "scale-nan": lambda c: scale_bits(c, 0x7F),
    "scale-negative": lambda c: scale_bits(c, 0xB8),
    "scale-zero": lambda c: scale_bits(c, 0x00),
    "global-scale-missing": lambda c: remove(c, UP + ".weight_scale_2"),
    "global-scale-dtype": lambda c: set_tensor(c, UP + ".weight_scale_2", bf16(0.01)),
    "global-scale-shape": lambda c: set_tensor(c, UP + ".weight_scale_2", np.ones(3, np.float32)),
    "global-scale-value": lambda c: set_tensor(c, DOWN + ".weight_scale_2", np.float32(np.nan)),
    "global-scale-zero": lambda c: set_tensor(c, DOWN + ".weight_scale_2", np.float32(0)),
    "global-scale-direction": lambda c: set_tensor(c, DOWN + ".weight_scale_2", np.float32(2048)),
    "gate-up-global": lambda c: set_tensor(c, UP + ".weight_scale_2", np.float32(0.02)),
    "expert-dead": lambda c: set_tensor(c, DOWN + ".weight_scale_2", np.float32(1e-23)),
    "input-scale-unused": lambda c: set_tensor(c, UP + ".input_scale", np.float32(0.5)),
    "input-scale-value": lambda c: set_tensor(c, UP + ".input_scale", np.float32(np.inf)),
    "input-scale-default": uncalibrated,
    "input-scale-missing": lambda c: set_tensor(c, UP + ".input_scale", np.float32(0.5)),
    "weight-dtype": lambda c: set_tensor(c, UP + ".weight", np.zeros((INNER, 16), np.int32)),
    "router-quantized": lambda c: quantize(c, LAYER + "mlp.gate", EXPERTS, HIDDEN),
    "router-bias-rounded": lambda c: set_tensor(c, LAYER + "mlp.gate.e_score_correction_bias", bf16(np.ones(EXPERTS))),
    "router-bias-shape": lambda c: set_tensor(c, LAYER + "mlp.gate.e_score_correction_bias", np.ones(3, np.float32)),
    "embedding-quantized": lambda c: quantize(c, "model.embed_tokens", VOCAB, HIDDEN),
    "latent-attention-4bit": lambda c: quantize(c, ATTENTION + "kv_b_proj", 64, HIDDEN),
    "fused-schemes-differ": lambda c: quantize(c, ATTENTION + "q_proj", 32, HIDDEN),
    "fused-partly-excluded": fused_qkv,
    "experts-mixed": every_expert_but_one,
    "layers-mixed": plain_second_layer,
    "draft-scheme": draft_layer,
    "layers-prediction": draft_layer,
    "layers-extra": second_layer,
    "layers-missing": lambda c: c.config.update(num_hidden_layers=2),
    "experts-missing": lambda c: remove(c, UP + ".weight", UP + ".weight_scale", UP + ".weight_scale_2"),
    "config-experts": lambda c: c.config.update(num_experts=3),
    "config-top-k": lambda c: c.config.update(num_experts_per_tok=5),
    "config-expert-groups": lambda c: c.config.update(n_group=3),
    "config-names-differ": lambda c: c.config.update(num_local_experts=8),
    "config-size": lambda c: c.config.update(moe_intermediate_size=32),
    "config-group-size": lambda c: block(c, group_size=32),
    "config-algorithm": lambda c: block(c, quant_algo="FP8"),
    "config-excludes-quantized": lambda c: block(c, ignore=[*EXCLUDED, "*experts.0.up_proj"]),
    "config-expects-quantized": lambda c: block(c, ignore=["lm_head", "model.layers.0.mlp.gate"]),
    "config-lists-differ": lambda c: block(c, exclude_modules=["lm_head"]),
    "config-places-differ": lambda c: c.files.update(
        {"hf_quant_config.json": {"quantization": {"quant_algo": "W4A16_NVFP4", "exclude_modules": ["lm_head"]}}}
    ),
    "config-methods-differ": lambda c: c.files.update({"quantize_config.json": {"bits": 4, "group_size": 128}}),
    "config-producer": lambda c: block(c, quant_method="fp8"),
    "config-missing": lambda c: c.config.pop("quantization_config"),
    "scale-unread": lambda c: set_tensor(c, ATTENTION + "q_proj.weight_scales", np.float32(0.5)),
    "config-rotation": lambda c: block(c, rotation_config={"hadamard_type": "default"}),
    "pattern-unmatched": lambda c: block(c, ignore=[*EXCLUDED, "*mlp.exprets.0.up*"]),
    "matrix-twice": lambda c: set_tensor(c, LAYER + "mlp.experts.down_proj", plain(random("d"), EXPERTS, HIDDEN, INNER)),
    "experts-count": lambda c: set_tensor(c, LAYER + "mlp.experts.down_proj", plain(random("d"), 3, HIDDEN, INNER)),
    "bias-shape": lambda c: set_tensor(c, UP + ".bias", bf16(np.ones(INNER + 1))),
    "bias-dtype": lambda c: set_tensor(c, UP + ".bias", np.ones(INNER, np.float64)),
    "tensor-missing": lambda c: remove(c, ATTENTION + "q_norm.weight"),
    "tensor-shape": lambda c: set_tensor(c, ATTENTION + "o_proj.weight", plain(random("o"), HIDDEN, 16)),
    "tensor-dtype": lambda c: set_tensor(c, "model.embed_tokens.weight", np.ones((VOCAB, HIDDEN), np.int64)),
    "tensor-unexpected": lambda c: set_tensor(c, ATTENTION + "sinks", bf16(np.ones(HEADS))),
    "bias-unsupported": lambda c: set_tensor(c, ATTENTION + "q_proj.bias", bf16(np.ones(32))),
    "bias-zero": zero_biases,
    "activation-gate": lambda c: c.config.update(hidden_act="relu2"),
    "config-unreadable": lambda c: c.config.update(num_hidden_layers="one"),
    "tokenizer-unreadable": lambda c: c.files.update({"tokenizer.json": "{"}),
    "tokenizer-vocabulary": lambda c: c.files.update({"tokenizer.json": tokenizer(VOCAB + 1)}),
    "tokenizer-missing": lambda c: None,
    "model-not-runnable": lambda c: c.config.update(model_type="another_moe"),
    "layer-not-runnable": lambda c: quantize(c, UP, 2 * INNER, HIDDEN),
    "cache-scale-unused": lambda c: set_tensor(c, ATTENTION + "k_proj.k_scale", np.float32(0.5)),
}


def listed(*entries):
    def apply(case):
        block(case, ignored_layers=[*case.config["quantization_config"]["ignored_layers"], *entries])

    return apply


FP8_FAULTS = {
    "module-unreadable": lambda c: remove(c, UP + ".weight_scale"),
    "scale-exponents": lambda c: set_tensor(c, UP + ".weight_scale", np.full((INNER, 1), 120, np.float32)),
    "scale-direction": lambda c: set_tensor(c, UP + ".weight_scale", np.float32(1000.5)),
    "scale-nan": lambda c: set_tensor(c, UP + ".weight_scale", np.float32(np.nan)),
    "pattern-unmatched": listed("re:.*gate"),
    "config-excludes-quantized": listed("experts.0.up_proj"),
    "config-expects-quantized": lambda c: block(c, ignored_layers=["lm_head", "mlp.gate"]),
}

MXFP8_FAULTS = {
    # Past the largest f32.
    "scale-direction": lambda c: change(c, "model.layers.0.mlp.up_proj.weight_scale", 5, 254),
    "scale-nan": lambda c: change(c, "model.layers.0.mlp.up_proj.weight_scale", 5, 255),
}

# Findings that only inform: the checkpoint is fine.
INFORMS = {
    "input-scale-unused",
    "input-scale-missing",
    "embedding-quantized",
    "experts-mixed",
    "layers-mixed",
    "draft-scheme",
    "layers-prediction",
    "bias-zero",
    "config-methods-differ",
    "tokenizer-missing",
    "model-not-runnable",
    "cache-scale-unused",
}


def cases():
    groups = [
        ("nvfp4", modelopt_model, NVFP4_FAULTS),
        ("fp8", fp8_model, FP8_FAULTS),
        ("mxfp8", mxfp8_matrix, MXFP8_FAULTS),
    ]
    yield all_of_one(modelopt_model("no-fault-nvfp4-input-scales-of-1"))
    yield from other_globals()
    yield from fused_globals()
    yield other_draft("no-fault-nvfp4-draft-mxfp4")
    yield without_algorithm()
    for base, make, faults in groups:
        yield make(f"no-fault-{base}")
        for rule, apply in faults.items():
            yield with_fault(make, base, rule, apply, INFORMS)
