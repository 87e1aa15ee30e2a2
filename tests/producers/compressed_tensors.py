# SPDX-License-Identifier: Apache-2.0
"""compressed-tensors made by hand: what its library does not write, or no longer
(compressed_tensors_library.py has what it does), and the bases of faults."""

import copy
from dataclasses import replace

import numpy as np
from case import Case, bf16, e4m3, random
from compressed_matrices import (
    EXPERT,
    LINEAR,
    MXFP4,
    NVFP4,
    Integers,
    args,
    case_of,
    config,
    floats,
    fp4,
    fp8,
    integers,
)


SHARED = 1234.5  # the divisor of gate and up


def four_bit_floats(name, settings, scheme, **more):
    rng = random(name)
    modules = {}
    for projection, n, k, divisor in [("gate", 48, 64, SHARED), ("up", 48, 64, SHARED), ("down", 64, 48 + 16, None)]:
        modules[f"{EXPERT}{projection}_proj"] = fp4(rng, n, k, divisor=divisor, **more)
    return case_of(name, modules, settings, scheme)


def odd_targets():
    case = integers("ct-target-class", config(args(), targets=["Linear", "Conv2d"]))
    case.notes = ("config-target-class",)
    yield case
    settings = config(args())
    groups = settings["quantization_config"]["config_groups"]
    groups["group_1"] = copy.deepcopy(groups["group_0"])
    case = integers("ct-fault-target-twice", settings)
    case.faults = ("config-target-twice",)
    yield case


def int8(name, group=0, order=False):
    rng = random(name)
    matrix = Integers(rng, 48, 64, 8, group, np.float32, order=order)
    matrix.parts.pop("weight_packed")
    matrix.parts.pop("weight_shape")
    matrix.parts["weight"] = matrix.codes.astype(np.int8)
    weights = args(8, strategy="group" if group else "channel", group_size=group or None, actorder="group" if order else None)
    settings = config(weights, "int-quantized", inputs=args(8, strategy="token", group_size=None, dynamic=True))
    return case_of(name, {f"{EXPERT}up_proj": (matrix.parts, matrix.values)}, settings, "compressed-tensors INT8")


def fp8_case(granularity):
    name = f"ct-fp8-{granularity}"
    weights = {
        "tensor": floats(8, strategy="tensor"),
        "channel": floats(8, strategy="channel"),
        "block": floats(8, strategy="block", block_structure=[128, 128]),
    }[granularity]
    module = fp8(random(name), 144, 160, granularity)
    return case_of(name, {f"{EXPERT}up_proj": module}, config(weights, "float-quantized"), "compressed-tensors FP8")


def published(name, turned=False):
    """Two formats and a layer in 16 bits, by regular expressions alone; the order says nothing."""
    rng = random(name)
    groups = {
        "group_0": {
            "format": "float-quantized",
            "targets": [r"re:.*self_attn\.(q|k|v|o)_proj$"],
            "weights": floats(8, strategy="channel"),
        },
        "group_1": {
            "format": "nvfp4-pack-quantized",
            "targets": [r"re:.*experts\.\d+\.(gate|up|down)_proj$"],
            "weights": NVFP4,
        },
    }
    if turned:
        groups = dict(reversed(groups.items()))
    block = {
        "quant_method": "compressed-tensors",
        "format": "mixed-precision",
        "config_groups": groups,
        "ignore": ["lm_head", r"re:.*mlp\.gate$", r"re:.*layers\.1\..*"],
    }
    modules = {f"{EXPERT}{part}_proj": fp4(rng, 64, 64, divisor=SHARED) for part in ("gate", "up", "down")}
    modules |= {f"model.layers.0.self_attn.{part}_proj": fp8(rng, 64, 64, "channel") for part in "qkvo"}
    case = case_of(name, modules, {"quantization_config": block}, "compressed-tensors")
    plain_modules = ["layers.0.mlp.gate", "layers.1.mlp.gate"]
    plain_modules += [f"layers.1.mlp.experts.0.{part}_proj" for part in ("gate", "up", "down")]
    plain_modules += [f"layers.1.self_attn.{part}_proj" for part in "qkvo"]
    for module in plain_modules:
        plain = bf16(rng.uniform(-1, 1, (1 if module.endswith("mlp.gate") else 64, 64)))
        case.tensors[f"model.{module}.weight"] = plain
        case.schemes[f"model.{module}"] = "bf16"
        case.values[f"model.{module}.weight"] = plain.astype(np.float64)
    case.schemes |= {f"{EXPERT}up_proj": "NVFP4", "model.layers.0.self_attn.q_proj": "FP8"}
    return case


