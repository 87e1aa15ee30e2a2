# SPDX-License-Identifier: Apache-2.0
"""Lists and tables of modules as the loaders of their producers read them: what an entry says of the
other parts of a fused matrix, fused names, other spellings, and blocks inside of blocks."""

import copy
import re

import auto_round
import awq
import gptq
import numpy as np
from case import bf16, pack_nibbles, random
from compressed_matrices import EXPERT, NVFP4, Integers, args, case_of, config, floats, fp4, integers
from compressed_matrices import fp8 as ct_fp8
from modelopt_other import fp8, hf_file, nvfp4
from mxfp4 import mxfp4
from quark import MX, spec
from quark import config as quark_config

ATTENTION = "model.layers.0.self_attn."
PARTS = ("config-bits", "config-expects-quantized", "config-excludes-quantized", "config-algorithm", "pattern-unmatched")


def plain(case, module, shape=(48, 64)):
    """The module in 16 bits."""
    for name in [name for name in case.tensors if name.startswith(module + ".")]:
        del case.tensors[name]
    matrix = bf16(random(case.name + module).normal(0, 0.05, shape))
    case.tensors[module + ".weight"] = matrix
    case.schemes[module] = "bf16"
    case.values[module + ".weight"] = matrix.astype(np.float64)


def wrong(case, rules, said=(), absent=()):
    """The case as one with these faults alone, said of these modules."""
    case.faults, case.said, case.values, case.schemes = rules, said, {}, {}
    case.absent = tuple(rule for rule in PARTS if rule not in (*rules, *case.notes)) + absent
    return case


def right(case, *warnings):
    case.absent = tuple(rule for rule in PARTS if rule not in case.notes)
    case.warnings = warnings
    return case


def of_widths(name, eight, target):
    """q, k, v in 4 bits, and those of `eight` in 8; a group of 8 bits for `target`."""
    rng = random(name)
    modules = {}
    for part in "qkv":
        matrix = Integers(rng, 48, 64, 8 if part in eight else 4)
        modules[f"{ATTENTION}{part}_proj"] = (matrix.parts, matrix.values)
    settings = config(args())
    groups = settings["quantization_config"]["config_groups"]
    groups["group_1"] = {"targets": [target], "weights": args(8)}
    return case_of(name, modules, settings, "compressed-tensors INT")


def groups():
    """A group's pattern is for the parts that it matches, or all of a fused name."""
    differ = "fused-schemes-differ"
    yield right(of_widths("rule-ct-group-q", "q", "re:.*self_attn.q.*"), differ)
    case = of_widths("rule-ct-group-q-wrong", "qkv", "re:.*self_attn.q.*")
    yield wrong(case, ("config-bits",), (f"{ATTENTION}k_proj", f"{ATTENTION}v_proj"))
    for number, target in enumerate(("re:.*qkv_proj$", f"{ATTENTION}qkv_proj", "re:.*qkv_.*")):
        yield right(of_widths(f"rule-ct-group-qkv-{number}", "qkv", target))
        yield wrong(of_widths(f"rule-ct-group-qkv-wrong-{number}", "qv", target), ("config-bits",), (f"{ATTENTION}k_proj",))


def quark(name, eight=(), rules=None, exclude=()):
    rng = random(name)
    settings = quark_config(MX)
    block = settings["quantization_config"]
    block["exclude"] = ["lm_head", *exclude]
    block["layer_quant_config"] = {key: {"weight": value, "input_tensors": None} for key, value in (rules or {}).items()}
    modules = {}
    for part in "qkvo":
        codes, scales, values = mxfp4(rng, (48, 64))
        parts = {"weight": pack_nibbles(codes), "weight_scale": scales}
        if part in eight:
            parts, values = ct_fp8(rng, 48, 64, "tensor")
            parts["weight_scale"] = parts["weight_scale"].astype(np.float32).reshape(())
            values = parts["weight"].astype(np.float64) * parts["weight_scale"].astype(np.float64)
        modules[f"{ATTENTION}{part}_proj"] = (parts, values)
    return case_of(name, modules, settings, "Quark")


