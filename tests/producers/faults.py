# SPDX-License-Identifier: Apache-2.0
"""One small checkpoint for each fault that the check knows, and the same ones without."""

import copy
import json
from dataclasses import dataclass, field, replace

import numpy as np
from case import Case, bf16, e4m3, random, write_safetensors

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
    block = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": list(EXCLUDED)}
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


def remove(case, *names):
    for name in names:
        del case.tensors[name]


def change(case, name, index, value):
    array = np.array(case.tensors[name])
    array.reshape(-1)[index] = value
    case.tensors[name] = array


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
    case.warnings = ("layer-not-runnable",)  # one scheme a layer is what backends run
    as_plain(case, EXPERT.format(0, "gate"), INNER, HIDDEN)
    as_plain(case, EXPERT.format(0, "up"), INNER, HIDDEN)
    as_plain(case, EXPERT.format(0, "down"), HIDDEN, INNER)


def second_layer(case, layer=1):
    for name in [name for name in case.tensors if name.startswith(LAYER)]:
        case.tensors[name.replace("layers.0", f"layers.{layer}")] = case.tensors[name]


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


def block(case, **changes):
    case.config["quantization_config"] |= changes


def set_tensor(case, name, value):
    case.tensors[name] = value


def quantize(case, module, n, k):
    case.tensors.pop(module + ".weight", None)
    case.tensors |= nvfp4(random(module), module, n, k)


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
    "config-size": lambda c: c.config.update(moe_intermediate_size=32),
    "config-group-size": lambda c: block(c, group_size=32),
    "config-algorithm": lambda c: block(c, quant_algo="FP8"),
    "config-excludes-quantized": lambda c: block(c, ignore=[*EXCLUDED, "*experts.0.up_proj"]),
    "config-expects-quantized": lambda c: block(c, ignore=["lm_head", "model.layers.0.mlp.gate"]),
    "config-lists-differ": lambda c: block(c, exclude_modules=["lm_head"]),
    "config-places-differ": lambda c: c.files.update(
        {"hf_quant_config.json": {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}}
    ),
    "config-methods-differ": lambda c: c.files.update({"quantize_config.json": {"bits": 4, "group_size": 128}}),
    "config-producer": lambda c: block(c, quant_method="fp8"),
    "config-missing": lambda c: c.config.pop("quantization_config"),
    "scale-unread": lambda c: set_tensor(c, ATTENTION + "q_proj.weight_scales", np.float32(0.5)),
    "config-rotation": lambda c: block(c, rotation_config={"hadamard_type": "default"}),
    "pattern-unmatched": lambda c: block(c, ignore=[*EXCLUDED, "model.layers.7.mlp*"]),
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
    "scale-nan": lambda c: change(c, "model.layers.0.mlp.up_proj.weight_scale", 5, 255),
}


def wide(name):
    """Layers 1 and 10 to 12; the entry names the first."""
    case = plain_model(name)
    case.config["num_hidden_layers"] = 13
    for layer in range(1, 13):
        second_layer(case, layer)
    case.config["quantization_config"] = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": ["lm_head", *(f"model.layers.{n}.*" for n in range(13))],
    }
    case.warnings = ("config-producer",)
    return case


def too_wide(case):
    block(case, ignore=["lm_head", "model.layers.1*", *(f"model.layers.{n}.*" for n in (0, *range(2, 10)))])


def ignore_ct(pattern):
    def apply(case):
        case.config["quantization_config"] = {
            "quant_method": "compressed-tensors",
            "format": "nvfp4-pack-quantized",
            "config_groups": {},
            "ignore": [pattern],
        }

    return apply


