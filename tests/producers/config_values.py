# SPDX-License-Identifier: Apache-2.0
"""Widths, group sizes and words of quantization blocks that mean nothing, whoever wrote the block."""

import copy
import json
from dataclasses import replace

import gptq
from quark import MX, config, microscaling, spec
from small_model import block, modelopt_model, plain_model

INFINITY, NAN = float("inf"), float("nan")
ODD_SIZES = {"infinity": INFINITY, "nan": NAN, "0": 0, "of-minus-2": -2, "text": "32", "1.5": 1.5, "true": True, "object": {}}
ODD_WIDTHS = ODD_SIZES | {"list": [], "of-minus-1": -1, "large": 2**40}
# Where Quark says per_group, these are odd too.
NO_GROUP = {"of-minus-1": -1, "null": None, "list": []}
ODD_SPECS = {"word": {"qscheme": "per_grp"}, "number": {"qscheme": 7}, "dtype": {"dtype": None}}


def quark(name, faults=("config-value",), **changes):
    case = microscaling(f"quark-{name}")
    case.schemes, case.faults = {}, faults
    case.config["quantization_config"] |= changes
    return case


def quark_cases():
    for name, odd in (ODD_SIZES | NO_GROUP).items():
        case = quark(f"fault-group-size-{name}")
        case.config = config(MX | {"group_size": odd})
        yield case
    for name, changes in ODD_SPECS.items():
        case = quark(f"fault-spec-{name}")
        case.config = config(MX | changes)
        yield case
    yield quark("fault-weight-text", global_quant_config={"weight": "fp4", "input_tensors": None})
    cache = {"*k_proj": {"weight": spec("fp8_e4m3", "per_tensor", group_size=None)}}
    yield quark("no-fault-cache-config", (), kv_cache_quant_config=cache)
    layer = {"*o_proj": {"weight": spec("fp4", "per_group", group_size=0)}}
    yield quark("fault-layer-group-size", layer_quant_config=layer)
    yield quark("no-fault-algorithm-size", (), algo_config=[{"name": "awq", "group_size": 0}])


# Of these producers no tensor is there: the config alone is judged.
BLOCKS = {
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"+:.*up": {"bits": 8, "group_size": 32}}},
    "fp8": {"quant_method": "fp8", "bits": 8, "group_size": -1},
    "hqq": {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"bits": 4, "group_size": 64}}},
    "cache": {
        "quant_method": "compressed-tensors",
        "format": "dense",
        "kv_cache_scheme": {"bits": 8, "num_bits": 8, "type": "float", "group_size": None},
    },
}


def of_plain_weights(name, settings):
    case = plain_model(name)
    case.config["quantization_config"] = settings
    case.warnings = ("config-producer", "config-expects-quantized", "module-unreadable", "layer-not-runnable")
    case.warnings += ("pattern-unmatched", "config-format")
    return case


# key -> words that it may have, and none
WORDS = {
    "quant_algo": (["NVFP4"], [7, 1.5, [], {"a": 1}, True]),
    "fmt": (["e4m3", None], [7, ["e4m3"]]),
    "activation_scheme": (["dynamic", "static", None], ["dynamical", 7, ["static"], "", []]),
    "ignored_layers": ([["lm_head"], [], None], ["lm_head", 7, {"lm_head": True}, ["lm_head", 7], [["lm_head"]], "", [" "], False]),
    "exclude": ([["lm_head"]], ["lm_head"]),
}


def words():
    for key, (right, wrong) in WORDS.items():
        for number, value in enumerate([*right, *wrong]):
            odd = number >= len(right)
            method = "modelopt" if key == "quant_algo" else "fp8"
            name = f"{'fault' if odd else 'no-fault'}-word-{key}-{number}"
            case = of_plain_weights(name, {"quant_method": method, key: value})
            case.warnings += ("config-algorithm-unknown",)
            case.faults = ("config-value",) if odd else ()
            yield case


