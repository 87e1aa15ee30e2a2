# SPDX-License-Identifier: Apache-2.0
"""MLX's own checkpoints: words of every width and mode, overrides by module, what does not fit; and
files that MLX itself wrote (data/write_mlx.py). Values by the formula of its documentation: affine ones
are code * scale + bias, the others the code's float times its group's scale."""

import json

import ml_dtypes
import numpy as np
from auto_round_mlx import affine, words_of
from case import E2M1, Case, bf16, random, spread
from compressed_tensors_library import DATA, Stored, load

LAYER = "model.layers.0."
UP, GATE = LAYER + "mlp.experts.0.up_proj", LAYER + "mlp.experts.0.gate_proj"
# mode -> bits, group size, type of codes (None: e2m1) and of scales
FLOATS = {
    "mxfp4": (4, 32, None, ml_dtypes.float8_e8m0fnu),
    "mxfp8": (8, 32, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu),
    "nvfp4": (4, 16, None, ml_dtypes.float8_e4m3fn),
}
SCHEMES = {"mxfp4": "MLX MXFP4", "mxfp8": "MLX MXFP8", "nvfp4": "MLX NVFP4"}


def float_values(codes, scales, mode):
    _, group, code_type, scale_type = FLOATS[mode]
    values = E2M1[codes] if code_type is None else codes.astype(np.uint8).view(code_type).astype(np.float64)
    return values * spread(scales.view(scale_type).astype(np.float64), 1, group, codes.shape)