def stacked(name, rename):
    """All experts of a layer in one tensor a projection."""
    rng = random(name)
    experts = "model.layers.0.mlp.experts."
    tensors, values = {}, {}
    for projection, n, k in [("gate_up", 64, 64), ("down", 64, 32)]:
        each = [Integers(rng, n, k) for _ in range(3)]
        module = f"{experts}{projection}_proj"
        for suffix in each[0].parts:
            tensors[rename(module, suffix)] = np.stack([matrix.parts[suffix] for matrix in each])
        values[module] = np.stack([matrix.values for matrix in each])  # as Transformers names it
    settings = config(args(), targets=["re:.*experts.*"])
    settings["hidden_size"] = 64
    schemes = {f"{experts}gate_up_proj": "INT4", f"{experts}down_proj": "INT4"}
    return Case(name, tensors, settings, {}, schemes, values)


def stacked_floats(name, weights, kind, scheme, **more):
    """The same in 4-bit floats; each expert of NVFP4 has its own divisor."""
    rng = random(name)
    case = Case(name, {}, config(weights, kind, targets=["re:.*experts.*"]) | {"model_type": "qwen3_5_moe", "hidden_size": 64})
    for projection, n, k in [("gate_up", 96, 64), ("down", 64, 64)]:
        each = [fp4(rng, n, k, **more) for _ in range(3)]
        module = f"model.layers.0.mlp.experts.{projection}_proj"
        for suffix in each[0][0]:
            parts = [parts[suffix] for parts, _ in each]
            case.tensors[f"{module}.{suffix}"] = np.concatenate(parts) if parts[0].ndim == 1 else np.stack(parts)
        case.values[module] = np.stack([values for _, values in each])
        case.schemes[module] = scheme
    return case


def without_config(case, name):
    out = copy.deepcopy(case)
    out.name = name
    out.config = {}
    return out


def nvfp4():
    return four_bit_floats("ct-nv", config(NVFP4, "nvfp4-pack-quantized"), "")


def mxfp4():
    return four_bit_floats("ct-mx", config(MXFP4, "mxfp4-pack-quantized"), "", mx=True)


def words():
    """Integers in words along the rows, as no version of the library tried here writes them."""
    yield integers("ct-int4-actorder-true-asym", config(args(actorder=True, symmetric=False)), order=True, zeros="packed")
    yield integers("ct-int4-short-last-group", config(args(group_size=128)), group=128, shape=(176, 208))


def odd_parts():
    unset = integers("ct-int4-g-idx-unset")
    unset.tensors[f"{EXPERT}up_proj.weight_g_idx"] = np.full(64, -1, np.int32)
    unset.absent = ("config-actorder",)
    unset.schemes[f"{EXPERT}up_proj"] = "bf16 scale a group of 32)"
    yield unset
    unset = integers("ct-int4-g-idx-unset-weight-order", config(args(actorder="weight")))
    unset.tensors[f"{EXPERT}up_proj.weight_g_idx"] = np.full(64, -1, np.int32)
    yield unset
    said = integers("ct-fault-g-idx-unset-of-groups", config(args(actorder="group")), order=True)
    said.tensors[f"{EXPERT}up_proj.weight_g_idx"][:] = -1
    said.values, said.faults = {}, ("config-actorder",)
    said.said = ("actorder of groups, but weight_g_idx is -1 everywhere",)
    yield said
    uneven = integers("ct-fault-g-idx-uneven", config(args(actorder="group")), order=True)
    groups = uneven.tensors[f"{EXPERT}up_proj.weight_g_idx"]
    groups[np.flatnonzero(groups == 0)[0]] = 1
    uneven.values, uneven.faults = {}, ("group-index-uneven",)
    uneven.said = ("group 0 has 31 columns", "columns in groups of 32")
    yield uneven
    zeros = integers("ct-int4-old-zero-points-of-zero")
    for name, scale in list(zeros.tensors.items()):
        if name.endswith("weight_scale"):
            zeros.tensors[name.replace("scale", "zero_point")] = np.zeros(scale.shape, np.int8)
    yield zeros


