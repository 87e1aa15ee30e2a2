# SPDX-License-Identifier: Apache-2.0
"""AMD Quark: MXFP4, NVFP4 with a bf16 factor, FP8, INT8; MXFP6 is named and refused."""

import numpy as np
from case import E2M1, Case, bf16, e4m3, pack_nibbles, random, spread
from mxfp4 import mxfp4

UP = "model.layers.0.mlp.experts.0.up_proj"


def config(weight, inputs=None):
    return {
        "quantization_config": {
            "quant_method": "quark",
            "global_quant_config": {"weight": weight, "input_tensors": inputs, "output_tensors": None, "bias": None},
            "layer_quant_config": {},
            "layer_type_quant_config": {},
            "exclude": ["lm_head"],
            "export": {"kv_cache_group": [], "pack_method": "reorder", "weight_format": "real_quantized"},
        }
    }


def spec(dtype, scheme, **more):
    return {"dtype": dtype, "qscheme": scheme, "symmetric": True, "is_dynamic": False} | more


MX = spec("fp4", "per_group", group_size=32, ch_axis=-1, scale_format="e8m0")
NV = [spec("fp4", "per_group", group_size=16, ch_axis=-1), spec("fp8_e4m3", "per_tensor")]


def one(name, parts, values, settings, scheme, **more):
    tensors = {f"{UP}.{suffix}": part for suffix, part in parts.items()}
    return Case(name, tensors, settings, {}, {UP: scheme}, {f"{UP}.weight": values}, **more)


def microscaling(name, inputs=None, extra=None):
    codes, scales, values = mxfp4(random(name), (48, 64))
    parts = {"weight": pack_nibbles(codes), "weight_scale": scales} | (extra or {})
    return one(name, parts, values, config(MX, inputs), "Quark MXFP4")


def nvfp4(name, kind):
    rng = random(name)
    codes = rng.integers(0, 16, (48, 64))
    scales = e4m3(np.exp2(rng.uniform(-5, 5, (48, 4))))
    factor = np.asarray(rng.uniform(0.001, 0.1)).astype(kind(0).dtype)
    scale = (scales.astype(np.float32) * factor.astype(np.float32)).astype(np.float64)
    parts = {
        "weight": pack_nibbles(codes),
        "weight_scale": scales,
        "weight_scale_2": factor,
        "input_scale_2": np.float32(0.01),
    }
    return one(name, parts, E2M1[codes] * spread(scale, 1, 16, (48, 64)), config(NV, NV), "Quark NVFP4")


def fp8(name, shape, cols):
    rng = random(name)
    codes = e4m3(rng.uniform(-400, 400, (48, 64)))
    scale = np.exp2(rng.uniform(-8, 0, shape)).astype(np.float32)
    wide = np.broadcast_to(scale.reshape(-1, 1) if shape else scale, (48, 64)).astype(np.float64)
    weight = spec("fp8_e4m3", cols)
    parts = {"weight": codes, "weight_scale": scale, "input_scale": np.float32(0.1)}
    return one(name, parts, codes.astype(np.float64) * wide, config(weight, weight), "Quark FP8")


def int8(name, shape):
    rng = random(name)
    codes = rng.integers(-128, 128, (48, 64)).astype(np.int8)
    scale = np.exp2(rng.uniform(-8, 0, shape)).astype(np.float32)
    wide = np.broadcast_to(scale.reshape(-1, 1) if shape else scale, (48, 64)).astype(np.float64)
    weight = spec("int8", "per_channel" if shape else "per_tensor")
    return one(name, {"weight": codes, "weight_scale": scale}, codes * wide, config(weight), "Quark INT8")