def floats(rng, shape, mode):
    bits, group, _, _ = FLOATS[mode]
    codes = rng.integers(0, 1 << bits, shape)
    if mode == "mxfp8":
        codes[(codes & 127) == 127] = 0  # NaN
    low, high = (0x10, 0x60) if mode == "nvfp4" else (110, 126)
    scales = rng.integers(low, high, (*shape[:-1], shape[-1] // group)).astype(np.uint8)
    return {"weight": words_of(codes, bits), "scales": scales}, float_values(codes, scales, mode)


def scheme_of(bits):
    return f"MLX INT{bits}"


def config(bits=4, group_size=64, mode="affine", **modules):
    block = {"group_size": group_size, "bits": bits, "mode": mode}
    return block | modules


def model(name, block, copy=True):
    case = Case(name, {"model.norm.weight": bf16(np.ones(128))}, {"model_type": "qwen3_moe", "hidden_size": 128})
    case.config["quantization"] = block
    if copy:
        case.config["quantization_config"] = block
    return case


def put(case, module, made, scheme):
    parts, values, *sums = made
    case.tensors |= {f"{module}.{suffix}": part for suffix, part in parts.items()}
    case.values[f"{module}.weight"], case.schemes[module] = values, scheme
    if sums:
        case.magnitudes[f"{module}.weight"] = sums[0]


def affine_model(name, bits=4, group=64, dtype=np.float16, **more):
    case, rng = model(name, config(bits, group), **more), random(name)
    for module in (UP, GATE):
        put(case, module, affine(rng, (48, 128), bits, group, dtype), scheme_of(bits))
    return case


def float_model(name, mode):
    bits, group, _, _ = FLOATS[mode]
    case, rng = model(name, config(bits, group, mode)), random(name)
    for module in (UP, GATE):
        put(case, module, floats(rng, (48, 128), mode), SCHEMES[mode])
    return case


def whole():
    for bits in (1, 2, 3, 4, 5, 6, 8):
        for group, dtype in ((32, np.float16), (64, bf16(0).dtype), (128, np.float32)):
            yield affine_model(f"mlx-affine-{bits}-{group}", bits, group, dtype)
    for mode in FLOATS:
        yield float_model(f"mlx-{mode}", mode)
    yield affine_model("mlx-no-copy", copy=False)
    short = affine_model("mlx-no-mode")
    for key in ("quantization", "quantization_config"):
        short.config[key] = {"group_size": 64, "bits": 4}
    yield short
    # Remote hubs leave the copy alone.
    alone = affine_model("mlx-copy-alone")
    del alone.config["quantization"]
    yield alone
    named = affine_model("mlx-named")
    del named.config["quantization"]
    named.config["quantization_config"] = config() | {"quant_method": "mlx"}
    yield named


def mixed():
    """Widths, groups and modes of single modules, and what false and true say."""
    case, rng = affine_model("mlx-mixed"), random("mixed")
    own = {
        LAYER + "mlp.gate": {"group_size": 64, "bits": 8},
        LAYER + "self_attn.q_proj": {"group_size": 32, "bits": 6, "mode": "affine"},
        LAYER + "self_attn.k_proj": {"mode": "mxfp8"},
        LAYER + "self_attn.v_proj": {"bits": 8},
        LAYER + "self_attn.o_proj": False,
        UP: True,
    }
    for key in ("quantization", "quantization_config"):
        case.config[key] = config(**own)
    put(case, LAYER + "mlp.gate", affine(rng, (1, 128), 8, 64, np.float16), "MLX INT8")
    put(case, LAYER + "self_attn.q_proj", affine(rng, (64, 128), 6, 32, np.float16), "MLX INT6")
    put(case, LAYER + "self_attn.k_proj", floats(rng, (64, 128), "mxfp8"), "MLX MXFP8")
    put(case, LAYER + "self_attn.v_proj", affine(rng, (64, 128), 8, 64, np.float16), "MLX INT8")
    case.tensors[LAYER + "self_attn.o_proj.weight"] = bf16(rng.normal(0, 0.05, (128, 64)))
    case.warnings = ("router-quantized", "fused-schemes-differ")
    yield case
    for mode in ("affine", *FLOATS):
        stacked = model(f"mlx-stacked-{mode}", config(*(FLOATS[mode][:2] if mode in FLOATS else (4, 32)), mode))
        for part, shape in [("gate", (3, 64, 128)), ("up", (3, 64, 128)), ("down", (3, 128, 64))]:
            made = floats(rng, shape, mode) if mode in FLOATS else affine(rng, shape, 4, 32, np.float16)
            put(stacked, f"{LAYER}mlp.switch_mlp.{part}_proj", made, SCHEMES.get(mode, "MLX INT4"))
        yield stacked


def both(case, **changes):
    for key in ("quantization", "quantization_config"):
        case.config[key] = case.config[key] | changes


def broken(name, faults, said, change, mode="affine"):
    case = affine_model(f"mlx-fault-{name}") if mode == "affine" else float_model(f"mlx-fault-{name}", mode)
    case.schemes, case.faults, case.said = {}, (faults,), (said,)
    change(case)
    return case


def cut(case, suffix):
    case.tensors[f"{UP}.{suffix}"] = case.tensors[f"{UP}.{suffix}"][:, :-1]


def set_part(case, suffix, part):
    case.tensors[f"{UP}.{suffix}"] = part


def faults():
    unread = "module-unreadable"
    yield broken("bits", unread, "of 8 bits (64 columns)", lambda c: both(c, bits=8))
    yield broken("bits-7", unread, "MLX words of 7 bits", lambda c: both(c, bits=7))
    yield broken("bits-text", "config-value", 'bits "4"', lambda c: both(c, bits="4"))
    yield broken("bits-text-unread", unread, "MLX words of unknown width", lambda c: both(c, bits="4"))
    yield broken("group", unread, "columns / 32", lambda c: both(c, group_size=32))
    yield broken("group-zero", "config-value", "group_size 0", lambda c: both(c, group_size=0))
    yield broken("mode", unread, 'mode "nf4" of config.json quantization is not known', lambda c: both(c, mode="nf4"))
    yield broken("mode-list", "config-value", "mode []", lambda c: both(c, mode=[]))
    yield broken("mode-list-unread", unread, 'mode "[]" of', lambda c: both(c, mode=[]))
    yield broken("mode-mxfp4", unread, "mode mxfp4 with bits 4 and group_size 64", lambda c: both(c, mode="mxfp4"))
    yield broken("biases-beside", unread, "biases", lambda c: both(c, mode="mxfp4", group_size=32))
    yield broken("no-biases", unread, "without biases", lambda c: c.tensors.pop(f"{UP}.biases"))
    yield broken("biases-shape", unread, "biases f16 [48, 1]", lambda c: cut(c, "biases"))
    yield broken("scales-shape", unread, "scales f16 [48, 1]", lambda c: cut(c, "scales"))
    yield broken("other-part", unread, "g_idx", lambda c: set_part(c, "g_idx", np.zeros(128, np.int32)))
    yield broken("rank", unread, "[48, 16, 1]", lambda c: set_part(c, "weight", c.tensors[f"{UP}.weight"][..., None]))
    nan = np.full((48, 2), np.nan, np.float16)
    yield broken("biases-nan", "zeros-value", "96 of 96 are NaN", lambda c: set_part(c, "biases", nan))
    yield broken("scales-nan", "scale-nan", "96 of 96 scales are NaN", lambda c: set_part(c, "scales", nan))
    for mode, (bits, group, _, _) in FLOATS.items():
        yield broken(f"{mode}-scales", unread, f"{mode} (128 columns)", lambda c: cut(c, "scales"), mode)
        yield broken(f"{mode}-type", unread, "expected u8", lambda c: set_part(c, "scales", c.tensors[f"{UP}.scales"].astype(np.float16)), mode)
        yield broken(f"{mode}-bits", unread, f"mode {mode} with bits 6 and group_size {group}, expected {bits} and".replace(",", " in config.json quantization,"), lambda c: both(c, bits=6), mode)
        yield broken(f"{mode}-global", unread, "global_scale", lambda c: set_part(c, "global_scale", np.float32(1)), mode)
        worst = np.full((48, 128 // group), 255 if mode != "nvfp4" else 127, np.uint8)
        yield broken(f"{mode}-nan", "scale-nan", "scales are NaN", lambda c, worst=worst: set_part(c, "scales", worst), mode)
    codes = np.full((48, 32), 0x7F7F7F7F, np.uint32)
    yield broken("mxfp8-code-nan", "weight-nan", "6144 of 6144 codes are NaN", lambda c: set_part(c, "weight", codes), "mxfp8")
    # The config against the tensors.
    yield broken("false", "config-excludes-quantized", "is false", lambda c: both(c, **{UP: False}))
    plain = bf16(np.ones((8, 128)))
    yield broken(
        "plain",
        "config-expects-quantized",
        '{"bits":4,"group_size":64}',
        lambda c: (both(c, **{LAYER + "self_attn.q_proj": {"bits": 4, "group_size": 64}}), c.tensors.update({LAYER + "self_attn.q_proj.weight": plain})),
    )
    yield broken("unknown", "config-layer-unknown", '"a.b"', lambda c: both(c, **{"a.b": {"bits": 4}}))
    yield broken("entry", "config-value", "a.b 7", lambda c: both(c, **{"a.b": 7}))
    yield broken("copy", "config-places-differ", 'bits 8', lambda c: c.config.update(quantization_config=config(8)))
    none = affine_model("mlx-fault-nothing-quantized")
    none.tensors = {f"{UP}.weight": plain}
    none.values, none.schemes, none.faults, none.said = {}, {}, (unread,), ('says "MLX", but no tensor is quantized so',)
    yield none


def library():
    """What MLX wrote, decoded by the formula, which must agree with what MLX decoded."""
    for folder in sorted(DATA.glob("mlx-*/*")):
        written, decoded = load(folder / "model.safetensors"), load(folder / "decoded.safetensors")
        settings = json.loads((folder / "config.json").read_text())
        case = Stored(f"mlx-library-{folder.name}", written, settings, source=folder)
        problems = []
        for name, theirs in decoded.items():
            module = name.removesuffix(".weight")
            block = settings["quantization"].get(module, settings["quantization"])
            stream = np.unpackbits(written[name].view(np.uint8), axis=-1, bitorder="little")
            codes = stream.reshape(*stream.shape[:-1], -1, block["bits"]).astype(np.int64) @ (1 << np.arange(block["bits"]))
            scales = written[f"{module}.scales"]
            if block["mode"] == "affine":
                parts = [spread(written[f"{module}.{part}"].astype(np.float64), 1, block["group_size"], codes.shape) for part in ("scales", "biases")]
                values, sums = codes * parts[0] + parts[1], np.abs(codes * parts[0]) + np.abs(parts[1])
                case.magnitudes[name], case.schemes[module], bound = sums, scheme_of(block["bits"]), 2.0**-22 * sums
            else:
                values = float_values(codes, scales, block["mode"])
                case.schemes[module], bound = SCHEMES[block["mode"]], 2.0**-8 * np.abs(values)  # MLX gives bf16
            case.values[name] = values
            problems += [f"{name}: MLX decodes other values"] if (np.abs(values - theirs) > bound).any() else []
        case.contradictions = tuple(problems)
        yield case


def cases():
    yield from whole()
    yield from mixed()
    yield from faults()
    yield from library()
