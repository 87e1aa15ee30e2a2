# SPDX-License-Identifier: Apache-2.0
"""Names that only some writers use, for methods, parts, files and group sizes that others have too."""

import json

import ml_dtypes
import numpy as np
from awq import config as awq_config
from awq import whole as awq
from case import Case, bf16, e4m3, pack_nibbles, random, spread
from fp8 import MODULE, codes, granular, one, powers
from gptq import Form
from gptq import whole as gptq
from quark import UP, spec
from quark import config as quark_config
from small_model import EXPERT, LAYER, modelopt_model, nvfp4, plain_model, projections

NATIVE = "layers.0.attention"


def cache_scales():
    """Mistral's own names of what others call kv_scale, q_scale, k_scale and v_scale."""
    for part in ("kv", "q", "k", "v"):
        settings = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "static"}}
        case = granular(f"cache-{part}", (24, 40), (), 0, 0, "e4m3, f32 scale a tensor", config=settings, module=f"{NATIVE}.wk")
        case.tensors[f"{NATIVE}.wk.qscale_act"] = np.float32(0.1)
        case.tensors[f"{NATIVE}.{part}_fake_quantizer.qscale_act"] = bf16(np.float32(0.5))
        case.notes, case.absent = ("cache-scale-unused", "input-scale-unused"), ("scale-without-weight",)
        yield case
    # Of no cache.
    stray = granular("fault-cache-other", (24, 40), (), 0, 0, "", config={}, module=f"{NATIVE}.wk")
    stray.tensors[f"{NATIVE}.x_fake_quantizer.qscale_act"] = bf16(np.float32(0.5))
    stray.faults = ("scale-without-weight",)
    yield stray


def mxfp8(name, block, suffix="weight_scale_inv", stored="u8", **rest):
    rng = random(name)
    weight = codes(rng, (24, 80))
    byte, scale = powers(rng, (24, 3))
    values = weight.astype(np.float64) * spread(scale, 1, 32, (24, 80))
    kept = byte if stored == "u8" else byte.view(ml_dtypes.float8_e8m0fnu)
    block = {"quantization_config": {"quant_method": "mxfp8", **block}}
    return one(name, weight, kept, values, "e8m0 scale a group of 32", suffix, block, **rest)


