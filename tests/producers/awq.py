# SPDX-License-Identifier: Apache-2.0
"""AWQ in its three layouts: GEMM along n, GEMV along k, and GEMV-fast in shorts of four rows."""

import numpy as np
from case import Case, bf16, random, with_fault
from words import pack_awq, pack_gemv_fast, pack_stream

UP = "model.layers.0.mlp.up_proj"
SIZES = [("gate", 64, 128), ("up", 64, 128), ("down", 128, 64)]


def config(version="gemm", group_size=32, **more):
    return {
        "quant_method": "awq",
        "bits": 4,
        "group_size": group_size,
        "zero_point": True,
        "version": version,
        "modules_to_not_convert": None,
    } | more


def zero_words(k, size):
    words = -(-(k // size) // 8)
    multiple = {32: 4, 64: 2}.get(size, 1)
    return -(-words // multiple) * multiple


def padded(array, columns):
    return np.pad(array, ((0, 0), (0, columns - array.shape[1])))


def gemm(codes, zeros, scales, size):
    tensors = {"qweight": pack_awq(codes.T), "qzeros": pack_awq(zeros.T), "scales": scales.T.copy()}
    return tensors, None


def gemv(codes, zeros, scales, size):
    words = zero_words(codes.shape[1], size)
    return {
        "qweight": pack_stream(codes, 4),
        "qzeros": pack_stream(padded(zeros, 8 * words), 4),
        "scales": padded(scales, 8 * words),
    }, None


def gemv_fast(codes, zeros, scales, size):
    rows = 8 * zero_words(codes.shape[1], size)
    offsets = -(scales * zeros.astype(np.float16))
    tensors = {
        "qweight": pack_gemv_fast(codes),
        "qzeros": padded(offsets, rows).T.copy(),
        "scales": padded(scales, rows).T.copy(),
    }
    return tensors, offsets


LAYOUTS = {"gemm": gemm, "gemv": gemv, "gemv_fast": gemv_fast}


def matrix(rng, n, k, version, size):
    """Tensors, values and the sums of |terms| of one module."""
    size = k if size < 0 else size
    codes = rng.integers(0, 16, (n, k))
    zeros = rng.integers(0, 16, (n, -(-k // size)))
    scales = rng.uniform(0.001, 0.1, zeros.shape).astype(np.float16)
    tensors, offsets = LAYOUTS[version](codes, zeros, scales, size)
    group = np.arange(k) // size
    scale = scales.astype(np.float64)[:, group]
    if offsets is None:
        values = (codes - zeros[:, group]) * scale
        return tensors, values, np.abs(values)
    offset = offsets.astype(np.float64)[:, group]
    return tensors, codes * scale + offset, codes * scale + np.abs(offset)


def whole(name, version="gemm", size=32, block=None, files=None, sizes=SIZES):
    rng = random(name)
    case = Case(name, {}, files=files or {})
    if block:
        case.config = {"quantization_config": block}
    for projection, n, k in sizes:
        module = f"model.layers.0.mlp.{projection}_proj"
        parts, values, magnitudes = matrix(rng, n, k, version, size)
        case.tensors |= {f"{module}.{suffix}": part for suffix, part in parts.items()}
        case.values[f"{module}.weight"] = values
        case.magnitudes[f"{module}.weight"] = magnitudes
        case.schemes[module] = "AWQ INT4"
    case.tensors["model.norm.weight"] = bf16(np.ones(32))
    case.values["model.norm.weight"] = np.ones(32)
    return case


def variants():
    for size in (32, 64, -1):
        for version in ("gemm", "gemv", "gemv_fast"):
            if size < 0 and version != "gemm":
                continue
            name = f"awq-{version.replace('_', '-')}-group-{size if size > 0 else 'k'}"
            yield whole(name, version, size, config(version, size))
    wide = [("gate", 128, 256), ("up", 128, 256), ("down", 256, 128)]
    for version in ("gemm", "gemv", "gemv_fast"):
        yield whole(f"awq-{version.replace('_', '-')}-group-128", version, 128, config(version, 128), sizes=wide)
    for version in ("GEMM", "marlin", "exllama", "ipex"):
        yield whole(f"awq-version-{version}", block=config(version))
    yield whole("awq-llm-awq", "gemv_fast", 64, config("llm-awq", 64))
    yield whole("awq-short-last-group", size=48, block=config(group_size=48))
    yield whole("awq-without-version", block={key: v for key, v in config().items() if key != "version"})
    yield whole("awq-without-config")
    old = {"zero_point": True, "q_group_size": 32, "w_bit": 4, "version": "GEMM"}
    yield whole("awq-quant-config", files={"quant_config.json": old})


def symmetric(name, zero=8):
    """Zero points are stored although the config says that there are none."""
    case = whole(name, block=config(zero_point=False))
    rng = random(case.name)
    for projection, n, k in SIZES:
        module = f"model.layers.0.mlp.{projection}_proj"
        codes = rng.integers(0, 16, (n, k))
        zeros = np.full((k // 32, n), 8)
        zeros[-1, -1] = zero
        case.tensors[f"{module}.qweight"] = pack_awq(codes.T)
        case.tensors[f"{module}.qzeros"] = pack_awq(zeros)
        scales = case.tensors[f"{module}.scales"].T.astype(np.float64)
        case.values[f"{module}.weight"] = (codes - np.repeat(zeros.T, 32, axis=1)) * np.repeat(scales, 32, axis=1)
        case.magnitudes.pop(f"{module}.weight")
    return case


def without_zero_points():
    case = whole("awq-without-zero-points", block=config(zero_point=False))
    rng = random(case.name)
    for projection, n, k in SIZES:
        module = f"model.layers.0.mlp.{projection}_proj"
        case.tensors.pop(f"{module}.qzeros")
        codes = rng.integers(0, 16, (n, k))
        case.tensors[f"{module}.qweight"] = pack_awq(codes.T)
        scales = case.tensors[f"{module}.scales"].T.astype(np.float64)
        case.values[f"{module}.weight"] = (codes - 8) * np.repeat(scales, 32, axis=1)
        case.magnitudes.pop(f"{module}.weight")
    return case


def excluded():
    """modules_to_not_convert is a list of substrings: "gate" also names gate_proj."""
    block = config(modules_to_not_convert=["layers.1.", "gate"])
    case = whole("awq-modules-to-not-convert", block=block)
    case.warnings = ("fused-schemes-differ",)
    rng = random(case.name)
    for suffix in ("qweight", "qzeros", "scales"):
        case.tensors.pop(f"model.layers.0.mlp.gate_proj.{suffix}")
    case.values.pop("model.layers.0.mlp.gate_proj.weight")
    case.schemes["model.layers.0.mlp.gate_proj"] = "bf16"
    for module in ("model.layers.0.mlp.gate_proj", "model.layers.1.mlp.up_proj"):
        case.tensors[f"{module}.weight"] = bf16(rng.normal(size=(64, 128)))
    return case


def broken(fault, rule, version="gemm", size=32, block=None):
    case = whole(f"awq-{fault}", version, size, config(version, size) if block is None else block)
    case.faults = (rule,)
    case.values = {}
    return case


def change(fault, rule, suffix, edit, *form):
    case = broken(fault, rule, *form)
    made = edit(case.tensors.pop(f"{UP}.{suffix}").copy())
    if suffix == "qweight" and made is None:
        case.schemes.pop(UP)
    if made is not None:
        case.tensors[f"{UP}.{suffix}"] = made
    return case


def put(value):
    def edit(array):
        array[0, 0] = value
        return array

    return edit


def faults():
    yield change("scales-missing", "scale-missing", "scales", lambda a: None)
    yield change("qweight-missing", "scale-without-weight", "qweight", lambda a: None)
    yield change("qzeros-missing", "zeros-missing", "qzeros", lambda a: None)
    yield change("group-missing", "scale-shape", "scales", lambda a: a[:-1])
    yield change("qzeros-shape", "zeros-shape", "qzeros", lambda a: a[:, :-1])
    yield change("scale-nan", "scale-nan", "scales", put(np.nan))
    yield change("scale-negative", "scale-negative", "scales", put(-1))
    yield change("scale-zero", "scale-zero", "scales", put(0))
    yield change("gemv-scales-cut", "scale-shape", "scales", lambda a: a[:, :-1], "gemv")
    yield change("gemv-fast-zeros-type", "zeros-dtype", "qzeros", lambda a: a.astype(np.float32), "gemv_fast")
    yield change("gemv-fast-columns", "weight-shape", "qweight", lambda a: a[:, :-1], "gemv_fast")
    yield change("gemv-fast-padding", "scale-nan", "scales", lambda a: np.where(np.arange(a.size) < a.size - 1, a.reshape(-1), np.inf).reshape(a.shape).astype(a.dtype), "gemv_fast")
    yield change("gemv-fast-zeros-missing", "zeros-missing", "qzeros", lambda a: None, "gemv_fast")


def contradictions():
    yield broken("stated-gemv", "config-format", block=config("gemv"))
    yield broken("stated-group-size", "config-group-size", block=config(group_size=64))
    yield broken("called-gptq", "config-producer", block=config(quant_method="gptq", version="gptq"))
    case = broken("unknown-version", "module-unreadable", block=config("gemm2"))
    case.schemes = {}
    yield case
    case = broken("excludes-quantized", "config-excludes-quantized", block=config(modules_to_not_convert=["up_proj"]))
    yield case
    case = broken("eight-bits", "module-unreadable", block=config(bits=8))
    for projection, n, k in SIZES:
        module = f"model.layers.0.mlp.{projection}_proj"
        case.tensors[f"{module}.qweight"] = np.zeros((k, n // 4), np.int32)
        case.tensors[f"{module}.qzeros"] = np.zeros((k // 32, n // 4), np.int32)
    case.schemes = {}
    yield case


def cases():
    yield from variants()
    yield without_zero_points()
    yield symmetric("awq-zero-points-of-8")
    yield with_fault(lambda name: symmetric(name, zero=7), "awq", "zeros-not-symmetric", lambda case: None)
    yield excluded()
    yield from faults()
    yield from contradictions()