def mxfp6(name, kind="e3m2"):
    rng = random(name)
    parts = {
        "weight": rng.integers(0, 256, (48, 48)).astype(np.uint8),
        "weight_scale": rng.integers(110, 140, (48, 2)).astype(np.uint8),
    }
    settings = config(spec(f"fp6_{kind}", "per_group", group_size=32, scale_format="e8m0"))
    case = one(name, parts, np.zeros((48, 64)), settings, f"Quark MXFP6 ({kind}", absent=("config-algorithm",), faults=("module-unreadable",))
    return case


def broken(name, rules, change, case=None):
    case = case or microscaling(f"quark-fault-{name}")
    case.name = f"quark-fault-{name}"
    case.faults, case.schemes = rules, {}
    change(case.tensors)
    return case


def under(name, case, rules=None, classes=None, weight=MX, faults=(), said=()):
    """A case under rules of single modules or of classes, and `weight` for all others."""
    block = case.config["quantization_config"]
    block["global_quant_config"] = {"weight": weight, "input_tensors": None}
    one = lambda found: {key: {"weight": value} for key, value in (found or {}).items()}  # noqa: E731
    block["layer_quant_config"], block["layer_type_quant_config"] = one(rules), one(classes)
    case.name, case.faults, case.said = f"quark-rule-{name}", faults, said
    case.absent = () if faults else ("pattern-unmatched",)
    return case


def rules():
    """Every module is compared with the first rule that names it, else with its class, else with all."""
    eight = spec("fp8_e4m3", "per_channel", ch_axis=0)
    wrong = ("config-algorithm",)
    codes = lambda: fp8("quark-rule", (48,), "per_channel")  # noqa: E731
    yield under("right", codes(), {"*up_proj": eight})
    yield under("of-others", codes(), {"*nothing*": eight}, faults=wrong, said=("global_quant_config",))
    yield under("wrong", codes(), {"*up_proj": MX}, weight=eight, faults=wrong, said=('layer_quant_config "*up_proj"',))
    yield under("first", codes(), {"*up_proj": eight, UP: MX})
    yield under("second", codes(), {"*experts*": MX, UP: eight}, faults=wrong, said=('layer_quant_config "*experts*"',))
    yield under("reversed", codes(), {UP + ".something": eight})
    yield under("reversed-inside", codes(), {"text." + UP + "_0": eight})
    yield under("reversed-prefix", codes(), {UP.replace("model.", "language_model.model.") + ".linear": eight})
    other = UP.replace("layers.0", "layers.1")
    case = under("reversed-other", codes(), {other: MX}, weight=eight)
    case.absent, case.notes = (), ("pattern-unmatched",)
    yield case
    yield under("class", codes(), None, {"Linear": eight})
    yield under("class-wrong", codes(), None, {"nn.Linear": MX}, eight, wrong, ('layer_type_quant_config "nn.Linear"',))
    yield under("class-other", codes(), None, {"Embedding": MX, "Conv2d": MX}, eight)
    yield under("plain", codes(), {"*up_proj": None}, weight=eight, faults=("config-excludes-quantized",))
    case = under("plain-gate", codes(), {"*gate_proj": None}, weight=eight)
    case.tensors[UP.replace("up", "gate") + ".weight"] = bf16(np.ones((48, 64)))
    case.absent, case.warnings = ("config-expects-quantized",), ("fused-schemes-differ",)
    yield case
    sixteen = spec("fp4", "per_group", group_size=16)
    yield under("group-size", microscaling("quark-rule"), {"*up_proj": sixteen}, faults=("config-group-size",))


def heads():
    """An output head is quantized unless it is excluded."""
    for name, exclude in [("excluded", ["lm_head"]), ("not-excluded", [])]:
        rng = random(f"quark-head-{name}")
        codes, exponents, values = mxfp4(rng, (48, 64))
        case = one(f"quark-head-{name}", {"weight": pack_nibbles(codes), "weight_scale": exponents}, values, config(MX), "Quark")
        case.config["quantization_config"]["exclude"] = exclude
        case.tensors["lm_head.weight"] = bf16(rng.normal(0, 0.05, (96, 64)))
        if not exclude:
            case.faults, case.said = ("config-expects-quantized",), ("lm_head",)
        yield case


