# SPDX-License-Identifier: Apache-2.0
"""ModelOpt beside plain NVFP4: vectors on the activations, FP8, MXFP8, MXFP4, INT4 packed along the
rows, INT8, and several of them in one checkpoint."""

import ml_dtypes
import numpy as np
from case import E2M1, Case, bf16, e4m3, pack_nibbles, random, spread

MODULE = "model.layers.0.mlp.up_proj"


def block(algorithm, **extra):
    return {"quantization_config": {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head"], **extra}}


def hf_file(algorithm, **extra):
    return {
        "hf_quant_config.json": {
            "producer": {"name": "modelopt", "version": "0.33"},
            "quantization": {"quant_algo": algorithm, "exclude_modules": ["lm_head"], **extra},
        }
    }


# A matrix in each format: tensors by suffix, and values. All of them take (rng, n, k).


def nvfp4(rng, n=48, k=64, input_scale=False):
    codes = rng.integers(0, 16, (n, k))
    scales = e4m3(np.exp2(rng.uniform(-5, 5, (n, k // 16))))
    factor = np.float32(rng.uniform(0.001, 0.1))
    scale = (scales.astype(np.float32) * factor).astype(np.float64)
    parts = {"weight": pack_nibbles(codes), "weight_scale": scales, "weight_scale_2": factor}
    if input_scale:
        parts["input_scale"] = np.float32(0.02)
    return parts, E2M1[codes] * spread(scale, 1, 16, (n, k))


def f8_codes(rng, shape):
    return e4m3(rng.uniform(-400, 400, shape))


def fp8(rng, n=48, k=64, stored=(), rows=0, cols=0, input_scale=True):
    weight = f8_codes(rng, (n, k))
    grid = (-(-n // rows) if rows else 1, -(-k // cols) if cols else 1)
    scale = rng.uniform(0.001, 0.01, grid).astype(np.float32)
    parts = {"weight": weight, "weight_scale": scale.reshape(stored)}
    if input_scale:
        parts["input_scale"] = np.float32(0.02)
    return parts, weight.astype(np.float64) * spread(scale.astype(np.float64), rows, cols, (n, k))


def powers(rng, shape):
    byte = rng.integers(110, 124, shape).astype(np.uint8)
    return byte, np.exp2(byte.astype(np.float64) - 127)


def mxfp8(rng, n=48, k=64, dtype=np.uint8):
    weight = f8_codes(rng, (n, k))
    byte, scale = powers(rng, (n, k // 32))
    return {"weight": weight, "weight_scale": byte.view(dtype)}, weight.astype(np.float64) * spread(scale, 1, 32, (n, k))


def mxfp4(rng, n=48, k=64):
    codes = rng.integers(0, 16, (n, k))
    byte, scale = powers(rng, (n, k // 32))
    return {"weight": pack_nibbles(codes), "weight_scale": byte}, E2M1[codes] * spread(scale, 1, 32, (n, k))


def int4(rng, n=48, k=256, dtype=np.float32, experts=()):
    """Two rows a byte, the upper one in the low nibble."""
    codes = rng.integers(-8, 8, (*experts, n, k))
    scale = rng.uniform(0.001, 0.1, (*experts, n, k // 128)).astype(dtype)
    nibbles = (codes & 15).astype(np.uint8)
    packed = nibbles[..., 0::2, :] | (nibbles[..., 1::2, :] << 4)
    return {"weight": packed, "weight_scale": scale}, codes * spread(scale.astype(np.float64), 1, 128, codes.shape)


def int8(rng, n=48, k=64):
    codes = rng.integers(-128, 128, (n, k)).astype(np.int8)
    scale = rng.uniform(0.001, 0.1, n).astype(np.float32)
    return {"weight": codes, "weight_scale": scale}, codes * scale.astype(np.float64)[:, None]


def with_vector(parts, values, rng, dtype=None):
    """Activations are multiplied by the vector, so plain weights have it in their columns."""
    vector = rng.uniform(0.5, 2, values.shape[-1]).astype(np.float32)
    vector = vector.astype(bf16(0).dtype if dtype is None else dtype)
    return parts | {"pre_quant_scale": vector}, values * vector.astype(np.float64)


def one(name, made, text, config, module=MODULE, **rest):
    parts, values = made
    tensors = {f"{module}.{suffix}": part for suffix, part in parts.items()}
    tensors["model.norm.weight"] = bf16(np.ones(8))
    values = {f"{module}.weight": values, "model.norm.weight": np.ones(8)}
    return Case("modelopt-" + name, tensors, config, schemes={module: text, "model.norm": "bf16"}, values=values, **rest)


def fp4_cases():
    rng = random("modelopt fp4")
    yield one("w4a16-nvfp4", nvfp4(rng), "NVFP4 (e2m1, e4m3 scale a group of 16, f32 global)", block("W4A16_NVFP4"))
    yield one("lower-case", nvfp4(rng, input_scale=True), "e2m1 activations", block("nvfp4"))
    yield one("w4a8-nvfp4-fp8", nvfp4(rng), "ModelOpt NVFP4", block("W4A8_NVFP4_FP8"))
    for dtype in [None, np.float32, np.float16]:
        made = with_vector(*nvfp4(rng), rng, dtype)
        yield one(f"nvfp4-awq-{np.dtype(dtype or 'V2').name}", made, "activations scaled a column", block("NVFP4_AWQ"))
    yield one("mxfp4", mxfp4(rng), "ModelOpt MXFP4 (e2m1, e8m0 scale a group of 32)", block("mxfp4", group_size=32))
    yield one("w4a8-mxfp4-fp8", mxfp4(rng), "ModelOpt MXFP4", {}, files=hf_file("W4A8_MXFP4_FP8"))


def fp8_cases():
    rng = random("modelopt fp8")
    yield one("fp8", fp8(rng), "ModelOpt FP8 (e4m3, f32 scale a tensor, e4m3 activations)", block("FP8"))
    yield one("fp8-hf-file", fp8(rng), "ModelOpt FP8", {}, files=hf_file("FP8", kv_cache_quant_algo="FP8"))
    yield one("fp8-row", fp8(rng, stored=(48,), rows=1, input_scale=False), "scale a row", block("FP8_PER_CHANNEL_PER_TOKEN"))
    pb_wo = {"n": 256, "k": 384, "rows": 128, "cols": 128, "input_scale": False}
    yield one("fp8-block", fp8(rng, stored=(2, 3), **pb_wo), "block of 128x128", block("FP8_PB_WO"))
    yield one("fp8-block-4d", fp8(rng, stored=(2, 1, 3, 1), **pb_wo), "block of 128x128", block("fp8_pb_wo"))
    yield one("mxfp8", mxfp8(rng), "ModelOpt MXFP8 (e4m3, e8m0 scale a group of 32)", block("MXFP8", group_size=32))
    yield one("mxfp8-e8m0", mxfp8(rng, dtype=ml_dtypes.float8_e8m0fnu), "ModelOpt MXFP8", block("MXFP8"))


def cache_scales():
    """Scales of a key/value cache are told, and change nothing."""
    module = "model.layers.0.self_attn.k_proj"
    case = one("cache-scales", fp8(random("cache")), "ModelOpt FP8", block("FP8", kv_cache_scheme={"num_bits": 8}), module)
    case.tensors[f"{module}.k_scale"] = np.float32(1)
    return case


def integer_cases():
    rng = random("modelopt integers")
    awq = "ModelOpt INT4 (i4, {} scale a group of 128, activations scaled a column"
    for dtype in [np.float32, np.float16, bf16(0).dtype]:
        name = {"float32": "f32", "float16": "f16"}.get(np.dtype(dtype).name, "bf16")
        made = with_vector(*int4(rng, dtype=dtype), rng)
        yield one(f"int4-awq-{name}", made, awq.format(name), block("W4A16_AWQ", group_size=128))
    yield one("int4-awq-one-group", int4(rng, k=128), "ModelOpt INT4", block("W4A16_AWQ", group_size=128))
    made = int4(rng)
    made[0]["weight_scale_2"] = np.float32(0.5)  # of the products, not of the weights
    yield one("w4a8-awq", made, "e4m3 activations", block("W4A8_AWQ", awq_block_size=128))
    yield one("int8-sq", with_vector(*int8(rng), rng), "ModelOpt INT8 (i8, f32 scale a row", block("W8A8_SQ_PER_CHANNEL"))
    yield one("int8-wo", int8(rng), "ModelOpt INT8 (i8, f32 scale a row)", block("W8A16"))


def fused_int4():
    rng = random("fused int4")
    module = "model.layers.0.mlp.experts.gate_up_proj"
    parts, values = int4(rng, n=48, k=256, experts=(3,))
    tensors = {module: parts["weight"], f"{module}_weight_scale": parts["weight_scale"]}
    config = block("W4A16_AWQ", group_size=128) | {"hidden_size": 256}
    return Case("modelopt-int4-fused", tensors, config, schemes={module: "ModelOpt INT4"}, values={module: values})


O, Q = "model.layers.0.self_attn.o_proj", "model.layers.0.self_attn.q_proj"


def mixed(name="mixed", exclude=(), **changes):
    """A layer that the table does not name is not quantized, whatever its neighbour is."""
    rng = random(name)
    made = {
        "model.layers.0.self_attn.o_proj": (fp8(rng), "FP8", "ModelOpt FP8"),
        "model.layers.0.mlp.experts.0.gate_proj": (nvfp4(rng), "NVFP4", "ModelOpt NVFP4"),
        "model.layers.0.mlp.experts.1.gate_proj": (mxfp8(rng), "MXFP8", "ModelOpt MXFP8"),
        "model.layers.0.mlp.gate_proj": (int4(rng), "W4A16_AWQ", "ModelOpt INT4"),
        "model.layers.0.self_attn.q_proj": (({"weight": bf16(np.ones((8, 8)))}, np.ones((8, 8))), None, "bf16"),
        "model.layers.1.self_attn.q_proj": (({"weight": bf16(np.ones((8, 8)))}, np.ones((8, 8))), None, "bf16"),
    }
    tensors = {f"{m}.{s}": part for m, (one, _, _) in made.items() for s, part in one[0].items()}
    table = {m: {"quant_algo": algorithm} for m, (_, algorithm, _) in made.items() if algorithm} | changes
    files = hf_file("MIXED_PRECISION", quantized_layers=table)
    files["hf_quant_config.json"]["quantization"]["exclude_modules"] = ["lm_head", "model.layers.1*", *exclude]
    schemes = {m: text for m, (_, _, text) in made.items()}
    values = {f"{m}.weight": one[1] for m, (one, _, _) in made.items()}
    return Case("modelopt-" + name, tensors, {}, files, schemes, values)


def fault(name, rule, made, config, change=lambda tensors: None, text="", **rest):
    case = one("fault-" + name, made, text, config, **rest)
    change(case.tensors)
    case.faults = (rule,)
    return case


def put(suffix, array):
    return lambda tensors: tensors.update({f"{MODULE}.{suffix}": array})


def drop(suffix):
    return lambda tensors: tensors.pop(f"{MODULE}.{suffix}")


def faults():
    rng = random("modelopt faults")
    awq = with_vector(*int4(rng), rng)
    int4_config = block("W4A16_AWQ", group_size=128)
    yield fault("svd", "module-unreadable", nvfp4(rng), block("NVFP4_SVD"), put("svdquant_lora_a", bf16(np.ones((4, 64)))), "NVFP4_SVD")
    six = {"weight": np.zeros((16, 48), np.uint8), "weight_scale": np.zeros((16, 2), np.uint8)}, np.zeros((16, 64))
    yield fault("w6a6", "module-unreadable", six, block("W6A6"), text="W6A6")
    yield fault("vector-length", "pre-quant-scale-shape", awq, int4_config, put("pre_quant_scale", bf16(np.ones(255))))
    yield fault("vector-zero", "pre-quant-scale-value", awq, int4_config, put("pre_quant_scale", bf16(np.zeros(256))))
    yield fault("vector-type", "pre-quant-scale-dtype", awq, int4_config, put("pre_quant_scale", np.ones(256, np.int32)))
    double = put("pre_quant_scale", np.ones(256))
    yield fault("vector-f64", "pre-quant-scale-dtype", awq, int4_config, double)
    wrong = put("weight_scale", np.ones((48, 3), np.float32))
    yield fault("scale-shape", "module-unreadable", int4(rng), int4_config, wrong, "weight_scale of shape [48, 3]")
    yield fault("scale-gone", "module-unreadable", int8(rng), block("W8A16"), drop("weight_scale"))
    yield fault("fp8-scale-gone", "module-unreadable", fp8(rng), block("FP8"), drop("weight_scale"), "without a scale")


def contradictions():
    rng = random("modelopt contradictions")
    yield fault("algorithm", "config-algorithm", int8(rng), block("FP8"))
    one = put("weight_scale", np.full(1, 0.01, np.float32))
    for name, made in [
        ("FP8_PB_WO", fp8(rng, n=256, k=384, stored=(2, 3), rows=128, cols=128)),
        ("FP8_PER_CHANNEL_PER_TOKEN", fp8(rng, stored=(48,), rows=1)),
        ("W8A16", int8(rng)),
    ]:
        yield fault(f"one-scale-of-{name.lower()}", "config-algorithm", made, block(name), one)
    cut = put("weight_scale", np.full((48, 1), 120, np.uint8).view(ml_dtypes.float8_e8m0fnu))
    yield fault("mxfp8-row", "config-algorithm", mxfp8(rng, k=128), block("MXFP8"), cut)
    many = [f"model.layers.{i}.x" for i in range(200_000)]  # in time in proportion
    case = fault("many-excluded", "pattern-limit", fp8(rng), block("FP8", exclude_modules=many, ignore=many))
    case.notes = ("pattern-unmatched",)
    yield case
    yield fault("svd-without-parts", "config-algorithm", nvfp4(rng), block("NVFP4_SVD"))
    yield fault("mixed-without-table", "config-algorithm", fp8(rng), block("MIXED_PRECISION"))
    groups = {"group_0": {"weights": {"num_bits": 8, "type": "float"}, "targets": ["model.layers.0.mlp.gate_proj"]}}
    case = fault("mixed-by-groups", "", fp8(rng), block("MIXED_PRECISION", config_groups=groups))
    case.name, case.faults = "modelopt-mixed-by-groups", ()
    yield case
    fixed = {"num_bits": 8, "type": "float", "dynamic": False}
    groups = {"group_0": {"weights": fixed, "input_activations": fixed, "targets": ["Linear"]}}
    yield fault("static-activations", "input-scale-missing", fp8(rng), block("FP8", config_groups=groups), drop("input_scale"))
    yield fault("algorithm-unknown", "config-algorithm-unknown", fp8(rng), block("W2A2_DREAM"))
    yield fault("group-size", "config-group-size", int4(rng), block("W4A16_AWQ", group_size=64))
    table = {"model.layers.0.self_attn.o_proj": {"quant_algo": "NVFP4"}}
    for name, rule, changes in [
        ("fault-mixed-algorithm", "config-algorithm", table),
        ("fault-mixed-name", "config-layer-unknown", {"model.layers.7.mlp": {"quant_algo": "FP8"}}),
        ("fault-mixed-plain", "config-expects-quantized", {"model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"}}),
    ]:
        case = mixed(name, **changes)
        case.faults = (rule,)
        yield case
    expert = {"model.layers.0.mlp.experts.0.gate_proj": {"quant_algo": "NVFP4", "group_size": 32}}
    same = {"model.layers.0.mlp.experts.0.gate_proj": {"quant_algo": "NVFP4", "group_size": 16}}
    for name, rule, exclude, changes, said in [
        ("fault-mixed-group-size", "config-group-size", (), expert, "group_size 32"),
        ("mixed-group-size", "", (), same, ""),
        ("fault-mixed-excluded", "config-excludes-quantized", ("*o_proj",), {}, 'its list excludes "*o_proj"'),
        ("fault-mixed-both", "config-expects-quantized", ("*q_proj",), {Q: {"quant_algo": "FP8"}}, 'although its list excludes "*q_proj"'),
        ("mixed-excluded-child", "", ("*q_proj",), {"model.layers.1": {"quant_algo": "FP8"}}, ""),
    ]:
        case = mixed(name, exclude, **changes)
        case.faults, case.said = (rule,) if rule else (), (said,) if said else ()
        yield case
    blocks = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    for name, algorithm, ignored, faults in [
        ("fault-moe-algorithm", "NVFP4", [], ("config-algorithm",)),
        ("moe-algorithm", "FP8_PB_WO", [], ()),
        ("moe-algorithm-ignored", "NVFP4", ["model.layers.0.mlp.experts"], ()),
    ]:
        weight = f8_codes(rng, (256, 384))
        scale = rng.uniform(0.001, 0.01, (2, 3)).astype(np.float32)
        module = "model.layers.0.mlp.experts.0.up_proj"
        tensors = {f"{module}.weight": weight, f"{module}.weight_scale_inv": scale}
        config = {"quantization_config": blocks | {"moe_quant_algo": algorithm, "ignore": ignored}}
        absent = () if faults else ("config-algorithm",)
        warnings = ("config-excludes-quantized",) if ignored else ()
        yield Case(f"modelopt-{name}", tensors, config, schemes={module: "FP8"}, faults=faults, absent=absent, warnings=warnings)
    case = mixed("mixed-behind", **{"model.layers.2.mlp": {"quant_algo": "FP8"}})
    case.config = {"num_hidden_layers": 2}
    case.notes = ("config-layer-unknown",)
    case.warnings = ("tensor-missing",)  # no whole model
    yield case


def cases():
    yield from fp4_cases()
    yield from fp8_cases()
    yield cache_scales()
    yield from integer_cases()
    yield fused_int4()
    yield mixed()
    yield from faults()
    yield from contradictions()
