# SPDX-License-Identifier: Apache-2.0
"""What published models have that looks like a fault and is none, each beside the fault it looks like."""

import ml_dtypes
import numpy as np
from case import bf16, random, with_fault
from gguf_files import GgufCase, blocks
from gguf_files import moe as gguf_moe
from small_model import ATTENTION, EXPERT, EXPERTS, HIDDEN, INNER, LAYER, UP, fp8_model, modelopt_model, plain, plain_model

CONV = LAYER + "mixer.conv1d"
V4_BIAS = LAYER + "mlp.gate.bias"
CORRECTION = LAYER + "mlp.moe_statics.e_score_correction_bias"


def hybrid(name):
    """A layer with a convolution whose kernels have a bias each."""
    case = plain_model(name)
    case.config["model_type"] = "nemotron_h"
    case.tensors[LAYER + "mlp.gate.e_score_correction_bias"] = np.zeros(EXPERTS, np.float32)
    case.tensors[CONV + ".weight"] = bf16(np.full((96, 1, 4), 0.5))
    case.tensors[CONV + ".bias"] = bf16(np.zeros(96))
    return case


def ernie(name):
    """A row of router biases for each kind of token, and experts of two sizes."""
    case = plain_model(name)
    case.config |= {"model_type": "ernie4_5_moe_vl", "moe_intermediate_size": [INNER, INNER // 2]}
    case.tensors[CORRECTION] = np.zeros((2, EXPERTS), np.float32)
    rng = random(name)
    for part, n, k in (("gate", INNER // 2, HIDDEN), ("up", INNER // 2, HIDDEN), ("down", HIDDEN, INNER // 2)):
        case.tensors[EXPERT.format(EXPERTS - 1, part) + ".weight"] = plain(rng, n, k)
    case.warnings = ("router-bias-rounded",)
    return case


def deepseek_v4(name):
    """The bias of the choice is the router's own."""
    case = plain_model(name)
    case.config["model_type"] = "deepseek_v4"
    case.tensors[V4_BIAS] = np.zeros(EXPERTS, np.float32)
    return case


def gguf_layers(name, architecture, numbers):
    """Dense layers with these numbers."""
    rng = random(name)
    case = GgufCase(name, {}, architecture=architecture)
    for number in numbers:
        for part, shape in (("gate", (32, 256)), ("up", (32, 256)), ("down", (256, 32))):
            full = f"blk.{number}.ffn_{part}.weight"
            data, case.values[full] = blocks(rng, "Q8_0", shape)
            case.tensors[full] = ("Q8_0", data)
    return case


def without_draft_layer(name):
    """block_count counts token-prediction layers, which the file leaves out."""
    case = gguf_layers(name, "glm4moe", (0, 1))
    case.pairs = {"glm4moe.block_count": 3, "glm4moe.nextn_predict_layers": 1}
    return case


def without_no_op(name):
    """A layer of neither attention nor MLP, of which nothing is stored."""
    case = gguf_layers(name, "deci", (0, 2))
    case.pairs = {
        "deci.block_count": 3,
        "deci.attention.head_count": [4, 0, 4],
        "deci.feed_forward_length": [32, 0, 32],
    }
    return case


def without_last_no_op(name):
    case = gguf_layers(name, "deci", (0, 1))
    case.pairs = {
        "deci.block_count": 4,
        "deci.attention.head_count": [4, 4, 0, 0],
        "deci.feed_forward_length": [32, 32, 0, 0],
    }
    return case


def own_scales(name, architecture="gemma4"):
    """Gemma 4: factors of the router's input and of the experts' outputs beside plain weights."""
    case = gguf_moe(name, "F16")
    case.architecture = architecture
    gate = "blk.0.ffn_gate_exps.weight"
    data, case.values[gate] = blocks(random(name), "Q8_0", (2, 8, 256))
    case.tensors[gate] = ("Q8_0", data)
    case.schemes["blk.0.ffn_gate_exps"] = "GGUF Q8_0"
    case.tensors["blk.0.ffn_gate_inp.scale"] = ("F32", np.full(256, 0.5, np.float32))
    case.tensors["blk.0.ffn_down_exps.scale"] = ("F32", np.array([1.5, 2], np.float32))
    return case


def no_op_blocks(name):
    """DeciLM: blocks that its config calls no_op have no tensors."""
    case = plain_model(name)
    for key in [key for key in case.tensors if key.startswith(LAYER)]:
        tensor = case.tensors[key]
        case.tensors[key.replace("layers.0.", "layers.2.")] = tensor
    block = {"attention": {"no_op": False}, "ffn": {"no_op": False}}
    none = {"attention": {"no_op": True}, "ffn": {"no_op": True}}
    case.config |= {"model_type": "nemotron-nas", "num_hidden_layers": 3, "block_configs": [block, none, block]}
    return case


def encoder(name, part="speech_encoder"):
    """Layers of an encoder, which begin where the exporter likes."""
    case = plain_model(name)
    for number in (1, 3):
        case.tensors[f"{part}.layers.{number}.self_attn.q_proj.weight"] = plain(random(name), 32, 32)
    return case


def sequential(name):
    """A projector: matrices in a row with an activation between, which has a number and no tensors."""
    case = plain_model(name)
    case.config["model_type"] = "janus"
    for number in (0, 2):
        case.tensors[f"projector.layers.{number}.weight"] = plain(random(name), 32, 32)
    for number in (0, 3):
        case.tensors[f"codec.decoder.layers.{number}.conv.weight"] = bf16(np.full((4, 4, 3), 0.5))
    return case


def shared_expert(name):
    case = plain_model(name)
    case.config["model_type"] = "some_model"
    for part, rows, columns in (("gate", 24, HIDDEN), ("up", 24, HIDDEN), ("down", HIDDEN, 24)):
        case.tensors[f"{LAYER}mlp.shared_experts.{part}_proj.weight"] = plain(random(name), rows, columns)
    return case


SHARED = LAYER + "mlp.shared_experts."
MISSHAPED = {
    "gate-rows": ("mlp-shape", {SHARED + "gate_proj.weight": (12, HIDDEN)}),
    "down-turned": ("mlp-shape", {SHARED + "down_proj.weight": (24, HIDDEN)}),
    "up-columns": ("mlp-shape", {SHARED + "up_proj.weight": (24, 16)}),
    "final-norm": ("config-size", {"model.norm.weight": (16,)}),
    "layer-norm": ("config-size", {LAYER + "input_layernorm.weight": (16,)}),
}


def misshaped():
    yield shared_expert("released-shared-expert")
    for label, (rule, changes) in MISSHAPED.items():
        case = shared_expert(f"fault-shape-{label}")
        for name, shape in changes.items():
            case.tensors[name] = bf16(np.full(shape, 0.5))
        case.faults = (rule,)
        yield case
    fused = shared_expert("released-shared-expert-fused")
    del fused.tensors[SHARED + "gate_proj.weight"]
    fused.tensors[SHARED + "up_proj.weight"] = bf16(np.full((48, HIDDEN), 0.5))
    yield fused
    alone = plain_model("fault-bias-alone")
    alone.tensors[LAYER + "self_attn.v_proj.bias"] = bf16(np.zeros(16))
    del alone.tensors[LAYER + "self_attn.v_proj.weight"]
    alone.faults = ("tensor-missing",)
    alone.said = ("a bias alone",)
    yield alone
    biased = plain_model("released-head-bias")
    biased.config["model_type"] = "some_model"
    biased.tensors["cls.predictions.bias"] = bf16(np.zeros(64))
    yield biased


def tables(name, rows=64, width=HIDDEN, **config):
    """An embedding and a head whose size has a key of its own, or rows for padding."""
    case = plain_model(name)
    case.config |= {"model_type": "some_model", "vocab_size": 64, "hidden_size": HIDDEN} | config
    case.tensors["model.embed_tokens.weight"] = plain(random(name), rows, width)
    return case


def set_tensor(name, value):
    def apply(case):
        case.tensors[name] = value

    return apply


def set_config(**values):
    def apply(case):
        case.config |= values

    return apply


def unscaled_e5m2(name):
    """Codes that were rounded without a scale, which is 1 then."""
    case = fp8_model(name)
    for module in {key.removesuffix(".weight_scale") for key in case.tensors if key.endswith(".weight_scale")}:
        codes = np.asarray(case.tensors[module + ".weight"]).astype(np.float32) / 4096
        case.tensors[module + ".weight"] = codes.astype(ml_dtypes.float8_e5m2)
        case.tensors[module + ".weight_scale"] = np.float32(1)
    case.config["quantization_config"]["fmt"] = "e5m2"
    return case


SAYS_NOTHING = {
    "nulls": {"quantization": {"quant_algo": None, "kv_cache_quant_algo": None, "exclude_modules": None}},
    "null-method": {"quantization_config": {"quant_method": None, "bits": None}},
    "type": {"quantization": "bf16", "quantize": "bfloat16"},
    "null-algorithm": {"quantization": {"quant_algo": None, "group_size": 128, "kv_cache_quant_algo": "FP8"}},
    "cache": {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "dense",
            "config_groups": {},
            "kv_cache_scheme": {"num_bits": 8, "type": "float"},
        }
    },
    "audio": {"audio_config": {"quantization": {"n_q": 8, "bins": 2048}}, "codec_config": {"quantize": "rvq"}},
}

CONFIG_FAULTS = {
    "groups": {"quantization_config": {"quant_method": "compressed-tensors", "format": "dense", "config_groups": {"a": {"weights": {"num_bits": 4}}}}},
    "audio-bits": {"audio_config": {"quantization": {"bits": 8}}},
    "audio-method": {"audio_config": {"quantization_config": {"quant_method": "odd"}}},
    "weights": {"weight_quantization": "int4"},
    "not-audio": {"other_config": {"quantization": {"n_q": 8}}},
}


def cases():
    yield hybrid("released-hybrid")
    yield with_fault(hybrid, "released-hybrid", "bias-shape", set_tensor(CONV + ".bias", bf16(np.zeros(95))))
    yield ernie("released-ernie-vl")
    yield with_fault(
        ernie, "released-ernie-vl-bias", "router-bias-shape", set_tensor(CORRECTION, np.zeros((2, EXPERTS + 1), np.float32))
    )
    yield with_fault(ernie, "released-ernie-vl-sizes", "experts-shape", set_config(moe_intermediate_size=[INNER, INNER - 1]))
    yield unscaled_e5m2("released-e5m2-without-scale")
    for name, keys in SAYS_NOTHING.items():
        case = plain_model(f"released-config-{name}")
        case.config |= keys
        yield case
    yield with_fault(
        plain_model,
        "released-plain-nvfp4",
        "config-expects-quantized",
        set_config(quantization_config={"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": []}),
    )
    yield deepseek_v4("released-deepseek-v4")
    yield with_fault(deepseek_v4, "released-deepseek-v4", "router-bias-rounded", set_tensor(V4_BIAS, bf16(np.zeros(EXPERTS))))
    for label, value in (("infinity", float("inf")), ("text", "64"), ("part", 1.5), ("negative", -1)):
        yield with_fault(
            plain_model,
            f"released-size-{label}",
            "config-unreadable",
            set_config(model_type="deepseek_v3", vocab_size=value),
        )
    for name, keys in CONFIG_FAULTS.items():
        yield with_fault(plain_model, f"released-config-{name}", "module-unreadable", set_config(**keys))
    yield with_fault(
        modelopt_model,
        "released-config-null-algorithm",
        "config-format",
        set_config(quantization_config={"quant_method": "modelopt", "quant_algo": None}),
    )
    yield without_draft_layer("released-gguf-without-draft-layer")
    yield with_fault(
        without_draft_layer, "released-gguf-draft", "layers-missing", lambda c: c.pairs.update({"glm4moe.nextn_predict_layers": 0})
    )
    yield without_no_op("released-gguf-no-op")
    yield with_fault(
        without_no_op, "released-gguf-no-op", "layers-missing", lambda c: c.pairs.update({"deci.feed_forward_length": [32, 32, 32]})
    )
    yield without_last_no_op("released-gguf-last-no-op")
    yield with_fault(
        without_last_no_op, "released-gguf-last-no-op", "layers-missing", lambda c: c.pairs.update({"deci.block_count": 5})
    )
    yield own_scales("released-gguf-own-scales")
    yield with_fault(lambda name: own_scales(name, "qwen3moe"), "released-gguf-own-scales", "module-unreadable", lambda c: None)
    yield no_op_blocks("released-no-op-blocks")
    yield with_fault(no_op_blocks, "released-no-op-blocks", "layers-missing", set_config(block_configs=[]))
    yield sequential("released-sequential")
    yield from misshaped()
    yield tables("released-padded-embedding", 72)
    yield tables("released-draft-vocabulary", 48, draft_vocab_size=48)
    yield tables("released-narrow-embedding", 64, 16, embedding_size=16)
    yield tables("released-codebooks", 192)
    runs = plain_model("fault-rows-that-load-refuses")  # a family that fewbit runs
    runs.tensors["model.embed_tokens.weight"] = plain(random("rows"), 72, HIDDEN)
    runs.faults = ("config-size",)
    yield runs
    yield tables("released-positions", 64, max_position_embeddings=37)
    yield with_fault(
        lambda name: tables(name, 37, max_position_embeddings=37), "released-positions", "config-size", lambda c: None
    )
    for label, rows, width in (("rows", 37, HIDDEN), ("width", 64, 24), ("order", HIDDEN, 64)):
        yield with_fault(
            lambda name, rows=rows, width=width: tables(name, rows, width), f"released-table-{label}", "config-size", lambda c: None
        )
    yield encoder("released-encoder")
    yield with_fault(lambda name: encoder(name, "decoder"), "released-encoder", "layers-missing", lambda c: None)
    case = modelopt_model("released-output-zero-point")
    case.tensors[ATTENTION + "k_proj.output_zero_point"] = np.zeros(1, np.int8)
    case.notes = ("output-scale-unused",)
    yield case