def quark_rules():
    differ = "fused-schemes-differ"
    eight = spec("fp8_e4m3", "per_tensor")
    yield right(quark("rule-quark-q", "q", {"*self_attn.q*": eight}), differ)
    yield wrong(quark("rule-quark-q-wrong", "qkv", {"*self_attn.q*": eight}), ("config-algorithm",), (f"{ATTENTION}k_proj",))
    yield right(quark("rule-quark-qkv", "qkv", {"*qkv_proj": eight}))
    for number, entry in enumerate(("re:.*self_attn.q", "*self_attn.q*")):
        case = quark(f"rule-quark-exclude-q-{number}", exclude=[entry])
        plain(case, f"{ATTENTION}q_proj")
        yield right(case, differ)
        case = quark(f"rule-quark-exclude-q-wrong-{number}", exclude=[entry])
        for part in "qk":
            plain(case, f"{ATTENTION}{part}_proj")
        yield wrong(case, ("config-expects-quantized",), (f"{ATTENTION}k_proj",))
        case = quark(f"rule-quark-exclude-qkv-{number}", exclude=["re:.*qkv_proj", "*qkv_proj"][number : number + 1])
        for part in "qkv":
            plain(case, f"{ATTENTION}{part}_proj")
        yield right(case)


def ignored():
    """gate and not up; a pattern of the fused name takes both."""
    for number, entry in enumerate(("re:.*gate", "re:.*gate_proj", f"{EXPERT}gate_proj")):
        case = integers(f"rule-ct-gate-{number}", config(args(), ignore=["lm_head", entry]))
        plain(case, f"{EXPERT}gate_proj")
        yield right(case, "fused-schemes-differ")
        case = integers(f"rule-ct-gate-wrong-{number}", config(args(), ignore=["lm_head", entry]))
        for part in ("gate", "up"):
            plain(case, f"{EXPERT}{part}_proj")
        yield wrong(case, ("config-expects-quantized",), (f"{EXPERT}up_proj",))
    for number, entry in enumerate(("re:.*gate_up_proj", f"{EXPERT}gate_up_proj")):
        case = integers(f"rule-ct-gate-up-{number}", config(args(), ignore=["lm_head", entry]))
        for part in ("gate", "up"):
            plain(case, f"{EXPERT}{part}_proj")
        yield right(case)


def nested_forms():
    for key in ("quantization_config", "compression_config"):
        for method in ("outer", "inner", "both"):
            yield key, method


def nest(case, key, method):
    """The block inside of another, with its method in either or both."""
    inner = case.config.pop("quantization_config")
    name = inner.pop("quant_method")
    outer = {"quantization_config": inner, "sparsity_config": {"format": "dense"}}
    if method in ("outer", "both"):
        outer["quant_method"] = name
    if method in ("inner", "both"):
        inner["quant_method"] = name
    case.config[key] = outer
    return case


def nested():
    ignore = ["lm_head", f"{EXPERT}gate_proj", "re:.*up_proj"]
    for key, method in nested_forms():
        name = f"rule-nested-{key}-{method}"
        case = integers(name, config(args(), ignore=ignore))
        for part in ("gate", "up"):
            plain(case, f"{EXPERT}{part}_proj")
        yield right(nest(case, key, method))
        case = integers(f"{name}-wrong", config(args(), ignore=ignore))
        plain(case, f"{EXPERT}gate_proj")
        yield wrong(nest(case, key, method), ("config-excludes-quantized",), (f"{EXPERT}up_proj",))
    # A file of its own.
    case = integers("rule-nested-file", config(args(), ignore=ignore))
    for part in ("gate", "up"):
        plain(case, f"{EXPERT}{part}_proj")
    nest(case, "quantization_config", "inner")
    case.files["quantization_config.json"] = case.config.pop("quantization_config")
    yield right(case)