def stacks():
    yield without_config(integers("ct-int4-of-no-config"), "ct-int4-without-config")
    yield stacked("ct-int4-stacked", lambda module, suffix: f"{module}.{suffix}")
    yield stacked_floats("ct-nvfp4-stacked", NVFP4, "nvfp4-pack-quantized", "compressed-tensors NVFP4")
    yield stacked_floats("ct-mxfp4-stacked", MXFP4, "mxfp4-pack-quantized", "compressed-tensors MXFP4", mx=True)
    for name, kept in [("ct-int4-stacked-underscores", "warnings"), ("ct-fault-stacked-underscores", "faults")]:
        case = stacked(name, lambda module, suffix: f"{module}_{suffix.removeprefix('weight_')}")
        yield replace(case, **{kept: ("packed-experts-suspect",)})


def odd_configs():
    preset = integers("ct-preset-name", group=32)
    preset.config["quantization_config"]["config_groups"] = {"W4A16": LINEAR}
    preset.warnings = ("config-group-size",)
    yield preset
    old = integers("ct-compression-config")
    old.config = {"compression_config": old.config["quantization_config"]}
    yield old
    nested = integers("ct-compression-config-nested")
    inner = nested.config["quantization_config"]
    nested.config = {"compression_config": {"quant_method": "compressed-tensors", "quantization_config": inner, "sparsity_config": {"format": "dense"}}}
    yield nested


def nvfp4_by_tensors():
    yield four_bit_floats("ct-nvfp4-without-groups", {"quantization_config": {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}}, "compressed-tensors NVFP4")
    yield without_config(four_bit_floats("ct-nvfp4-of-no-config", {}, "compressed-tensors NVFP4"), "ct-nvfp4-without-config")


def shapes_alike():
    """Codes and scales of the same shapes that are matrices of other widths and numbers of columns."""
    channel = args(strategy="channel", group_size=None)
    name = "ct-one-shape-of-two-widths"
    settings = config(channel, targets=["re:.*0.self_attn.*"])
    wide = {"targets": ["re:.*[12].self_attn.*"], "weights": channel | {"num_bits": 8}}
    settings["quantization_config"]["config_groups"]["group_1"] = wide
    modules = {}
    for layer, projection, bits, k in [(0, "o", 4, 64), (1, "o", 8, 32), (2, "q", 8, 32)]:
        matrix = Integers(random(f"{name}-{layer}"), 48, k, bits, group=0)
        modules[f"model.layers.{layer}.self_attn.{projection}_proj"] = (matrix.parts, matrix.values)
    case = case_of(name, modules, settings, "compressed-tensors INT4")
    case.schemes |= {f"model.layers.{layer}.self_attn.{part}_proj": "compressed-tensors INT8" for layer, part in [(1, "o"), (2, "q")]}
    yield case
    name = "ct-one-shape-of-two-lengths"
    modules = {}
    for projection, k in [("o", 64), ("q", 60)]:
        matrix = Integers(random(f"{name}-{projection}"), 48, k, group=0)
        modules[f"model.layers.0.self_attn.{projection}_proj"] = (matrix.parts, matrix.values)
    yield case_of(name, modules, config(channel), "compressed-tensors INT4")
    # A wrong one is not that of all others.
    case = integers("ct-first-shape-wrong", config(channel), group=0)
    case.tensors[f"{EXPERT}down_proj.weight_shape"] = np.array([0, 0], np.int64)
    case.schemes[f"{EXPERT}down_proj"] = "weight_shape [rows, columns] is missing"
    yield replace(case, faults=("module-unreadable",))


def left_over_zeros():
    for case, dtype in [(fp8_case("channel"), e4m3(0).dtype), (fp8_case("tensor"), np.int8), (nvfp4(), e4m3(0).dtype)]:
        case.name += "-left-over-zeros"
        for module in case.schemes:
            if f"{module}.weight_scale" in case.tensors:
                shape = case.tensors[f"{module}.weight_scale"].shape
                case.tensors[f"{module}.weight_zero_point"] = np.zeros(shape, dtype)
        case.faults = ()
        yield case


def cases():
    yield from odd_targets()
    yield from words()
    yield from odd_parts()
    yield from stacks()
    yield from odd_configs()
    yield from nvfp4_by_tensors()
    yield from left_over_zeros()
    yield from shapes_alike()
    yield published("ct-mixed-published")
    yield published("ct-mixed-published-turned", turned=True)