def microscaled():
    whole = {"activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [1, 32], "scale_fmt": "ue8m0"}
    yield mxfp8("mxfp8", whole | {"ignored_layers": ["model.norm"]})
    yield mxfp8("mxfp8-short", {"ignored_layers": []})
    yield mxfp8("mxfp8-weight-scale", {}, "weight_scale", "e8m0")
    # Experts of another kind, as the block says.
    block = {"quant_method": "mxfp8", "moe_quant_algo": "NVFP4", "moe_quant_format": "nvfp4-pack-quantized"}
    mixed = mxfp8("mxfp8-moe-nvfp4", block, module="model.layers.0.self_attn.q_proj")
    for part, n, k in (("up", 48, 32), ("gate", 48, 32), ("down", 32, 48)):
        parts = nvfp4(random(part), EXPERT.format(0, part), n, k)
        for name, tensor in parts.items():
            name = name.replace("weight_scale_2", "weight_global_scale") if name.endswith("_2") else name
            name = name + "_packed" if name.endswith(".weight") else name
            mixed.tensors[name] = np.float32(100).reshape(1) if name.endswith("global_scale") else tensor
    mixed.schemes = {EXPERT.format(0, "up"): "compressed-tensors NVFP4"}
    yield mixed
    settings = {"quantization_config": {"quant_method": "mxfp8"}}
    # Tensors of another kind.
    blocks = granular("fault-mxfp8-blocks", (300, 200), (3, 2), 128, 128, "block of 128x128", suffix="weight_scale_inv", config=settings)
    blocks.faults, blocks.said = ("config-block-size",), ("blocks of 1x32",)
    yield blocks
    plain = Case("fault-mxfp8-plain", {f"{MODULE}.weight": bf16(np.ones((24, 64)))}, settings)
    plain.faults, plain.said, plain.refused = ("module-unreadable",), ("quantized while loading",), True
    yield plain


def awq_files():
    """quantize_config.json is GPTQ's by its name; a method in it counts more, in quant_config.json too."""
    file = {"bits": 4, "group_size": 32, "desc_act": False, "sym": False, "quant_method": "awq", "checkpoint_format": "gemm"}
    file |= {"zero_point": True, "version": "gemm"}
    quiet = ("config-producer", "config-methods-differ", "config-places-differ")
    yield awq_case("awq-quantize-config", quiet, files={"quantize_config.json": file})
    yield awq_case("awq-two-files", quiet, block=awq_config(), files={"quantize_config.json": file})
    case = gptq("gptq-quant-config", Form(), config=False, files={"quant_config.json": GPTQ_FILE})
    case.absent = quiet
    yield case
    null = gptq("gptq-quantize-config-null", Form(), config=False, files={"quantize_config.json": GPTQ_FILE | {"quant_method": None}})
    null.absent = quiet
    yield null
    wrong = awq("fault-awq-quantize-config", files={"quantize_config.json": file | {"quant_method": "gptq"}})
    wrong.faults, wrong.said = ("config-producer",), ('quant_method "gptq"',)
    yield wrong
    unknown = awq("fault-awq-quantize-config-unknown", files={"quantize_config.json": file | {"quant_method": "sparkle4"}})
    unknown.faults, unknown.schemes, unknown.values = ("module-unreadable",), {}, {}
    yield unknown


GPTQ_FILE = {"bits": 4, "group_size": 32, "desc_act": False, "sym": False, "quant_method": "gptq"}


def awq_case(name, quiet, **rest):
    case = awq(name, **rest)
    case.absent = quiet
    return case


def int4_fp8(name, weight, inputs=None):
    """Words of 4-bit codes with a scale a row, and one for the FP8 values that they were made of."""
    rng = random(name)
    parts = {
        "weight": rng.integers(-(2**31), 2**31, (48, 8)).astype(np.int32),
        "weight_scale": np.float32(0.02),
        "weight_scale_2": rng.uniform(0.5, 1, 48).astype(np.float32),
    }
    case = Case(name, {f"{UP}.{suffix}": part for suffix, part in parts.items()}, quark_config(weight, inputs))
    case.faults, case.refused = ("module-unreadable",), True
    return case


def quark_words():
    fp8, int4 = spec("fp8_e4m3", "per_tensor"), spec("int4", "per_channel", ch_axis=0)
    for label, weight in [("", [fp8, int4]), ("-turned", [int4, fp8])]:
        case = int4_fp8(f"fault-quark-int4-fp8{label}", weight, spec("fp8_e4m3", "per_tensor"))
        case.said, case.absent = ("Quark INT4-FP8", "[48, 8]"), ("config-algorithm",)
        yield case
    case = int4_fp8("fault-quark-uint4", spec("uint4", "per_group", group_size=32))
    case.said, case.absent = ("Quark words of uint4",), ("config-algorithm",)
    yield case
    case = int4_fp8("fault-quark-words-of-another", spec("fp8_e4m3", "per_tensor"))
    case.faults = ("module-unreadable", "config-algorithm")
    yield case


def flattened(name, rng, n, k):
    """torchao's tensor of two parts, under its own names."""
    return {
        name.replace(".weight", "._weight_qdata"): e4m3(rng.normal(0, 50, (n, k))),
        name.replace(".weight", "._weight_scale"): np.full((n, 1), 0.001, np.float32),
    }


def torchao():
    """Modules of its own are named, those beside them are plain, and all experts are there."""
    quiet = ("experts-missing", "layers-missing", "projection-missing", "scale-without-weight")
    for label, block in [("", {"quantization_config": {"quant_method": "torchao", "quant_type": {"default": {}}}}), ("-no-config", {})]:
        case = plain_model("fault-torchao-names" + label)
        case.config |= block
        rng = random(case.name)
        for module, n, k in projections():
            del case.tensors[module + ".weight"]
            case.tensors |= flattened(module + ".weight", rng, n, k)
        case.schemes = {LAYER + "self_attn.q_proj": "bf16", EXPERT.format(0, "up"): "torchao: tensors of its own"}
        case.faults, case.absent, case.refused = ("module-unreadable",), quiet, True
        yield case
    fused = Case("fault-torchao-fused", {}, {"quantization_config": {"quant_method": "torchao"}})
    experts = LAYER + "mlp.experts."
    for part, n, k in (("gate_up_proj", 32, 32), ("down_proj", 32, 16)):
        fused.tensors[f"{experts}_{part}_qdata"] = np.zeros((4, n, k), np.int8)
        fused.tensors[f"{experts}_{part}_scale"] = np.ones((4, n, 1), np.float32)
        fused.tensors[f"{experts}_{part}_zero_point"] = np.zeros((4, n, 1), np.int8)
        fused.schemes[experts + part] = "torchao: tensors of its own"
    fused.faults, fused.absent, fused.refused = ("module-unreadable",), quiet, True
    yield fused


def wide_groups():
    """A scale for 32 columns instead of NVFP4's 16, which the config says or does not."""
    for label, said in [("said", 32), ("unsaid", None), ("said-otherwise", 16)]:
        case = modelopt_model(f"fault-nvfp4-group-{label}")
        if said:
            case.config["quantization_config"]["group_size"] = said
        for name in [name for name in case.tensors if name.endswith("_proj.weight_scale")]:
            scale = np.asarray(case.tensors[name], np.float32)
            case.tensors[name] = e4m3(np.ones((scale.shape[0], -(-scale.shape[1] // 2))))
        case.refused = True
        case.faults, case.absent = ("scale-shape",), ("config-group-size",)
        if label == "said":
            case.faults, case.absent = ("module-unreadable",), ("config-group-size", "scale-shape")
            case.said = ("group_size 32", "only groups of 16 are read")
        yield case


def mixed_file(name, table, hf=None, extra=None):
    """ModelOpt's table of layers in a file of its own, as TensorRT-LLM reads it."""
    case = modelopt_model(name)
    del case.config["quantization_config"]
    layers = {module: {"quant_algo": "NVFP4", "group_size": 16} for module, _, _ in projections()}
    if table:
        case.files["quant_cfg.json"] = {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": None, "quantized_layers": layers} | (extra or {})
    case.files["hf_quant_config.json"] = {"quantization": hf or {"quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": None}}
    return case


def layer_files():
    quiet = ("config-algorithm", "config-expects-quantized", "config-file-unread", "config-places-differ")
    case = mixed_file("modelopt-quant-cfg", True)
    case.absent = quiet
    yield case
    alone = mixed_file("modelopt-quant-cfg-alone", True)
    del alone.files["hf_quant_config.json"]
    alone.absent = quiet
    yield alone
    inner = mixed_file("modelopt-quant-cfg-of-config", True)
    inner.config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
    inner.absent = quiet
    yield inner
    missing = mixed_file("fault-modelopt-without-quant-cfg", False)
    missing.faults = ("config-algorithm",)
    yield missing
    more = mixed_file("fault-modelopt-quant-cfg-more", True)
    more.files["quant_cfg.json"]["quantized_layers"][LAYER + "self_attn.q_proj"] = {"quant_algo": "NVFP4"}
    more.faults, more.said = ("config-expects-quantized",), ("quant_cfg.json",)
    yield more
    other = mixed_file("fault-modelopt-quant-cfg-other", False)
    other.files["quant_cfg.json"] = {"quant_algo": "FP8"}
    other.files["hf_quant_config.json"] = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", "*.mlp.gate", "*self_attn*"]}}
    other.faults = ("config-places-differ",)
    yield other
    plain = plain_model("fault-quant-cfg-plain")
    plain.files["quant_cfg.json"] = {"quant_algo": "NVFP4"}
    plain.faults = ("config-expects-quantized",)
    yield plain


BLOCK = {"quant_method": "gptq", "bits": 4}
# Files that no reader of checkpoints opens.
UNREAD = {
    "generation_config.json": {"quantization_config": BLOCK, "temperature": 0.6},
    "quant_meta.json": {"bits": 4},
    "mlx_config.json": {"quantization": {"bits": 4}},
    "compression_config.json": {"quantization_config": {"config_groups": {"group_0": {"weights": {"num_bits": 4}}}}},
    "export.json": {"group_size": 32, "sym": True},
}
# Words that reports have too.
REPORTS = {
    "recipe.json": {"stage": {"modifiers": [{"scheme": "W4A16", "weight_bits": 4}]}},
    "runs.json": {"best": {"format": "nvfp4", "perplexity": 7.5}},
}
# What speaks of other things, or is no JSON.
SILENT = {
    "generation_config.json": {"temperature": 0.6, "cache_config": {"backend": "quanto", "nbits": 4}},
    "preprocessor_config.json": {"do_resize": True, "image_mean": [0.5, 0.5]},
    "tokenizer_config.json": {"model_max_length": 4096, "added_tokens_decoder": {"0": {"content": "quant"}}},
    "results.json": {"results": {"nvfp4": {"perplexity": 7.5}, "int4_g128": {"perplexity": 7.6}}},
    "notes.json": {"quantization_config": None, "load_in_4bit": False},
    "vocab.json": {"quant": 1, "int4": 2, "bits": 4},
    "broken.json": '{"quantization_config": ',
    "list.json": [1, 2, 3],
    "quant.log.json": {},
}


def unread_files():
    for file, content in UNREAD.items():
        case = plain_model(f"fault-unread-{file}")
        case.files[file] = content
        case.faults, case.said = ("config-file-unread",), (file,)
        yield case
        quantized = modelopt_model(f"unread-beside-codes-{file}")
        quantized.files[file] = content
        quantized.notes = ("config-file-unread",)
        yield quantized
    for file, content in REPORTS.items():
        case = plain_model(f"unread-report-{file}")
        case.files[file], case.notes = content, ("config-file-unread",)
        yield case
    for file, content in SILENT.items():
        case = plain_model(f"silent-{file}")
        case.files[file] = content
        case.absent = ("config-file-unread",)
        yield case
    # A file that is too large to look into: a list of words, and one that speaks of codes by its name.
    words = json.dumps({f"word{i}": i for i in range(200_000)})
    large = plain_model("silent-large-file")
    large.files["words.json"], large.absent = words, ("config-file-unread",)
    yield large
    named = plain_model("fault-unread-large-file")
    named.files["quant_table.json"] = words
    named.faults, named.said = ("config-file-unread",), ("quant_table.json", "too large to look into")
    yield named
    jang = plain_model("fault-jang-file")
    jang.files["jang_config.json"] = {"format": "jang", "quantization": {"method": "jang-affine"}}
    jang.faults, jang.said, jang.refused = ("module-unreadable",), ("JANG",), True
    yield jang


def named_methods():
    words = {"weight": np.zeros((16, 8), np.int32), "weight_scale": bf16(np.ones((16, 1)))}
    case = Case("fault-humming", {f"{MODULE}.{suffix}": part for suffix, part in words.items()})
    case.config = {"quantization_config": {"quant_method": "humming", "b_dtype": "uint2", "weight_scale_group_size": 128}}
    case.faults, case.said, case.refused = ("module-unreadable",), ("Humming",), True
    yield case


W4AFP8 = {"quantization_config": {"quant_method": "w4afp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}}


def w4afp8(name, shape=(24, 256), groups=2, dtype=np.float32, **rest):
    """An expert of signed nibbles beside an FP8 matrix in blocks."""
    case = granular(name, (300, 200), (3, 2), 128, 128, "block of 128x128", suffix="weight_scale_inv", config=W4AFP8, module=LAYER + "self_attn.q_proj")
    rng = random(name)
    n, k = shape
    module = EXPERT.format(0, "up")
    value = rng.integers(-8, 8, shape)
    scale = np.exp2(rng.uniform(-10, -6, (n, groups))).astype(np.float32).astype(dtype)
    case.tensors[module + ".weight"] = pack_nibbles((value & 15).astype(np.uint8)).view(np.int8)
    case.tensors[module + ".weight_scale_inv"] = scale
    case.tensors[module + ".input_scale"] = np.float32(0.02)
    if k % groups == 0:
        case.values[module + ".weight"] = value * np.repeat(scale.astype(np.float64), k // groups, axis=1)
        case.schemes[module] = f"scale a group of {k // groups}"
    for key, part in rest.items():
        case.tensors[f"{module}.{key}"] = part
    return case


def four_bit_experts():
    yield w4afp8("w4afp8")
    yield w4afp8("w4afp8-bf16", dtype=bf16(0).dtype)
    yield w4afp8("w4afp8-groups-of-64", groups=4)
    for name, case, said in [
        ("groups", w4afp8("groups", groups=3), "[24, 3]"),
        ("zeros", w4afp8("zeros", weight_zero_point=np.ones((24, 2), np.int8)), "weight_zero_point beside W4AFP8 codes"),
        ("scales", w4afp8("scales", weight_scale=np.ones((24, 2), np.float32)), "with 2 scales"),
        ("flat", w4afp8("flat", weight=np.zeros(96, np.int8)), "i8 [96]"),
    ]:
        case.name, case.faults, case.said, case.refused = "fault-w4afp8-" + name, ("module-unreadable",), (said,), True
        case.schemes, case.values = {}, {}
        yield case
    other = w4afp8("fault-w4afp8-as-fp8")
    other.config = {"quantization_config": W4AFP8["quantization_config"] | {"quant_method": "fp8"}}
    other.faults, other.schemes, other.values = ("module-unreadable",), {}, {}
    yield other


def cases():
    yield from cache_scales()
    yield from microscaled()
    yield from awq_files()
    yield from quark_words()
    yield from torchao()
    yield from wide_groups()
    yield from layer_files()
    yield from unread_files()
    yield from named_methods()
    yield from four_bit_experts()