def modelopt(name, settings, files=None):
    """An expert in NVFP4 beside plain attention."""
    rng = random(name)
    modules = {f"{EXPERT}{part}_proj": nvfp4(rng, input_scale=True) for part in ("gate", "up", "down")}
    up, gate = f"{EXPERT}up_proj", f"{EXPERT}gate_proj"
    factor = modules[gate][0]["weight_scale_2"]
    case = case_of(name, modules, settings, "ModelOpt NVFP4")
    case.files = files or {}
    # One global scale for both, as engines have it.
    case.tensors[f"{up}.weight_scale_2"] = factor
    del case.values[f"{up}.weight"]
    for part in "qkvo":
        plain(case, f"{ATTENTION}{part}_proj")
    return case


def nested_modelopt():
    inner = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head", "*self_attn*"]}
    producer = {"producer": {"name": "modelopt", "version": "0.40"}}
    for number, outer in enumerate(({"quant_method": "modelopt"}, producer, {"quant_method": "modelopt"} | producer)):
        block = outer | {"quantization": inner}
        yield right(modelopt(f"rule-nested-modelopt-{number}", {"quantization_config": block}))
        lists = inner | {"exclude_modules": ["lm_head", "*self_attn*", "*up_proj"]}
        case = modelopt(f"rule-nested-modelopt-wrong-{number}", {"quantization_config": outer | {"quantization": lists}})
        yield wrong(case, ("config-excludes-quantized",), (f"{EXPERT}up_proj",))
    block = {"quant_method": "modelopt", "quantization": inner}
    yield right(modelopt("rule-nested-modelopt-file", {}, {"hf_quant_config.json": block}))
    yield right(modelopt("rule-nested-modelopt-other-file", {}, {"quantization_config.json": {"quantization_config": block}}))


def mixed(name, attention, experts, exclude=(), stored_fused=False):
    """ModelOpt's table: FP8 attention, NVFP4 experts, under the names of `attention` and `experts`."""
    rng = random(name)
    if stored_fused:
        modules = {f"{ATTENTION}qkv_proj": fp8(rng)}
    else:
        modules = {f"{ATTENTION}{part}_proj": fp8(rng) for part in "qkv"}
    modules |= {f"{EXPERT}{part}_proj": nvfp4(rng) for part in ("gate", "up", "down")}
    table = {f"{ATTENTION}{one}": {"quant_algo": "FP8"} for one in attention}
    table |= {f"{EXPERT}{one}": {"quant_algo": "W4A16_NVFP4", "group_size": 16} for one in experts}
    case = case_of(name, modules, {}, "ModelOpt")
    case.files = hf_file("MIXED_PRECISION", quantized_layers=table)
    case.files["hf_quant_config.json"]["quantization"]["exclude_modules"] += list(exclude)
    return case


def tables():
    """A fused name of the table stands for its parts, and parts for what is stored as one."""
    globals_differ = ("gate-up-global", "fused-global")
    clean = lambda case: right(case, *globals_differ)  # noqa: E731
    absent = ("config-layer-unknown",)
    parts = ("gate_proj", "up_proj", "down_proj")
    for name, attention, experts in [
        ("parts", ("q_proj", "k_proj", "v_proj"), parts),
        ("fused", ("qkv_proj",), ("gate_up_proj", "down_proj")),
        ("w13", ("qkv_proj",), ("w13", "w2")),
        ("w1", ("qkv_proj",), ("w1", "w2", "w3")),
    ]:
        case = clean(mixed(f"rule-table-{name}", attention, experts))
        case.absent += absent
        yield case
        case = mixed(f"rule-table-{name}-plain", attention, experts)
        plain(case, f"{ATTENTION}k_proj")
        yield wrong(case, ("config-expects-quantized",), (f"{ATTENTION}k_proj",), absent)
    for name, attention in [("one", ("qkv_proj",)), ("parts", ("q_proj", "k_proj", "v_proj"))]:
        case = clean(mixed(f"rule-table-stored-{name}", attention, parts, stored_fused=True))
        case.absent += absent
        yield case
    # Some of the parts are no fused matrix.
    case = mixed("rule-table-stored-some", ("q_proj", "k_proj"), parts, stored_fused=True)
    yield wrong(case, ("config-excludes-quantized",), (f"{ATTENTION}qkv_proj",), absent)
    case = mixed("rule-table-wrong", ("qkv_proj",), ("gate_up_proj", "down_proj"))
    case.files["hf_quant_config.json"]["quantization"]["quantized_layers"][f"{EXPERT}gate_up_proj"] = {"quant_algo": "FP8"}
    yield wrong(case, ("config-algorithm",), (f"{EXPERT}up_proj",), absent)
    case = mixed("rule-table-nothing", ("qkv_proj", "qk_proj"), parts)
    yield wrong(case, ("config-layer-unknown",), ("qk_proj",))


