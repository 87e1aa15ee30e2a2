# SPDX-License-Identifier: Apache-2.0
"""bitsandbytes, of which NF4 and 8 bits are decoded, and producers that are only named."""

import json
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from case import Case, bf16, random

DTYPE_F8 = ml_dtypes.float8_e4m3fn
MODULE = "model.layers.0.mlp.up_proj"
NF4 = np.array(
    [
        -1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
        -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
    ],
    np.float32,
)  # fmt: skip


def config(method, **extra):
    return {"quantization_config": {"quant_method": method, **extra}}


def nf4(name, n=24, k=128, blocksize=64, nested=False, quant_type="nf4", flat=True, **rest):
    """High nibble first; blocks are counted row after row."""
    rng = random(name)
    codes = rng.integers(0, 16, n * k)
    even = np.pad(codes, (0, codes.size % 2))
    packed = ((even[0::2] << 4) | even[1::2]).astype(np.uint8).reshape((-1, 1) if flat else (n, -1))
    state = {"blocksize": blocksize, "dtype": "bfloat16", "shape": [n, k], "quant_type": quant_type}
    count = -(-n * k // blocksize)
    group = np.gcd(k, blocksize)  # columns of a row that share a scale
    more = {}
    if nested:
        map256 = np.sort(rng.uniform(-1, 1, 256)).astype(np.float32)
        bytes_, outer = rng.integers(0, 256, count).astype(np.uint8), rng.uniform(0.01, 0.02, -(-count // 16)).astype(np.float32)
        offset = 0.03
        state |= {"nested_blocksize": 16, "nested_offset": offset, "nested_dtype": "float32"}
        product = (map256[bytes_] * np.repeat(outer, 16)[:count]).astype(np.float32)
        absmax = (product + np.float32(offset)).astype(np.float64)
        more = {"weight.nested_absmax": outer, "weight.nested_quant_map": map256}
    else:
        absmax = rng.uniform(0.01, 0.1, count).astype(np.float32)
        bytes_ = absmax
    parts = {
        "weight": packed,
        "weight.absmax": bytes_,
        "weight.quant_map": NF4,
        f"weight.quant_state.bitsandbytes__{quant_type}": np.frombuffer(json.dumps(state).encode(), np.uint8),
        **more,
    }
    tensors = {f"{MODULE}.{suffix}": part for suffix, part in parts.items()}
    tensors["model.norm.weight"] = bf16(np.ones(8))
    values = NF4[codes].astype(np.float64) * np.repeat(absmax.astype(np.float64), blocksize)[: n * k]
    return Case(
        "bitsandbytes-" + name,
        tensors,
        config("bitsandbytes", load_in_4bit=True),
        values={f"{MODULE}.weight": values.reshape(n, k)},
        **{"schemes": {MODULE: f"bitsandbytes nf4 (nf4, f32 scale a group of {group})"}, **rest},
    )


def int8(name="int8", **rest):
    rng = random(name)
    weight = rng.integers(-128, 128, (24, 40)).astype(np.int8)
    scale = rng.uniform(0.1, 1, 24).astype(np.float32)
    tensors = {f"{MODULE}.weight": weight, f"{MODULE}.SCB": scale, f"{MODULE}.weight_format": np.uint8(0)}
    values = {f"{MODULE}.weight": weight * (scale.astype(np.float64) / 127)[:, None]}
    schemes = {MODULE: "bitsandbytes INT8 (i8, f32 scale a row"}
    return Case("bitsandbytes-" + name, tensors, config("bitsandbytes", load_in_8bit=True), values=values, **{"schemes": schemes, **rest})


def bitsandbytes_contradictions():
    four = {"load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": "nf4"}
    for name, changes, rules in [
        ("none", {}, ()),
        ("fp4", {"bnb_4bit_quant_type": "fp4"}, ("config-format",)),
        ("8bit", {"load_in_4bit": False, "load_in_8bit": True}, ("config-bits",)),
    ]:
        case = nf4(f"says-{name}", faults=rules)
        case.config = config("bitsandbytes", **four | changes)
        yield case
    case = int8("8bit-says-4bit", faults=("config-bits",))
    case.config = config("bitsandbytes", **four)
    yield case


def bitsandbytes_faults():
    def fault(name, text, change=lambda tensors: None, **rest):
        case = nf4("fault-" + name, faults=("module-unreadable",), schemes={MODULE: text}, **rest)
        change(case.tensors)
        return case

    def drop(suffix):
        return lambda tensors: tensors.pop(f"{MODULE}.{suffix}")

    yield fault("fp4", "quant_type fp4", quant_type="fp4")
    yield fault("no-state", "weight.quant_state is missing", drop("weight.quant_state.bitsandbytes__nf4"))
    yield fault("no-map", "weight.quant_map is not the codebook", drop("weight.quant_map"))
    other = NF4 * np.float32(0.5)
    yield fault("other-map", "is not the codebook", lambda tensors: tensors.update({f"{MODULE}.weight.quant_map": other}))
    short = np.ones(47, np.float32)
    yield fault("absmax", "expected 48 f32", lambda tensors: tensors.update({f"{MODULE}.weight.absmax": short}))
    many = np.ones(37, np.float32)  # 36 blocks in 24 rows of 96
    yield fault("absmax-over-rows", "expected 36 f32", lambda tensors: tensors.update({f"{MODULE}.weight.absmax": many}), k=96)
    yield fault("nested", "weight.nested_absmax is missing", drop("weight.nested_absmax"), nested=True)
    tiled = int8("fault-format", faults=("module-unreadable",), schemes={MODULE: "weight_format is 2"})
    tiled.tensors[f"{MODULE}.weight_format"] = np.uint8(2)
    yield tiled


def named(name, config, parts, text):
    tensors = {f"{MODULE}.{suffix}": part for suffix, part in parts.items()} | {"model.norm.weight": bf16(np.ones(8))}
    return Case("named-" + name, tensors, config, schemes={MODULE: text}, faults=("module-unreadable",))


def by_tensors():
    i32, f16 = np.zeros((4, 16), np.int32), np.ones(16, np.float16)
    exl2 = {"q_weight": i32, "q_invperm": np.arange(32, dtype=np.int32), "q_scale": i32, "q_scale_max": f16}
    exl2["q_groups"] = np.zeros(2, np.int16)
    trellis = {"trellis": np.zeros((2, 1, 64), np.int16), "suh": np.ones(32, np.float16), "svh": f16}
    yield named("hqq", config("hqq"), {"W_q": np.zeros((8, 32), np.uint8), "scale": f16, "zero": f16}, "HQQ: codes, scales and zeros")
    yield named("exl2", {}, exl2, "EXL2: groups of different widths")
    yield named("exl3", config("exl3"), trellis, "EXL3: trellis codes")
    f8 = {"weight": np.zeros((16, 32), np.uint8).view(DTYPE_F8), "weight_scale": np.ones((16, 1), np.float32)}
    yield named("torchao-f8", config("torchao"), f8, "torchao: tensors of its own")
    mlx = {"weight": np.zeros((16, 4), np.uint32), "scales": f16.reshape(16, 1), "biases": f16.reshape(16, 1)}
    yield named("mlx", {}, mlx, "MLX: words along the rows")
    yield named("mlx-floats", {}, {"weight": mlx["weight"], "scales": np.full((16, 1), 127, np.uint8)}, "MLX: words along the rows")
    # Their codes are not known here, so no weight of theirs is too large.
    large = mlx | {"weight": np.zeros((16, 8), np.uint32), "scales": bf16(np.full((16, 1), 0.9))}
    several = named("mlx-several", {}, large, "MLX: words along the rows")
    for layer in range(1, 5):
        several.tensors |= {f"{MODULE.replace('.0.', f'.{layer}.')}.{suffix}": part for suffix, part in large.items()}
    several.absent = ("scale-direction",)
    yield several


LAYER = "model.layers.0.self_attn.q_proj"


def own_parts():
    i32, f16 = (lambda *shape: np.zeros(shape, np.int32)), (lambda *shape: np.ones(shape, np.float16))
    grid = {"scales": f16(1, 32), "tables": f16(256, 2), "tables2": np.ones(256, np.float32)}
    yield "aqlm", "AQLM", {"codes": np.zeros((32, 4, 1), np.int8), "codebooks": f16(1, 256, 1, 8), "scales": f16(32, 1, 1, 1)}
    yield "quip", "QuIP#", {"Qidxs": np.zeros((32, 4), np.int64), "SU": f16(32), "SV": f16(32), "Wscale": np.float32(1)}
    yield "spqr", "SpQR", {"dense_weights": np.zeros(128, np.int64), "row_offsets": i32(33), "col_vals": i32(7)}
    yield "vptq", "VPTQ", {"indices": i32(1, 32, 4), "centroids": f16(1, 256, 8)}
    yield "higgs", "HIGGS", {"weight": np.zeros((32, 8), np.int16), **grid}
    yield "eetq", "EETQ", {"weight": np.zeros((32, 32), np.int8), "weight_scales": f16(32)}
    yield "marlin", "Marlin", {"B": i32(2, 64), "s": f16(1, 32)}


def by_own_tensors():
    """Told by the tensors with or without a config; modules of other tensors are what they are."""
    plain = ["self_attn.k_proj", "self_attn.o_proj", "mlp.gate", "input_layernorm"]
    for method, text, parts in own_parts():
        for name, settings in [("", config(method)), ("-no-config", {}), ("-called-gptq", config("gptq", bits=4))]:
            case = Case(f"named-{method}{name}", {f"{LAYER}.{suffix}": part for suffix, part in parts.items()}, settings)
            case.tensors |= {f"model.layers.0.{module}.weight": bf16(np.ones((32, 32))) for module in plain}
            modules = {LAYER if suffix in ("weight", "scales", "row_offsets") else f"{LAYER}.{suffix}" for suffix in parts}
            case.schemes = dict.fromkeys(modules, text) | {f"model.layers.0.{module}": "bf16" for module in plain}
            case.faults = ("module-unreadable",)
            yield case


def odd_configs():
    """Values of another kind, each named with what was expected."""
    plain = {"weight": bf16(np.ones((32, 32)))}
    unknown = "one of modelopt, compressed-tensors, gptq"
    for name, value, text, rule in [
        ("number", 7, "config.json quantization_config is 7, expected an object with quant_method", "config-value"),
        ("list", ["gptq"], 'config.json quantization_config is ["gptq"], expected an object', "config-value"),
        ("true", True, "config.json quantization_config is true, expected an object", "config-value"),
        ("no-method", {"bits": 4}, "has no quant_method; quant_method is " + unknown, "module-unreadable"),
        ("method-number", {"quant_method": 4}, "has quant_method 4, expected a string", "module-unreadable"),
        ("unknown-method", {"quant_method": "gptq9"}, '"gptq9" of config.json quantization_config is not known, expected ' + unknown, "module-unreadable"),
        ("text", "gptq", 'says "gptq", but no tensor is quantized so', "config-value"),
        ("gptq-plain", {"quant_method": "gptq"}, 'says "gptq", but no tensor is quantized so', "module-unreadable"),
    ]:
        case = named("config-" + name, {"quantization_config": value}, plain, text)
        case.schemes["model.norm"] = "bf16"
        case.faults = tuple({rule, "module-unreadable"})
        yield case
    bytes_ = {"weight": np.ones((32, 32), np.int8), "weight_scale_inv": np.ones((1, 1), np.float32)}
    case = named("fp8-of-bytes", config("fp8", weight_block_size=[128, 128]), bytes_, "weight is i8 [32, 32], expected FP8 codes (f8_e4m3 or f8_e5m2)")
    case.tensors["model.layers.0.mlp.down_proj.weight"] = bf16(np.ones((32, 32)))
    case.schemes["model.layers.0.mlp.down_proj"] = "bf16"
    yield case


def familiar_tensors():
    """NVFP4 by its tensors, but the method is unknown: refused, and plain modules are plain."""
    parts = {"weight": np.zeros((32, 16), np.uint8), "weight_scale": np.ones((32, 2), DTYPE_F8), "weight_scale_2": np.float32(1)}
    case = named("familiar", config("sparkle4"), parts, 'quant_method "sparkle4"')
    case.schemes["model.norm"] = "bf16"
    yield case


def by_method():
    """Nothing in these may pass for 16-bit weights."""
    plain = {"weight": bf16(np.ones((8, 8)))}
    for method, text in [
        ("bitsandbytes", "quantized while loading"),
        ("torchao", "torchao: tensors of its own"),
        ("eetq", "EETQ"),
        ("aqlm", "AQLM"),
        ("quip", "QuIP#"),
        ("spqr", "SpQR"),
        ("vptq", "VPTQ"),
        ("higgs", "HIGGS"),
        ("fbgemm_fp8", "no tensor has FP8 codes"),
        ("sparkle4", 'quant_method "sparkle4"'),
    ]:
        yield named("method-" + method, config(method), plain, text)


def orphan_bias():
    """A bias whose matrix is not there is no expert."""
    case = nf4("orphan-bias")
    case.tensors["model.layers.0.mlp.experts.gate_up_proj_bias"] = bf16(np.ones((4, 64)))
    case.config["hidden_size"] = 128
    case.tensors["model.norm.weight"] = bf16(np.ones(128))
    case.schemes["model.layers.0.mlp.experts.gate_up_proj"] = "bf16"
    return case


@dataclass
class InMetadata(Case):
    """metadata: of the shard's header."""

    metadata: dict = field(default_factory=dict)

    def write(self, folder):
        super().write(folder)
        file = folder / "model.safetensors"
        raw = file.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        header = json.dumps({"__metadata__": self.metadata} | json.loads(raw[8 : 8 + size])).encode()
        header += b" " * (-len(header) % 8)
        file.write_bytes(len(header).to_bytes(8, "little") + header + raw[8 + size :])


def configs_in_odd_places():
    """Plain weights, and a method somewhere: none of them passes for unquantized."""
    gptq = {"quant_method": "gptq", "bits": 4}
    for name, settings in [
        ("thinker-text", {"thinker_config": {"text_config": {"quantization_config": gptq}}}),
        ("thinker", {"thinker_config": {"quantization_config": gptq}}),
        ("unknown-deep", {"pretrained_cfg": {"text_config": {"quantization_config": {"quant_method": "acme"}}}}),
        ("quant-config", {"quant_config": gptq}),
        ("sparsity", {"sparsity_config": {"format": "sparse-24-bitmask"}}),
        ("modelopt-algorithm", config("modelopt", quant_algo="NVFP7")),
        ("quantization-algorithm", {"quantization": {"quant_algo": "NVFP7"}}),
        ("quantization-method", {"quantization": {"quant_method": "sparkle4"}}),
        ("quantization-empty-words", {"quantization": {"foo": 1}}),
        ("quantization-text", {"quantization": "int4"}),
        ("quantization-of-a-part", {"text_config": {"quantization": {"bits": 4, "group_size": 64}}}),
        ("quantize-config", {"quantize_config": {"bits": 4}}),
        ("other-case", {"Quantization_Config": gptq}),
        ("deep", {"a": {"b": {"c": {"d": [{"quantization_config": {"quant_method": "acme"}}]}}}}),
        ("load-in-4bit", {"load_in_4bit": True}),
        ("load-in-8bit", {"text_config": {"load_in_8bit": True}}),
        ("method-of-the-model", {"quant_method": "gptq", "bits": 4}),
        ("scheme", {"quantization_scheme": "int4"}),
        ("sparsity-text", {"sparsity_config": "2:4"}),
    ]:
        rng = random(name)
        tensors = {f"{MODULE}.weight": bf16(rng.standard_normal((16, 32))), "model.norm.weight": bf16(np.ones(32))}
        yield Case("named-plain-" + name, tensors, settings, faults=("module-unreadable",))


def of_ascend():
    """A file that gives each tensor its type."""
    parts = {"weight": np.zeros((16, 32), np.int8), "weight_scale": np.ones((16, 1), np.float32), "weight_offset": np.zeros((16, 1), np.float32)}
    plain = {"weight": bf16(np.ones((16, 32)))}
    for name, file, tensors in [("", "quant_model_description", parts), ("-plain", "quant_model_description_w8a8", plain)]:
        case = named("ascend" + name, {}, tensors, "Ascend's msModelSlim")
        case.files[file + ".json"] = {"model_quant_type": "W8A8", f"{MODULE}.weight": "W8A8", "model.norm.weight": "FLOAT"}
        yield case
    floats = Case("named-ascend-floats", {f"{MODULE}.weight": plain["weight"]})
    floats.files["quant_model_description.json"] = {"model_quant_type": "FLOAT", f"{MODULE}.weight": "FLOAT"}
    yield floats


def of_neural_compressor():
    """qconfig.json, a layer's algorithm and its settings; other tools have files of that name."""
    words = {"qweight": np.zeros((4, 32), np.int32), "scales": np.ones((1, 32), np.float16), "qzeros": np.zeros((1, 4), np.int32)}
    plain = {"weight": bf16(np.ones((16, 32)))}
    key = f"('{MODULE}', 'Linear')"
    rtn = {"rtn": {"dtype": "int", "bits": 4, "group_size": 32, "use_sym": True}}
    older = {"weight": {"dtype": "int", "bits": 4, "group_size": 32, "scheme": "asym", "algorithm": "RTN"}, "activation": {"dtype": "fp32"}}
    for name, mapping in [("", {key: rtn}), ("-older", {MODULE: older}), ("-mixed", {"('lm_head', 'Linear')": {"rtn": {"dtype": "fp32"}}, key: rtn})]:
        for kind, tensors in [("words", words), ("plain", plain)]:
            case = named(f"neural-compressor{name}-{kind}", {}, tensors, "Intel Neural Compressor (qconfig.json)")
            case.files, case.refused = {"qconfig.json": mapping}, True
            yield case
    for name, content in [("bits", {"weight_bits": 4}), ("method", {"quant_method": "sparkle4"}), ("sizes", {"block_size": 64, "scale_dtype": "ue8m0"})]:
        case = Case(f"named-qconfig-{name}", {f"{MODULE}.weight": plain["weight"]}, faults=("module-unreadable",), said=("qconfig.json",), refused=True)
        case.files["qconfig.json"] = content
        yield case
    gptq = Case("named-qconfig-gptq", {f"{MODULE}.weight": plain["weight"]}, faults=("module-unreadable",), said=('qconfig.json says "gptq"',))
    gptq.files["qconfig.json"] = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    yield gptq
    for name, content in [("floats", {key: {"rtn": {"dtype": "fp32"}}}), ("compiler", {"cores": 16, "onnx_path": "model.onnx"}), ("empty", {}), ("list", [1, 2])]:
        case = Case(f"named-qconfig-no-{name}", {f"{MODULE}.weight": plain["weight"]}, schemes={MODULE: "bf16"})
        case.files["qconfig.json"] = content
        yield case


def beside_config():
    """Beside a config that says nothing: Mistral's own file, and the header of the weights."""
    tensors = {f"{MODULE}.weight": bf16(np.ones((16, 32)))}
    said = ("config-quantization-key",)
    for name, block, faults in [("block", {"qformat_weight": "fp8_e4m3"}, said), ("nothing", None, ())]:
        yield Case(f"named-params-{name}", tensors, {"vocab_size": 8}, {"params.json": {"quantization": block}}, faults=faults)
    for name, metadata, faults in [
        ("bits", {"bits": "4"}, said),
        ("config", {"config": json.dumps({"weights": {"wbits": 3}})}, said),
        ("plain", {"format": "pt", "ss_optimizer": "bnb.AdamW8bit", "ss_mixed_precision": "bf16"}, ()),
    ]:
        yield InMetadata(f"named-metadata-{name}", tensors, faults=faults, metadata=metadata)


def configs_in_other_files():
    for key, text in [("quantization_config", '{"quant_method": "acme"}'), ("quantization", "int4")]:
        tensors = {f"{MODULE}.weight": bf16(np.ones((16, 32)))}
        yield InMetadata(f"named-plain-metadata-{key}", tensors, faults=("module-unreadable",), metadata={key: text})
    tensors = {f"{MODULE}.weight": bf16(np.ones((16, 32)))}
    for file, block in [
        ("quantization_config", {"quant_method": "bitsandbytes"}),
        ("quantization", {"quant_method": "gptq", "bits": 4}),
        ("inc_config", {"quantization_config": {"quant_method": "acme"}}),
        ("gptq_config", {"bits": 4}),
    ]:
        yield Case(f"named-plain-file-{file}", tensors, {}, {f"{file}.json": block}, faults=("module-unreadable",))
        yield Case(f"named-plain-empty-file-{file}", tensors, {}, {f"{file}.json": {}})
    yield from of_ascend()
    yield from of_neural_compressor()
    yield from beside_config()
    # ModelOpt leaves plain what it lists.
    tensors = {f"{MODULE}.weight": bf16(np.ones((16, 32)))}
    algorithm = {"quantization": {"quant_algo": "NVFP4"}}
    yield Case("named-plain-quantization-modelopt", tensors, algorithm, faults=("config-producer",))
    nothing = {"quantization": None, "load_in_4bit": False, "quantize": "none", "text_config": {"quantization": {}}}
    yield Case("named-plain-nothing-said", tensors, nothing)
    for dtype in (np.int64, np.bool_):
        tensors = {f"{MODULE}.weight": np.ones((16, 32), dtype), "model.norm.weight": bf16(np.ones(32))}
        yield Case(f"named-plain-{np.dtype(dtype).name}", tensors, faults=("module-unreadable",))


def cases():
    yield from configs_in_odd_places()
    yield from configs_in_other_files()
    yield nf4("nf4")
    yield nf4("nf4-rows-of-96", k=96)
    yield nf4("nf4-rows-of-100", n=17, k=100)
    yield nf4("nf4-rows-of-33", n=7, k=33)
    yield nf4("nf4-rows-of-20-nested", n=7, k=20, nested=True)
    yield orphan_bias()
    yield nf4("nf4-rows", flat=False)
    yield nf4("nf4-wide-blocks", blocksize=128)
    yield nf4("nf4-nested", nested=True)
    yield int8()
    yield from bitsandbytes_contradictions()
    yield from bitsandbytes_faults()
    yield from by_tensors()
    yield from by_own_tensors()
    yield from odd_configs()
    yield from familiar_tensors()
    yield from by_method()
