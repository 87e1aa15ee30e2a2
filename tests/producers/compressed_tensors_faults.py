# SPDX-License-Identifier: Apache-2.0
"""compressed-tensors with one fault each: parts, config and values that do not fit."""

import numpy as np
from case import bf16
from compressed_matrices import EXPERT, args, config, integers
from compressed_tensors import fp8_case, int8, mxfp4, nvfp4


def broken(name, rules, change, case=None):
    case = case or integers(f"ct-fault-{name}")
    case.name = f"ct-fault-{name}"
    case.faults = rules
    case.schemes = {}
    change(case.tensors, case.config.get("quantization_config", {}))
    return case


UP = f"{EXPERT}up_proj."


def asymmetric():
    return integers("ct-asymmetric", config(args(symmetric=False)), zeros="plain")


def ordered():
    return integers("ct-ordered", config(args(actorder="group")), order=True)


def put(suffix, value):
    return lambda tensors, _: tensors.update({UP + suffix: value(tensors.get(UP + suffix))})


def drop(suffix):
    return lambda tensors, _: tensors.pop(UP + suffix)


def drop_all(suffix):
    def change(tensors, _):
        for name in [name for name in tensors if name.endswith(suffix)]:
            del tensors[name]

    return change


def changed(array, index, value):
    array = np.array(array)
    array[index] = value
    return array


def say(**changes):
    def change(_, block):
        block["config_groups"]["group_0"]["weights"].update(changes)

    return change


UNREADABLE = ("module-unreadable",)


def of_words():
    yield broken("scale-missing", UNREADABLE, drop("weight_scale"))
    yield broken("packed-missing", ("scale-without-weight",), drop("weight_packed"))
    yield broken("scale-shape", UNREADABLE, put("weight_scale", lambda scale: scale[:, :1].repeat(3, 1)))
    yield broken("scale-dtype", UNREADABLE, put("weight_scale", lambda scale: scale.astype(np.int32)))
    yield broken("zero-points-missing", UNREADABLE, drop("weight_zero_point"), asymmetric())
    yield broken("zero-points-shape", UNREADABLE, put("weight_zero_point", lambda zero: zero[:, :1]), asymmetric())
    yield broken("zero-points-range", ("zero-point-range",), put("weight_zero_point", lambda zero: changed(zero, (3, 1), 9)), asymmetric())
    yield broken("g-idx-missing", UNREADABLE, drop("weight_g_idx"), ordered())
    yield broken("bytes-g-idx-range", ("g-idx-range",), put("weight_g_idx", lambda index: changed(index, 5, 2)), int8("ct-b", group=32, order=True))
    yield broken("bytes-g-idx-missing", UNREADABLE, drop("weight_g_idx"), int8("ct-b", group=32, order=True))
    yield broken("scale-twice", ("scale-twice",), put("scale", lambda _: bf16(np.ones((48, 2)))))
    yield broken("g-idx-range", ("g-idx-range",), put("weight_g_idx", lambda index: changed(index, 5, 2)), ordered())
    yield broken("g-idx-negative", ("g-idx-range",), put("weight_g_idx", lambda index: changed(index, 5, -1)), ordered())
    yield broken("g-idx-shape", UNREADABLE, put("weight_g_idx", lambda index: index[:-1]), ordered())
    yield broken("g-idx-longer", UNREADABLE, put("weight_g_idx", lambda index: np.append(index, index[:1])), ordered())
    yield broken("g-idx-twice-as-long", UNREADABLE, put("weight_g_idx", lambda index: np.tile(index, 2)), ordered())
    yield broken("shape-stale", ("weight-shape-differs",), put("weight_shape", lambda _: np.array([96, 64], np.int64)))
    yield broken("shape-missing", UNREADABLE, drop_all("weight_shape"), integers("ct-channel", config(args(strategy="channel", group_size=None)), group=0))
    yield broken("symmetric", ("zeros-not-symmetric",), say(symmetric=True), asymmetric())
    yield broken(
        "symmetric-packed", ("zeros-not-symmetric",), say(symmetric=True), integers("ct-asym-packed", config(args(symmetric=False)), zeros="packed")
    )
    stored = integers("ct-symmetric-zeros-stored", config(args()))
    stored.tensors |= {
        name.replace("_scale", "_zero_point"): np.zeros(array.shape, np.int8)
        for name, array in stored.tensors.items()
        if name.endswith("weight_scale")
    }
    yield stored
    yield broken("words", UNREADABLE, put("weight_packed", lambda packed: packed[:, :-1]))
    yield broken("unknown-part", UNREADABLE, put("weight_amax", lambda _: np.float32(1)))


def of_the_config():
    yield broken("bits", ("config-bits",), say(num_bits=8))
    yield broken("group-size", ("config-group-size",), say(group_size=16))