def static_groups():
    """config_groups with static activations beside an algorithm that has none."""
    inputs = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
    groups = {"group_0": {"weights": inputs, "input_activations": inputs, "targets": [EXPERT[:-3]]}}
    table = {EXPERT[:-3]: {"quant_algo": "W4A16_NVFP4", "group_size": 16}}
    for name, algorithm, missing in [("w4a16", "W4A16_NVFP4", False), ("w4a4", "NVFP4", True)]:
        for kind in ("table", "all"):
            case = mixed(f"rule-static-{name}-{kind}", (), ())
            case.tensors = {key: value for key, value in case.tensors.items() if "self_attn" not in key}
            for kept in (case.schemes, case.values):
                for key in [key for key in kept if "self_attn" in key]:
                    del kept[key]
            case.files = {}
            block = {"quant_method": "modelopt", "quant_algo": algorithm, "config_groups": groups}
            if kind == "table":
                table[EXPERT[:-3]]["quant_algo"] = algorithm
                block |= {"quant_algo": "MIXED_PRECISION", "quantized_layers": copy.deepcopy(table)}
            case.config = {"quantization_config": block}
            if missing:
                yield wrong(case, ("input-scale-missing",), (f"{EXPERT}up_proj",), ("config-places-differ",))
            else:
                case = right(case, "gate-up-global")
                case.notes, case.absent = ("config-places-differ",), (*case.absent, "input-scale-missing")
                yield case


def runtime_names():
    """Groups by the names of an engine; the file has those of the model."""
    targets = [r"re:.*attn.*(fused_wqa_wkv|wq_b|wo_a|wo_b)$", r"re:.*ffn.*(gate|up|down)_proj$"]
    block = {
        "quant_method": "compressed-tensors",
        "format": "mixed-precision",
        "config_groups": {
            "group_0": {"format": "float-quantized", "targets": targets[:1], "weights": floats(8, strategy="channel")},
            "group_1": {"format": "nvfp4-pack-quantized", "targets": targets[1:], "weights": NVFP4},
        },
        "ignore": [],
    }

    def made(name, changes=None):
        rng = random(name)
        modules = {f"layers.0.ffn.experts.0.{part}": fp4(rng, 64, 64, divisor=1000) for part in ("w1", "w2", "w3")}
        modules |= {f"layers.0.attn.{part}": ct_fp8(rng, 64, 64, "channel") for part in ("wq_a", "wkv", "wq_b", "wo_a")}
        settings = {"model_type": "deepseek_v4", "quantization_config": copy.deepcopy(block)}
        for group, target in (changes or {}).items():
            settings["quantization_config"]["config_groups"][group]["targets"] = [target]
        return case_of(name, modules, settings, "compressed-tensors")

    yield right(made("rule-runtime-names"))
    case = made("rule-runtime-names-plain")
    plain(case, "layers.0.ffn.experts.0.w3", (64, 64))
    yield wrong(case, ("config-expects-quantized",), ("layers.0.ffn.experts.0.w3",))
    case = made("rule-runtime-names-without-wkv", {"group_0": r"re:.*attn.*(wq_a|wq_b|wo_a|wo_b)$"})
    yield wrong(case, ("config-excludes-quantized",), ("layers.0.attn.wkv",))
    case = made("rule-runtime-names-some", {"group_1": r"re:.*ffn.*(gate|up)_proj$"})
    yield wrong(case, ("config-excludes-quantized",), ("layers.0.ffn.experts.0.w2",))
    # What names modules of the file as they are is not read in other names.
    case = made("rule-own-names", {"group_1": r"re:.*(ffn.*w1|gate_proj|down_proj)$"})
    yield wrong(case, ("config-excludes-quantized",), ("layers.0.ffn.experts.0.w2",))