# What a name can't be; null says nothing.
NO_NAME = ([], "", " ", "\t", {}, 7, 1.5, True, False, ["NVFP4"])
NO_FLAG = ([], "", " ", {}, 7, "true")
NO_OBJECT = ([], "", " ", 7, True, "none")
# method -> key -> what it can't be
KEYS = {
    "modelopt": {"quant_algo": NO_NAME, "kv_cache_quant_algo": NO_NAME, "quantized_layers": NO_OBJECT, "config_groups": NO_OBJECT},
    "compressed-tensors": {"format": NO_NAME, "config_groups": NO_OBJECT, "kv_cache_scheme": NO_OBJECT},
    "gptq": {
        "checkpoint_format": NO_NAME,
        "pack_dtype": NO_NAME,
        "dynamic": NO_OBJECT,
        "sym": NO_FLAG,
        "desc_act": NO_FLAG,
        "is_marlin_format": NO_FLAG,
    },
    "awq": {"version": NO_NAME, "zero_point": NO_FLAG},
    "auto-round": {"packing_format": NO_NAME, "data_type": NO_NAME, "extra_config": NO_OBJECT, "sym": NO_FLAG},
    "fp8": {"fmt": NO_NAME, "scale_fmt": NO_NAME, "moe_quant_algo": NO_NAME, "expert_dtype": NO_NAME},
    "quark": {"global_quant_config": NO_OBJECT, "layer_quant_config": NO_OBJECT, "layer_type_quant_config": NO_OBJECT},
    "bitnet": {"linear_class": NO_NAME},
    "bitsandbytes": {"bnb_4bit_quant_type": NO_NAME, "load_in_4bit": NO_FLAG},
}
# Of tables by module: what an entry can't be.
TABLES = {"modelopt": "quantized_layers", "gptq": "dynamic", "auto-round": "extra_config", "quark": "layer_quant_config"}


def shown(value):
    """As the file has it, without spaces between values."""
    return json.dumps(value, separators=(",", ":"))


def odd_values():
    """Of whatever producer: the key, the file, the value as it stands there; and never plain weights."""
    for method, keys in KEYS.items():
        for key, values in keys.items():
            for number, value in enumerate(values):
                case = of_plain_weights(f"fault-odd-{method}-{key}-{number}", {"quant_method": method, key: value})
                case.warnings += ("config-algorithm-unknown", "config-algorithm", "config-size-unreadable")
                yield replace(case, faults=("config-value",), said=(f"{key} {shown(value)}", "config.json quantization_config"))
    for method, key in TABLES.items():
        for number, value in enumerate(([], "", 7)):
            case = of_plain_weights(f"fault-odd-{method}-{key}-entry-{number}", {"quant_method": method, key: {"a.q_proj": value}})
            yield replace(case, faults=("config-value",), said=(f"a.q_proj {shown(value)}", f"quantization_config.{key}"))
    for number, value in enumerate(NO_NAME):
        plain = plain_model(f"fault-no-algorithm-plain-{number}")
        plain.config["quantization_config"] = {"quant_algo": value}
        yield replace(plain, faults=("module-unreadable", "config-value"), said=(f"quant_algo {shown(value)} of",))
        # Codes are what they are, and plain weights beside them are not called quantized.
        codes = modelopt_model(f"fault-no-algorithm-codes-{number}")
        block(codes, quant_algo=value, ignore=["lm_head"])
        codes.absent = ("config-format", "config-expects-quantized", "config-algorithm-unknown", "module-unreadable")
        yield replace(codes, faults=("config-value",), said=(f"quant_algo {shown(value)}",))


def unknown_layouts():
    """Of a format that is no name nothing is read that hangs on it."""
    for number, value in enumerate(NO_NAME):
        form = gptq.whole(f"fault-no-format-gptq-{number}", gptq.Form(), checkpoint_format=value)
        yield replace(form, faults=("module-unreadable", "config-value"), said=(f"checkpoint_format {shown(value)} of",))