def cases():
    yield from heads()
    yield microscaling("quark-mxfp4")
    yield microscaling("quark-mxfp4-fp8-inputs", spec("fp8_e4m3", "per_tensor"), {"input_scale": np.float32(0.1)})
    yield nvfp4("quark-nvfp4-f32", np.float32)
    yield nvfp4("quark-nvfp4-bf16", bf16)
    yield fp8("quark-fp8-tensor", (), "per_tensor")
    yield fp8("quark-fp8-channel", (48,), "per_channel")
    yield int8("quark-int8-tensor", ())
    yield int8("quark-int8-channel", (48,))
    yield mxfp6("quark-mxfp6")
    yield mxfp6("quark-mxfp6-e2m3", "e2m3")
    yield from rules()
    unreadable = ("module-unreadable",)
    yield broken("scale-missing", unreadable, lambda t: t.pop(UP + ".weight_scale"))
    yield broken("scale-shape", unreadable, lambda t: t.update({UP + ".weight_scale": t[UP + ".weight_scale"][:-1]}))
    yield broken("factor-missing", unreadable, lambda t: t.pop(UP + ".weight_scale_2"), nvfp4("quark-nv", np.float32))
    yield broken("unknown-part", unreadable, lambda t: t.update({UP + ".qzeros": np.zeros(4, np.int32)}))
    yield broken("int8-scale-shape", unreadable, lambda t: t.update({UP + ".weight_scale": np.ones(5, np.float32)}), int8("quark-i8", ()))

    def contradict(name, rules, **changes):
        case = broken(name, rules, lambda t: None)
        case.config["quantization_config"] |= changes
        return case

    yield contradict("excluded", ("config-excludes-quantized",), exclude=["lm_head", "re:.*up_proj"])
    other = {"weight": spec("fp8_e4m3", "per_tensor"), "input_tensors": None}
    sixteen = {"weight": spec("fp4", "per_group", group_size=16, ch_axis=-1), "input_tensors": None}
    yield contradict("group-size", ("config-group-size",), global_quant_config=sixteen)
    for name, steps, rotated in [
        ("quarot", [{"name": "quarot"}], True),
        ("online", [{"name": "rotation", "r1": True, "r4": False, "online_r1_rotation": True}], True),
        ("folded", [{"name": "rotation", "r1": True, "r2": True, "r4": False}], False),
        ("smooth", [{"name": "smooth"}, {"name": "awq"}], False),
    ]:
        yield contradict(f"algo-{name}", ("config-rotation", "module-unreadable") if rotated else (), algo_config=steps)
    static = {"weight": MX, "input_tensors": spec("fp8_e4m3", "per_tensor")}
    yield contradict("static-activations", ("input-scale-missing",), global_quant_config=static)
    # Whatever the rules of single layers say of the others.
    rule = {"*gate_proj": {"weight": MX, "input_tensors": None}}
    yield contradict("static-activations-rules", ("input-scale-missing",), global_quant_config=static, layer_quant_config=rule)
    rule = {"*up_proj": static}
    yield contradict("static-activations-of-a-rule", ("input-scale-missing",), layer_quant_config=rule)
    yield contradict("dynamic-activations-rules", (), global_quant_config=static, layer_quant_config={"*_proj": {"weight": MX}})
    yield contradict("dtype", ("config-algorithm",), global_quant_config=other)
    for case in (fp8("quark-one", (48,), "per_channel"), int8("quark-one", (48,))):
        one = {UP + ".weight_scale": np.float32(0.1)}
        yield broken(f"one-scale-of-{case.tensors[UP + '.weight'].dtype}", ("config-algorithm",), lambda t, one=one: t.update(one), case)
    gate = bf16(np.ones((48, 64)))
    yield broken("plain", ("config-expects-quantized",), lambda t: t.update({UP.replace("up", "gate") + ".weight": gate}))