def generic_lists():
    """What exporters exclude in every model: nothing of it need be there."""
    modelopt = modelopt_model("generic-list-modelopt")
    names = ["*lm_head*", "*proj_out.*", "*block_sparse_moe.gate*", "*router*", "*mlp.shared_expert_gate.*", "*linear_attn.conv1d*"]
    block(modelopt, ignore=[*EXCLUDED, *names, "*mixer.conv1d*", "*output_layer*", "output.*", "nn.BatchNorm1d"])
    modelopt.notes = ("pattern-unmatched",)
    yield modelopt
    names = ["re:.*shared_expert_gate$", "re:.*block_sparse_moe\\.gate", "re:visual.*", "re:model.visual.*", "re:.*vision_tower.*"]
    compressed = modelopt_model("generic-list-compressed-tensors")
    ignored = ["lm_head", "re:.*mlp\\.gate$", "re:.*self_attn.*", *names, "re:multi_modal_projector.*", "re:.*mtp.*"]
    compressed.config["quantization_config"] = {"quant_method": "compressed-tensors", "ignore": ignored}
    compressed.notes = ("pattern-unmatched",)
    compressed.warnings = ("config-producer",)
    yield compressed
    for name, entry in [("path", "model.layers.7.mlp.gate"), ("typo", "re:.*self_atn.*"), ("number", "re:.*layers.9.*router")]:
        case = plain_model(f"fault-list-{name}")
        ignore_ct(entry)(case)
        case.faults = ("pattern-unmatched",)
        yield case


PREFIXES = ("", "model.", "language_model.", "model.language_model.", "language_model.model.")


def other_prefixes():
    """Entries and tensors that differ in a wrapper's prefix name the same modules."""
    for in_list in PREFIXES:
        for in_file in PREFIXES:
            case = modelopt_model(f"prefix-list-{in_list}-file-{in_file}".replace(".", "-"))
            case.tensors = {name.replace("model.", in_file, 1): value for name, value in case.tensors.items()}
            layers = [f"{in_list}layers.*.self_attn.{name}_proj" for name in "qk"]
            layers += [f"{in_list}layers.0.self_attn.v_proj", f"*{in_list}layers.0.self_attn.o_proj"]
            block(case, ignore=["lm_head", f"{in_list}layers.?.mlp.gate", *layers])
            case.config["model_type"] = "another_moe"
            yield case
            mixed = copy.deepcopy(case)
            mixed.name += "-mixed"
            layers = {f"{in_list}layers.0.mlp.experts": {"quant_algo": "NVFP4"}}
            mixed.config["quantization_config"] = {
                "quant_method": "modelopt",
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": layers,
            }
            yield mixed


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
            {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}},
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


@dataclass
class Files(Case):
    """A checkpoint of several files; shards: name -> names of tensors."""

    shards: dict = field(default_factory=dict)
    index: dict | None = None
    damage: object = None  # called with the folder at the end

    def write(self, folder):
        super().write(folder)
        if self.shards:
            (folder / "model.safetensors").unlink()
        for file, names in self.shards.items():
            write_safetensors(folder / file, {name: self.tensors[name] for name in names})
        if self.index is not None:
            (folder / "model.safetensors.index.json").write_text(json.dumps(self.index))
        if self.damage:
            self.damage(folder)


def sharded(name):
    base = plain_model(name)
    names = sorted(base.tensors)
    half = len(names) // 2
    shards = {
        "model-00001-of-00002.safetensors": names[:half],
        "model-00002-of-00002.safetensors": names[half:],
    }
    total = sum(np.asarray(base.tensors[name]).nbytes for name in names)
    return Files(
        name,
        base.tensors,
        base.config,
        shards=shards,
        index={
            "metadata": {"total_size": total},
            "weight_map": {tensor: file for file, tensors in shards.items() for tensor in tensors},
        },
    )


SECOND = "model-00002-of-00002.safetensors"


def cut(folder):
    file = folder / SECOND
    file.write_bytes(file.read_bytes()[:-1])


def long_header(folder):
    file = folder / SECOND
    file.write_bytes((2**26).to_bytes(8, "little") + file.read_bytes()[8:])