# key -> values that speak of quantized weights, and that do not
HINTS = {
    "weight_block_size": ([[128, 128]], [None, []]),
    "expert_dtype": (["fp4"], ["bfloat16"]),
    "scale_fmt": (["ue8m0"], [None]),
    "hybrid_bit_map": ([{"0": [4, 3]}], [{}]),
    "quantization": ([{"hybrid_bit_map": {"0": [4, 3]}, "kept_format": "mxfp4_e8m0k32"}], [None]),
    "moe_quant_algo": (["NVFP4"], [None]),
    "bits": ([4], [16]),
    "quantization_bit": ([4], [0, 16]),
    "quant": (["gptq", {"bits": 3}, 4], ["none", False, 0]),
    "smooth_quant": ([0.5, True], [0.0, None]),
    "bitwidth": ([4, "3"], [32]),
    "codebook": (["e8p", "E8P12RVQ3B"], ["dac_44khz", 1024, "rvq"]),
    "num_quant": ([], [32]),
    "quant_loss_weight": ([], [0.25]),
    "quantize_conv_in_dim": ([], [512]),
    "quant_type": (["nf4"], [None]),
    "is_quantized": ([True], [False]),
    "awq_config": ([{"w_bit": 4}], [{}]),
    "use_fp8": ([True], [False]),
    "bnb_4bit_quant_type": (["nf4"], [None]),
    "torch_dtype": (["float8_e4m3fn", "int8"], ["bfloat16"]),
    "quantizer": (["gptq", "rtn", "acme"], ["rvq", "ResidualVectorQuantizer", "fsq", {"dim": 8}]),
    "quantizer_type": (["rtn"], ["rvq"]),
    "num_quantizers": ([], [8]),
    "quantize_dropout": ([], [True]),
    "quant_embed_dim": ([], [256]),
    "fp8_margin": ([], [0]),
    "use_cache_quantization": ([], [True]),
    "load_in_4bit": ([1], [0]),
    "weights_dtype": (["int4", "Q4_K_M", "ternary"], ["torch.float32"]),
    "scheme": (["W4A16"], ["linear"]),
    "weightBits": ([4, "4"], [32]),
    "low_bit": (["sym_int4"], ["first"]),
    "fbgemm_fp8": ([True], [False]),
    "compression": ([{"algorithm": "quantization", "mode": "int8_sym"}], [{"mode": "zip"}]),
    "use_quant_conv": ([], [True]),
    "quantization_levels": ([], [[8, 5, 5, 5]]),
    "cache_config": ([], [{"nbits": 4}]),
    "precision": (["int4"], ["high", 16]),
    "fp8_amax_history_len": ([], [1024]),
    "author": ([], ["a group that likes int4 and gptq, and other things as well"]),
    "layers": ([[[{"bits": 4}]]], [[1, 2]]),
    "quant_level": ([4], [None]),
    "ggml_type": (["q4_0"], ["f16"]),
    "gguf_type": (["Q4_K"], ["BF16"]),
    "weight_scale_type": (["block"], [None]),
    "W4A16": ([1, True], [0]),
    "q4": ([], [0.75]),
    "codebook_bits": ([2], [None]),
    "block_size": ([], [64, [128, 128]]),
    "sizes": ([{"block_size": [128, 128], "scale_dtype": "ue8m0"}], [{"codebook_bits": 10, "codebook_size": 1024}]),
    "audio_config": ([{"bits": 4}, {"gptq_config": {"bits": 4}}], [{"quantize": "rvq"}]),
}


def hints():
    """Keys outside of the usual block, beside plain weights; a section of another model is looked into too."""
    for key, (speaks, silent) in HINTS.items():
        for number, value in enumerate([*speaks, *silent]):
            said = number < len(speaks)
            case = plain_model(f"{'fault' if said else 'no-fault'}-hint-{key}-{number}")
            case.config[key] = value
            case.faults = ("config-quantization-key",) if said else ()
            yield case
    inner = plain_model("fault-hint-section")
    inner.config["decoder"] = {"weights": {"awq": True}}
    inner.faults = ("config-quantization-key",)
    yield inner
    many = plain_model("fault-hint-many-objects")
    many.config["nested"] = [{"a": 1}] * 10_050
    many.faults = ("config-quantization-key",)
    yield many
    pipeline = plain_model("diffusers-part")
    pipeline.config = {"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.30", "in_channels": 4}
    pipeline.notes = ("model-not-runnable",)
    yield pipeline


def places(settings):
    """Every object with a width in it."""
    if "bits" in settings:
        yield settings
    for value in settings.values():
        if isinstance(value, dict):
            yield from places(value)


def cases():
    yield from quark_cases()
    yield from words()
    yield from odd_values()
    yield from unknown_layouts()
    yield from hints()
    for method, settings in BLOCKS.items():
        yield of_plain_weights(f"no-fault-values-{method}", settings)
        for number, _ in enumerate(places(settings)):
            for key, odd in [("bits", ODD_WIDTHS), ("group_size", ODD_SIZES)]:
                for name, value in odd.items():
                    changed = copy.deepcopy(settings)
                    list(places(changed))[number][key] = value
                    case = of_plain_weights(f"fault-values-{method}-{number}-{key}-{name}", changed)
                    case.faults = ("config-value",)
                    yield case
    sides = {"quant_method": "auto-round", "bits": 8, "extra_config": {".*mlp.*": {"bits": 8, "group_size": [128, 128]}}}
    yield of_plain_weights("no-fault-values-block-sides", sides)
    for name, value in ODD_SIZES.items():
        case = modelopt_model(f"fault-modelopt-group-size-{name}")
        block(case, group_size=value)
        case.faults = ("config-value",)
        yield case