def of_the_strategy():
    strategy = ("config-strategy",)
    one = put("weight_scale", lambda scale: scale[:1].reshape(-1)[:1])
    yield broken("one-scale-of-rows", strategy, one, int8("ct-b"))
    yield broken("one-scale-of-fp8-rows", strategy, one, fp8_case("channel"))
    yield broken("one-scale-of-blocks", strategy, one, fp8_case("block"))
    yield broken("rows-of-one-scale", strategy, put("weight_scale", lambda _: bf16(np.ones((144, 1)))), fp8_case("tensor"))
    yield broken("one-scale-of-groups", strategy, one, integers("ct-b", config(args(strategy="group", group_size=None))))


def of_other_keys():
    yield broken("unknown-strategy", ("config-value",), say(strategy="rows"))
    case = broken("none-is-mx", (), say(is_mx=False))
    yield case
    yield broken("unknown-key", ("config-value",), say(colour="red"))
    yield broken("actorder", ("config-actorder",), say(actorder=None), ordered())
    yield broken("format", ("config-format",), lambda _, block: block.update(format="nvfp4-pack-quantized"))
    yield broken("ignored", ("config-excludes-quantized",), lambda _, block: block["ignore"].append("re:.*up_proj"))

    def plain_layer(tensors, _):
        tensors["model.layers.0.self_attn.q_proj.weight"] = bf16(np.ones((64, 64)))

    def nowhere(_, block):
        block["config_groups"]["group_1"] = {"targets": ["re:.*mlp.exprets.*"], "weights": args()}

    def fixed(_, block):
        block["config_groups"]["group_0"]["input_activations"] = args(8, strategy="tensor", group_size=None, dynamic=False)

    yield broken("static-activations", ("input-scale-missing",), fixed)

    def dynamic(_, block):
        block["config_groups"]["group_0"]["input_activations"] = args(8, strategy="token", group_size=None, dynamic=True)

    case = broken("none-dynamic-activations", (), dynamic)
    yield case
    yield broken("target-nowhere", ("pattern-unmatched",), nowhere)

    def of_vision(_, block):
        block["config_groups"]["group_1"] = {"targets": ["re:.*vision.*"], "weights": args()}

    case = broken("target-absent", (), of_vision)
    case.notes = ("pattern-unmatched",)
    yield case
    yield broken("plain", ("config-expects-quantized",), plain_layer)


def of_other_methods():
    yield broken("rotated", UNREADABLE, lambda _, block: block.update(transform_config={"config_groups": {"R1": {"type": "hadamard"}}}))
    yield broken("sparse", UNREADABLE, lambda _, block: block.update(sparsity_config={"format": "sparse-24-bitmask"}))

    def bitmask(tensors, _):
        for suffix, array in {
            "compressed": bf16(np.ones((48, 32))),
            "bitmask": np.ones((48, 8), np.uint8),
            "shape": np.array([48, 64], np.int64),
        }.items():
            tensors["model.layers.0.mlp.shared_expert.up_proj." + suffix] = array

    yield broken("bitmask", UNREADABLE, bitmask)
    yield broken("marlin-24", UNREADABLE, put("meta", lambda _: np.zeros((8, 8), np.int16)))


def of_values():
    yield broken("divisor-zero", ("global-scale-value",), put("weight_global_scale", lambda _: np.zeros(1, np.float32)), nvfp4())
    yield broken("divisor-nan", ("global-scale-value",), put("weight_global_scale", lambda _: np.full(1, np.nan, np.float32)), nvfp4())
    yield broken("divisor-is-factor", ("global-scale-direction",), put("weight_global_scale", lambda value: 1 / value), nvfp4())
    yield broken("divisor-shape", ("global-scale-shape",), put("weight_global_scale", lambda value: np.repeat(value, 2)), nvfp4())
    yield broken("divisor-missing", UNREADABLE, drop("weight_global_scale"), nvfp4())
    yield broken("fp4-columns", UNREADABLE, put("weight_scale", lambda scale: scale[:, :3]), nvfp4())
    yield broken("mx-nan", ("scale-nan",), put("weight_scale", lambda scale: changed(scale, (2, 1), 255)), mxfp4())
    yield broken("nv-nan", ("scale-nan",), put("weight_scale", lambda scale: changed(scale, (2, 1), np.nan)), nvfp4())
    yield broken("nv-negative", ("scale-negative",), put("weight_scale", lambda scale: changed(scale, (2, 1), -1)), nvfp4())
    yield broken("int-nan", ("scale-nan",), put("weight_scale", lambda scale: changed(scale, (2, 1), np.nan)))
    case = broken("by-auto-round", (), put("weight_scale", lambda scale: changed(scale, (2, 1), -1)))
    case.config["quantization_config"]["provider"] = "auto-round"
    case.values, case.notes = {}, ("scale-negative",)
    yield case
    yield broken("int-negative", ("scale-negative",), put("weight_scale", lambda scale: changed(scale, (2, 1), -1)))


def cases():
    yield from of_words()
    yield from of_the_config()
    yield from of_the_strategy()
    yield from of_other_keys()
    yield from of_other_methods()
    yield from of_values()