def lie(old, new):
    def apply(folder):
        file = folder / SECOND
        raw = file.read_bytes()
        assert old in raw and len(old) == len(new)
        file.write_bytes(raw.replace(old, new, 1))

    return apply


def damage(function):
    return lambda case: setattr(case, "damage", function)


FILE_FAULTS = {
    "index-shard-missing": damage(lambda folder: (folder / SECOND).unlink()),
    "index-tensor-missing": lambda c: c.index["weight_map"].update({"model.layers.0.ghost.weight": SECOND}),
    "index-tensor-unlisted": lambda c: c.index["weight_map"].pop("model.norm.weight"),
    "index-total-size": lambda c: c.index["metadata"].update(total_size=7),
    "tensor-twice": lambda c: c.shards[SECOND].append(c.shards["model-00001-of-00002.safetensors"][0]),
    "extra-file": damage(lambda folder: write_safetensors(folder / "other.safetensors", {"a": bf16(np.ones(2))})),
    "data-incomplete": damage(cut),
    "header-length": damage(long_header),
    "dtype": damage(lie(b'"BF16"', b'"BF61"')),
}

# Findings that only inform: the checkpoint is fine.
INFORMS = {
    "gate-up-global",
    "input-scale-unused",
    "input-scale-missing",
    "embedding-quantized",
    "experts-mixed",
    "layers-mixed",
    "draft-scheme",
    "layers-prediction",
    "bias-zero",
    "config-missing",
    "config-methods-differ",
    "extra-file",
}


def with_fault(make, base, rule, apply):
    case = copy.deepcopy(make(f"fault-{base}-{rule}"))
    apply(case)
    if rule in INFORMS:
        return replace(case, notes=(rule,))
    return replace(case, faults=(rule,))


def stale_configs():
    """A release that was quantized again, with the first quantizer's config left in config.json."""
    case = modelopt_model("stale-config")
    hf_quant = {"quant_algo": "NVFP4", "exclude_modules": list(EXCLUDED)}
    case.files["hf_quant_config.json"] = {"producer": {"name": "modelopt"}, "quantization": hf_quant}
    case.config["expert_dtype"] = "fp4"
    case.config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    case.notes = ("config-methods-differ",)
    yield case
    # Attention as it was, in FP8: each config describes its part.
    parts = copy.deepcopy(case)
    parts.name = "stale-config-of-a-part"
    for name, n in [("q", 32), ("k", 16), ("v", 16), ("o", HIDDEN)]:
        module = f"{ATTENTION}{name}_proj"
        del parts.tensors[module + ".weight"]
        parts.tensors[module + ".weight"] = e4m3(random(module).normal(0, 50, (n, HIDDEN)))
        parts.tensors[module + ".weight_scale_inv"] = np.full((1, 1), 0.001, np.float32)
    yield parts
    neither = modelopt_model("fault-two-stale-configs")
    neither.config["quantization_config"] = {"quant_method": "fp8"}
    neither.files["quantize_config.json"] = {"bits": 4, "group_size": 128}
    neither.faults = ("config-methods-differ", "config-producer")
    yield neither


def cases():
    yield from stale_configs()
    yield from generic_lists()
    yield from other_prefixes()
    yield from quantized_routers()
    yield from twice()
    yield from companions()
    yield from square_experts()
    groups = [
        ("nvfp4", modelopt_model, NVFP4_FAULTS),
        ("fp8", fp8_model, FP8_FAULTS),
        ("mxfp8", mxfp8_matrix, MXFP8_FAULTS),
        ("layers", wide, {"pattern-wide": too_wide}),
        (
            "plain",
            plain_model,
            {"pattern-invalid": ignore_ct("re:\\p{L}"), "pattern-limit": ignore_ct("re:(.*.*)*gate_proj_b")},
        ),
        ("files", sharded, FILE_FAULTS),
    ]
    for base, make, faults in groups:
        yield make(f"no-fault-{base}")
        for rule, apply in faults.items():
            yield with_fault(make, base, rule, apply)
