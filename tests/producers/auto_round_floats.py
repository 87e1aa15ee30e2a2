# SPDX-License-Identifier: Apache-2.0
"""AutoRound's exports of floats, in compressed-tensors' names and packing."""

import copy

import numpy as np
import plain
from case import E2M1, bf16, pack_nibbles, random, spread
from compressed_matrices import EXPERT, MXFP4, NVFP4, args, case_of, fp4, fp8
from compressed_matrices import config as ct_config


def config(data_type, bits=4, packing="auto_round:llm_compressor", **more):
    return {
        "quantization_config": {
            "quant_method": "auto-round",
            "bits": bits,
            "sym": True,
            "data_type": data_type,
            "act_bits": 16,
            "packing_format": packing,
        }
        | more
    }


def e5m3(byte):
    exponent, mantissa = byte >> 3, byte & 7
    normal = np.exp2(exponent - 15.0) * (1 + mantissa / 8)
    return np.where(exponent == 0, np.exp2(-14.0) * mantissa / 8, normal)


def second_version(rng, n, k):
    """NVFP4 with e5m3 scales, which reach so far that they need no second factor."""
    codes = rng.integers(0, 16, (n, k))
    scales = rng.integers(1, 140, (n, k // 16))
    parts = {"weight_packed": pack_nibbles(codes), "weight_scale": scales.astype(np.uint8)}
    return parts, E2M1[codes] * spread(e5m3(scales), 1, 16, (n, k))


def whole(name, settings, scheme, make):
    rng = random(name)
    modules = {f"{EXPERT}{part}_proj": make(rng, n, k) for part, n, k in [("gate", 48, 64), ("up", 48, 64), ("down", 64, 64)]}
    return case_of(name, modules, settings, scheme)


def nv(rng, n, k):
    return fp4(rng, n, k, divisor=1234.5)


def mx(rng, n, k):
    return fp4(rng, n, k, mx=True)


def block_fp8(rng, n, k):
    parts, values = fp8(rng, n, k, "block")
    return {"weight": parts["weight"], "weight_scale_inv": parts["weight_scale"].astype(np.float32)}, values


def plain_export():
    """Quantized and decoded again: the tensors are plain, and say all."""
    block = config("int", group_size=32, packing="auto_round:fake")["quantization_config"]
    for name, packing in [("fake", "auto_round:fake"), ("fake-mx", "fake")]:
        case = plain.qwen3(f"auto-round-{name}", np.float16)
        case.config["quantization_config"] = block | {"packing_format": packing}
        case.notes = ("config-producer",)
        yield case
    quantized = whole("auto-round-fault-fake-of-codes", config("mx_fp", packing="auto_round:fake"), "AutoRound", mx)
    quantized.faults = ("config-format",)
    yield quantized


QUARTERS = np.concatenate([np.arange(8), -np.arange(8)]) / 4


def mx_int4(rng, n, k):
    """A sign and a magnitude of quarters."""
    codes = rng.integers(0, 16, (n, k))
    exponents = rng.integers(100, 129, (n, -(-k // 32))).astype(np.uint8)
    exponents[0, 0] = 0  # 2^-127: weights below the smallest normal f32
    values = QUARTERS[codes] * spread(np.exp2(exponents.astype(np.float64) - 127), 1, 32, (n, k))
    return {"weight_packed": pack_nibbles(codes), "weight_scale": exponents}, values


def mx_int4_cases():
    settings = config("mx_int4", group_size=32)
    yield whole("auto-round-mx-int4", settings, "AutoRound MXINT4 (i4, e8m0 scale a group of 32)", mx_int4)
    short = whole("auto-round-mx-int4-short-last-group", settings, "AutoRound MXINT4", lambda rng, n, k: mx_int4(rng, n, k + 16))
    yield short
    for name, faults, change in [
        ("scale-nan", ("scale-nan",), lambda t, c: t[f"{EXPERT}up_proj.weight_scale"].__setitem__((2, 1), 255)),
        ("mixed", ("module-unreadable",), lambda t, c: c.update(extra_config={f"{EXPERT}up_proj": {"data_type": "mx_fp4", "bits": 4}})),
        ("eight", ("module-unreadable",), lambda t, c: c.update(data_type="mx_int8")),
    ]:
        case = whole(f"auto-round-fault-mx-int4-{name}", settings, "", mx_int4)
        case.config = copy.deepcopy(case.config)
        case.faults, case.values = faults, {}
        change(case.tensors, case.config["quantization_config"])
        yield case
    yield from untold()


def untold():
    """MXFP4 and mx_int4 are the same tensors: a name that is neither's tells nothing."""
    for kind in ("int", "int4", "mxint4", "mx_int4 ", "mx_int8", "mx_fp8", "mx_fp6", "fp8", "zzz", 7, ["mx_int4"], {"a": 1}, True, None, "absent"):
        settings = config(kind, group_size=32)
        if kind == "absent":
            del settings["quantization_config"]["data_type"]
        case = whole(f"auto-round-fault-nibbles-{kind}", settings, "", mx_int4)
        said = "no data_type" if kind in (None, "absent") else f'data_type "'
        case.faults, case.said, case.refused, case.values = ("module-unreadable",), (said,), True, {}
        yield case
    up = f"{EXPERT}up_proj"
    for name, base, rule in [("rule-unknown", "mx_fp4", {"data_type": "zzz"}), ("rule-kind", "mx_fp4", {"data_type": 7})]:
        case = whole(f"auto-round-fault-nibbles-{name}", config(base, group_size=32, extra_config={up: rule}), "", mx_int4)
        case.faults, case.said, case.refused, case.values = ("module-unreadable",), (up,), True, {}
        yield case
    for kind in ("MX_INT4", "Mx_Int4"):
        case = whole(f"auto-round-nibbles-{kind}", config(kind, group_size=32), "AutoRound MXINT4", mx_int4)
        yield case
    for kind in ("mx_fp4", "MX_FP", "mx_fp_rceil", "mx_fp4e2m1"):
        yield whole(f"auto-round-nibbles-{kind}", config(kind, group_size=32), "AutoRound MXFP4", mx)
    for kind in ("nv_fp4", "nv_fp4_with_static_gs", "NV_FP4"):
        yield whole(f"auto-round-nibbles-{kind}", config(kind, group_size=16), "AutoRound NVFP4", nv)
    # Two places, of which each would do alone.
    case = whole("auto-round-fault-nibbles-places", config("mx_fp4", group_size=32), "", mx_int4)
    case.files = {"quantization_config.json": config("mx_int4", group_size=32)["quantization_config"]}
    case.faults, case.refused, case.values = ("module-unreadable",), True, {}
    yield case
    # Bytes for groups of 16 are e5m3 where AutoRound's second version is named.
    case = whole("auto-round-fault-nibbles-e5m3", config("mx_fp4", group_size=16), "", second_version)
    case.faults, case.refused, case.values = ("module-unreadable",), True, {}
    yield case
    yield from kept_keys()
    yield from both_dialects()


def kept_keys():
    """compressed-tensors' method with AutoRound's keys beside its own."""
    keys = {"data_type": "mx_int4", "packing_format": "auto_round:llm_compressor", "provider": "auto-round"}
    settings = config("mx_int4", group_size=32)
    settings["quantization_config"]["quant_method"] = "compressed-tensors"
    yield whole("auto-round-kept-keys", settings, "compressed-tensors MXINT4", mx_int4)
    integers = args(4, scale_dtype="torch.uint8")
    for name, weights, kind, make, rule, refused in [
        ("float", MXFP4, "mxfp4-pack-quantized", mx, "module-unreadable", True),
        ("nvfp4", NVFP4, "nvfp4-pack-quantized", nv, "config-format", False),
        ("int", integers, "mxfp4-pack-quantized", mx, "module-unreadable", True),
    ]:
        settings = ct_config(weights, kind)
        if name != "int":
            settings["quantization_config"] |= keys
        case = whole(f"auto-round-fault-kept-keys-{name}", settings, "", make)
        case.faults, case.refused, case.values = (rule,), refused, {}
        yield case


def both_dialects():
    """AutoRound's keys beside compressed-tensors' groups, in one block or in two files."""
    right = {"bits": 4, "group_size": 32, "sym": True, "data_type": "mx_fp", "provider": "auto-round"}
    up = f"{EXPERT}up_proj"
    wrong = {
        "bits": ({"bits": 8}, "bits 8 by AutoRound", "num_bits 4 by config_groups.group_0"),
        "group": ({"group_size": 64}, "group_size of groups of 64 by", "groups of 32 by config_groups.group_0"),
        "row": ({"group_size": -1}, "group_size of a scale a row", "groups of 32 by config_groups.group_0"),
        "type": ({"data_type": "int"}, 'data_type "int" by', "floats by config_groups.group_0"),
        "rule": ({"extra_config": {up: {"bits": 8}}}, "bits 8 by AutoRound", "num_bits 4 by"),
        "excluded": ({"extra_config": {up: {"bits": 16}}}, "bits 16 by AutoRound", "num_bits 4 by"),
    }
    for method in ("compressed-tensors", "auto-round"):
        for place in ("one", "two"):
            for name, (changes, *said) in ({"none": ({},)} | wrong).items():
                settings = ct_config(MXFP4, "mxfp4-pack-quantized")
                block = settings["quantization_config"]
                keys = right | changes
                if place == "one":
                    block |= keys | {"quant_method": method}
                case = whole(f"auto-round-{'fault-' if said else ''}dialects-{method}-{place}-{name}", settings, "MXFP4", mx)
                if place == "two":
                    if method == "auto-round":
                        case.config = {"quantization_config": keys | {"quant_method": method}}
                        case.files = {"quantization_config.json": block}
                    else:
                        case.files = {"quantization_config.json": keys | {"quant_method": "auto-round"}}
                if said:
                    case.faults, case.said, case.values, case.schemes = ("config-places-differ",), tuple(said), {}, {}
                yield case
    listed = ct_config(MXFP4, "mxfp4-pack-quantized", ignore=("lm_head", up))
    listed["quantization_config"] |= right | {"extra_config": {up: {"bits": 4}}}
    case = whole("auto-round-fault-dialects-ignored", listed, "", mx)
    case.faults, case.said, case.values = ("config-places-differ",), ("no group, or ignore by config_groups",), {}
    yield case


EXPORTS = {
    "mx": ("mx_fp4", 32, "auto_round:llm_compressor", mx),
    "nv": ("nv_fp4", 16, "auto_round:llm_compressor", nv),
    "int4": ("mx_int4", 32, "auto_round:llm_compressor", mx_int4),
    "v2": ("nvfp4_v2", 16, "auto_round:llm_compressor_nvfp4_e5m3", second_version),
}


def compared():
    """Codes that the config describes in another way, in every export of floats."""
    up = f"{EXPERT}up_proj"
    for name, (kind, group, packing, make) in EXPORTS.items():
        for fault, rule, more in [
            ("all-plain", "config-excludes-quantized", {"extra_config": {".*": {"bits": 16}}}),
            ("one-plain", "config-excludes-quantized", {"extra_config": {up: {"bits": 16}}}),
            ("blocks", "config-excludes-quantized", {"block_name_to_quantize": "model.layers.7"}),
            ("bits", "config-bits", {"bits": 8}),
            ("one-bits", "config-bits", {"extra_config": {up: {"bits": 8}}}),
            ("group-zero", "config-value", {"group_size": 0}),
            ("group-text", "config-value", {"group_size": "abc"}),
            ("group", "config-group-size", {"group_size": 64}),
            ("one-group", "config-group-size", {"extra_config": {".*up_proj": {"group_size": 128}}}),
            ("format-fp8", "config-format", {"packing_format": "auto_round:fp8"}),
            ("format-mlx", "config-format", {"packing_format": "auto_round:mlx"}),
            ("format-gptq", "config-format", {"packing_format": "auto_round:auto_gptq"}),
            ("format-unknown", "config-value", {"packing_format": "auto_round:zzz"}),
        ]:
            settings = config(kind, packing=packing, group_size=group)
            settings["quantization_config"] |= more
            case = whole(f"auto-round-fault-{name}-{fault}", settings, "", make)
            case.faults, case.values = (rule,), {}
            yield case
        case = whole(f"auto-round-fault-{name}-plain", config(kind, packing=packing, group_size=group), "", make)
        for part in [part for part in case.tensors if part.startswith(up)]:
            del case.tensors[part]
        case.tensors[f"{up}.weight"] = bf16(np.ones((48, 64)))
        case.faults, case.values, case.schemes = ("config-expects-quantized",), {}, {}
        yield case
    for kind in ("fp8", "int", "zzz", ["x"], "mx_fp4"):
        case = whole(f"auto-round-fault-nv-type-{kind}", config(kind, group_size=16), "", nv)
        case.faults, case.values = ("config-format",), {}
        yield case
    case = whole("auto-round-fault-mx-type-nv", config("nv_fp4", group_size=32), "", mx)
    case.faults, case.values = ("config-format",), {}
    yield case
    yield from compared_fp8()


def compared_fp8():
    block = config("fp8", 8, "auto_round:fp8", group_size=[128, 128])
    channel = config("fp8_e4m3", 8, "auto_round:fp8_static", group_size=-1)
    for name, base, make, rule, more in [
        ("bits", channel, "channel", "config-bits", {"bits": 4}),
        ("group", channel, "channel", "config-group-size", {"group_size": 32}),
        ("matrix", channel, "channel", "config-group-size", {"group_size": 0}),
        ("block", channel, "channel", "config-group-size", {"group_size": [128, 128]}),
        ("block-odd", channel, "channel", "config-value", {"group_size": [128]}),
        ("type", channel, "channel", "config-format", {"data_type": "int"}),
        ("type-mx", channel, "channel", "config-format", {"data_type": "mx_fp8"}),
        ("format", channel, "channel", "config-format", {"packing_format": "auto_round:auto_awq"}),
        ("excluded", channel, "channel", "config-excludes-quantized", {"extra_config": {".*": {"bits": 16}}}),
        ("row", block, None, "config-group-size", {"group_size": -1}),
        ("other-block", block, None, "config-block-size", {"group_size": [64, 128]}),
    ]:
        settings = copy.deepcopy(base)
        settings["quantization_config"] |= more
        build = (lambda rng, n, k: block_fp8(rng, 4 * n, 4 * k)) if make is None else lambda rng, n, k: fp8(rng, n, k, "channel")
        case = whole(f"auto-round-fault-fp8-{name}", settings, "", build)
        case.faults, case.values = (rule,), {}
        yield case
    settings = config("fp8", 8, "auto_round:fp8", group_size=0)
    yield whole("auto-round-fp8-matrix", settings, "AutoRound FP8", lambda rng, n, k: fp8(rng, n, k, "tensor"))


def shapes():
    """weight_shape beside codes that tell their shape themselves."""
    up = f"{EXPERT}up_proj"
    makers = {
        "ct-mx": lambda name: whole(name, ct_config(MXFP4, "mxfp4-pack-quantized"), "", mx),
        "ct-nv": lambda name: whole(name, ct_config(NVFP4, "nvfp4-pack-quantized"), "", nv),
        "mx": lambda name: whole(name, config("mx_fp4", group_size=32), "", mx),
        "nv": lambda name: whole(name, config("nv_fp4", group_size=16), "", nv),
        "int4": lambda name: whole(name, config("mx_int4", group_size=32), "", mx_int4),
    }
    for name, make in makers.items():
        for value in ([64, 32], [1, 2], [48, 64, 1, 1]):
            case = make(f"auto-round-fault-shape-{name}-{'x'.join(map(str, value))}")
            case.tensors[f"{up}.weight_shape"] = np.array(value, np.int64)
            if value == [48, 64, 1, 1]:
                case.name = case.name.replace("fault-shape", "shape")
            else:
                case.faults, case.values = ("weight-shape-differs",), {}
            yield case


def cases():
    yield from compared()
    yield from shapes()
    mx_config = config("mx_fp", group_size=32)
    yield whole("auto-round-mxfp4", mx_config, "AutoRound MXFP4", mx)
    yield whole("auto-round-nvfp4", config("nv_fp", group_size=16), "AutoRound NVFP4", nv)
    settings = config("nvfp4_v2", packing="auto_round:llm_compressor_nvfp4_e5m3", group_size=16)
    yield whole("auto-round-nvfp4-v2", settings, "AutoRound NVFP4", second_version)
    settings = config("fp8_e4m3", 8, "auto_round:fp8_static", group_size=-1, fmt="e4m3")
    yield whole("auto-round-fp8", settings, "AutoRound FP8", lambda rng, n, k: fp8(rng, n, k, "channel"))
    settings = config("fp8", 8, "auto_round:fp8", group_size=-1, fmt="e4m3", activation_scheme="static")
    yield whole("auto-round-fp8-tensor", settings, "AutoRound FP8", lambda rng, n, k: fp8(rng, n, k, "tensor"))
    settings = config("fp8", 8, "auto_round:fp8", group_size=[128, 128], fmt="e4m3")
    yield whole("auto-round-fp8-block", settings, "f32 scale a block of 128x128", block_fp8)
    settings = config("mx_fp8e4m3", 8, group_size=32)
    yield whole("auto-round-mxfp8", settings, "AutoRound MXFP8", lambda rng, n, k: fp8(rng, n, k, "mx"))
    yield from plain_export()
    yield from mx_int4_cases()