MLP = "layers.0.mlp."
PREFIXES = ("model.", "language_model.model.", "model.language_model.")


def under(case, prefix):
    """The case in a wrapper's names."""
    rename = lambda name: re.sub(r"^model\.(?=layers)", prefix, name)  # noqa: E731
    for kept in ("tensors", "schemes", "values", "magnitudes"):
        setattr(case, kept, {rename(name): value for name, value in getattr(case, kept).items()})
    return case


def integer_case(kind, name, entries, plain_parts, prefix):
    """up_proj and down_proj, or what is listed, in the words of a producer; its list has these entries."""
    name = f"rule-{kind}-{name}"
    forms = {part: None if part in plain_parts else gptq.Form() for part in ("gate", "up", "down")}
    if kind == "awq":
        case = awq.whole(name, block=awq.config(modules_to_not_convert=["lm_head", *entries]))
        for part in plain_parts:
            plain(case, f"model.{MLP}{part}_proj", (64, 128))
    elif kind == "gptq":
        case = gptq.ruled(name, gptq.Form(), forms, dynamic={"-:" + re.escape(entry): {} for entry in entries})
    else:
        more = {"extra_config": {entry: {"bits": 16} for entry in entries}}
        case = auto_round.whole(name, forms, auto_round.config("auto_round:auto_gptq", **more))
    return under(case, prefix)


def integer_lists():
    """Lists and rules of GPTQ, AWQ and AutoRound under other prefixes, and fused names."""
    differ = ("fused-schemes-differ", "zeros-wrap")
    excludes, expects = ("config-excludes-quantized",), ("config-expects-quantized",)
    for kind in ("awq", "gptq", "auto-round"):
        for number, listed in enumerate(PREFIXES):
            for other, prefix in enumerate(PREFIXES):
                make = lambda name, plain_parts: integer_case(  # noqa: E731
                    kind, f"{name}-{number}{other}", [f"{listed}{MLP}up_proj"], plain_parts, prefix)  # noqa: B023
                yield right(make("prefix", ("up",)), *differ)
                yield wrong(make("prefix-quantized", ()), excludes, (f"{prefix}{MLP}up_proj",))
                yield wrong(make("prefix-plain", ("gate", "up")), expects, (f"{prefix}{MLP}gate_proj",))
        fused = [f"model.{MLP}gate_up_proj"]
        yield right(integer_case(kind, "fused", fused, ("gate", "up"), "model."), *differ)
        yield wrong(integer_case(kind, "fused-quantized", fused, (), "model."), excludes, (f"model.{MLP}gate_proj",))
        for name, parts, rule in [("all", ("gate", "up"), excludes), ("some", ("up",), ("fused-partly-excluded",))]:
            case = integer_case(kind, f"stored-{name}", [f"model.{MLP}{part}_proj" for part in parts], (), "model.")
            rename = lambda text: text.replace("up_proj", "gate_up_proj")  # noqa: E731
            case.tensors = {rename(key): value for key, value in case.tensors.items() if "gate_proj" not in key}
            yield wrong(case, rule, (f"model.{MLP}gate_up_proj",))
    for number, block in enumerate(PREFIXES):
        for other, prefix in enumerate(PREFIXES):
            name = f"rule-auto-round-block-{number}{other}"
            yield right(under(auto_round.whole(name, gptq.Form(), auto_round.config(block_name_to_quantize=f"{block}layers")), prefix))
    case = auto_round.whole("rule-auto-round-block-wrong", gptq.Form(), auto_round.config(block_name_to_quantize="model.visual.blocks"))
    yield wrong(case, excludes, (f"model.{MLP}up_proj",))
    case = awq.whole("rule-method-alone", block=awq.config())
    case.files["quantize_config.json"] = {"bits": 4, "group_size": 32, "zero_point": True, "method": "awq", "format": "gemm"}
    case.config = {}
    case.absent = ("config-producer",)
    yield case


def cases():
    yield from integer_lists()
    yield from groups()
    yield from quark_rules()
    yield from ignored()
    yield from nested()
    yield from nested_modelopt()
    yield from tables()
    yield from static_groups()
    yield from runtime_names()
