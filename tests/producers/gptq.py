# SPDX-License-Identifier: Apache-2.0
"""GPTQ: codes in words along k, zero points in words along n, a group number for every column."""

from dataclasses import dataclass, replace

import numpy as np
from case import Case, bf16, random
from words import pack_down, pack_stream

UP = "model.layers.0.mlp.up_proj"
SIZES = [("gate", 64, 96), ("up", 64, 96), ("down", 96, 64)]


@dataclass
class Form:
    bits: int = 4
    group_size: int = 32
    sym: bool = True
    order: bool = False  # act-order: columns of a group stand anywhere
    minus: bool = True  # v1: zero points are stored one too small
    g_idx: bool = True
    qzeros: bool = True
    scale: type = np.float16

    def config(self, **more):
        return {
            "quant_method": "gptq",
            "bits": self.bits,
            "group_size": self.group_size,
            "sym": self.sym,
            "desc_act": self.order,
            "checkpoint_format": "gptq" if self.minus else "gptq_v2",
        } | more


def matrix(rng, n, k, form):
    """Tensors of one module and its values [n, k]."""
    size = k if form.group_size < 0 else form.group_size
    groups = -(-k // size)
    g_idx = np.arange(k, dtype=np.int32) // size
    if form.order:
        g_idx = g_idx[rng.permutation(k)]
    codes = rng.integers(0, 2**form.bits, (k, n))
    zeros = rng.integers(0, 2**form.bits, (groups, n))
    if form.sym:
        zeros[:] = 2 ** (form.bits - 1)
    scales = rng.uniform(0.001, 0.1, (groups, n)).astype(form.scale)
    stored = (zeros - form.minus) % 2**form.bits
    tensors = {
        "qweight": pack_down(codes, form.bits),
        "qzeros": pack_stream(stored, form.bits),
        "scales": scales,
        "g_idx": g_idx,
    }
    if not form.g_idx:
        tensors.pop("g_idx")
    if not form.qzeros:
        tensors.pop("qzeros")
    values = (codes - zeros[g_idx]) * scales.astype(np.float64)[g_idx]
    return tensors, values.T


def whole(name, form=None, config=True, files=None, scheme="GPTQ INT4", **more):
    """Three projections and a norm."""
    form = form or Form()
    rng = random(name)
    case = Case(name, {}, files=files or {})
    if not form.sym and form.minus:
        case.warnings = ("zeros-wrap",)  # a zero point of 0 is stored as -1
    if config:
        case.config = {"quantization_config": form.config(**more)}
    for projection, n, k in SIZES:
        module = f"model.layers.0.mlp.{projection}_proj"
        parts, case.values[f"{module}.weight"] = matrix(rng, n, k, form)
        case.tensors |= {f"{module}.{suffix}": part for suffix, part in parts.items()}
        case.schemes[module] = scheme
    case.tensors["model.norm.weight"] = bf16(np.ones(32))
    case.values["model.norm.weight"] = np.ones(32)
    return case


def variants():
    for bits in (2, 3, 4, 8):
        scheme = f"GPTQ INT{bits}"
        for minus in (True, False):
            version = "v1" if minus else "v2"
            yield whole(f"gptq-{bits}bit-{version}-sym", Form(bits, minus=minus), scheme=scheme)
            yield whole(f"gptq-{bits}bit-{version}-asym", Form(bits, sym=False, minus=minus), scheme=scheme)
        yield whole(f"gptq-{bits}bit-act-order", Form(bits, sym=False, order=True), scheme=scheme)
        yield whole(f"gptq-{bits}bit-whole-rows", Form(bits, group_size=-1, sym=False), scheme=scheme)
    yield whole("gptq-whole-rows-act-order", Form(group_size=-1, order=True))
    yield whole("gptq-without-g-idx", Form(g_idx=False))
    yield whole("gptq-short-last-group", Form(group_size=64, sym=False))
    yield whole("gptq-short-last-group-act-order", Form(group_size=64, order=True))
    yield whole("gptq-bf16-scales", Form(scale=bf16(0).dtype.type))
    yield whole("gptq-group-larger-than-k", Form(group_size=128))


def places():
    form = Form(sym=False, minus=False)
    plain = {key: value for key, value in form.config().items() if key != "quant_method"}
    yield whole("gptq-quantize-config", form, config=False, files={"quantize_config.json": plain})
    old = {"w_bit": 4, "q_group_size": 32, "zero_point": True, "version": "gptq_v2"}
    yield whole("gptq-old-keys", form, config=False, files={"quantize_config.json": old})
    yield whole("gptq-without-config", Form(order=True), config=False)
    yield whole("gptq-without-config-v2", Form(minus=False), config=False)
    form = Form(sym=False)
    config = form.config()
    config.pop("checkpoint_format")
    case = whole("gptq-without-checkpoint-format", form)
    case.config = {"quantization_config": config}
    yield case


def symmetric_zeros():
    """Symmetric kernels never look at the zero points, so files carry all kinds."""
    case = whole("gptq-sym-without-qzeros", Form(qzeros=False))
    yield case
    case = whole("gptq-sym-empty-qzeros", Form(qzeros=False))
    for projection, n, k in SIZES:
        case.tensors[f"model.layers.0.mlp.{projection}_proj.qzeros"] = np.zeros((k // 32, 0), np.int32)
    yield case
    case = whole("gptq-sym-zeroed-qzeros")
    for projection, _, _ in SIZES:
        case.tensors[f"model.layers.0.mlp.{projection}_proj.qzeros"] *= 0
    case.notes = ("zeros-unused",)
    yield case


def rules():
    """`dynamic`: the first rule that matches from the start of the name decides."""
    base = Form(sym=False)
    eight = Form(8, sym=True)
    dynamic = {
        "-:.*gate_proj": {},
        r"+:model\.layers\.0\..*up": {"bits": 8, "sym": True},
        r".*up_proj": {"bits": 2},
        "layers.0.mlp.down_proj": {"bits": 3},  # not from the start: no match
    }
    case = ruled("gptq-dynamic", base, {"gate": None, "up": eight, "down": base}, dynamic=dynamic)
    case.warnings += ("pattern-unmatched",)
    yield case
    excluded = {"-:.*": {}, "+:.*up_proj": {"bits": 8}}
    case = ruled("gptq-dynamic-excludes-quantized", base, {"gate": None, "up": base, "down": None}, dynamic=excluded)
    case.faults = ("config-excludes-quantized",)
    yield case
    case = ruled("gptq-dynamic-expects-quantized", base, {"gate": None, "up": base, "down": base}, dynamic={})
    case.faults = ("config-expects-quantized",)
    yield case
    yield ruled(
        "gptq-modules-in-block",
        base,
        {"gate": None, "up": base, "down": base},
        modules_in_block_to_quantize=[["mlp.up_proj"], ["mlp.down_proj"]],
    )
    fused = {"gate": base, "up": base, "down": base}
    yield ruled("gptq-modules-in-block-fused", base, fused, modules_in_block_to_quantize=[["mlp.gate_up_proj"], ["down_proj"]])
    case = ruled("gptq-modules-in-block-excludes", base, fused, modules_in_block_to_quantize=["mlp.gate_up_proj"])
    yield replace(case, faults=("config-excludes-quantized",), said=("modules_in_block_to_quantize without it",))


def written_by_auto_round():
    """Its symmetric scales may be negative under GPTQ's name too."""
    for name, keys in [
        ("version", {"autoround_version": "0.4.5"}),
        ("meta", {"meta": {"quantizer": ["auto_round:0.9"]}}),
        ("not", {"meta": {"quantizer": ["gptqmodel:2.3.0"]}}),
    ]:
        case = whole(f"gptq-auto-round-{name}", Form())
        case.config["quantization_config"] |= keys
        scales = case.tensors["model.layers.0.mlp.up_proj.scales"]
        scales[0, 3] *= -1
        case.values, case.schemes = {}, {}
        case.faults, case.notes = (("scale-negative",), ()) if name == "not" else ((), ("scale-negative",))
        yield case


def rules_of_releases():
    """Qwen's own lists: empty rules change nothing, and lm_head: false holds for a head with one."""
    base = Form(sym=False)
    forms = {"gate": base, "up": base, "down": base}
    for name, lm_head, rule in [("false", False, {}), ("none", None, {}), ("rule-and-false", False, {"bits": 8}), ("true", True, {})]:
        empty = {"lm_head": rule, "model.language_model.embed_tokens": {}, "-:.*attn.*": {}, "-:.*mtp.*": {}}
        case = ruled(f"gptq-empty-rules-{name}", base, forms, dynamic=empty, lm_head=lm_head)
        case.tensors["lm_head.weight"] = bf16(np.ones((16, 32)))
        case.notes = ("pattern-unmatched",)
        case.faults = ("config-expects-quantized",) if lm_head else ()
        yield case


def odd_rules():
    base = Form(sym=False)
    case = ruled("gptq-dynamic-invalid", base, {"gate": base, "up": base, "down": base}, dynamic={"+:(": {}})
    case.faults = ("config-value",)
    yield case
    slow = {"+:(?:[a-z0-9_.]+)+[!?]": {}}
    case = ruled("gptq-dynamic-unbounded", base, {"gate": base, "up": base, "down": base}, dynamic=slow)
    case.faults = ("pattern-limit",)
    yield case
    # Act-order of one module only.
    ordered = Form(order=True)
    yield ruled(
        "gptq-dynamic-act-order",
        Form(),
        {"gate": Form(), "up": ordered, "down": Form()},
        dynamic={".*up_proj": {"desc_act": True}},
    )


def heads():
    case = whole("gptq-lm-head", lm_head=True)
    add_head(case)
    yield case
    case = whole("gptq-lm-head-not-stated")
    add_head(case)
    case.faults = ("config-excludes-quantized",)
    yield case


def add_head(case):
    parts, case.values["lm_head.weight"] = matrix(random(case.name + "-head"), 64, 96, Form())
    case.tensors |= {f"lm_head.{suffix}": part for suffix, part in parts.items()}
    case.schemes["lm_head"] = "GPTQ INT4"


def ruled(name, base, forms, **more):
    """Each projection in its own form; None is plain."""
    rng = random(name)
    case = Case(name, {}, {"quantization_config": base.config(**more)}, warnings=("zeros-wrap", "fused-schemes-differ"))
    for projection, n, k in SIZES:
        module = f"model.layers.0.mlp.{projection}_proj"
        form = forms[projection]
        if form is None:
            case.tensors[f"{module}.weight"] = bf16(rng.normal(size=(n, k)))
            case.schemes[module] = "bf16"
            continue
        parts, case.values[f"{module}.weight"] = matrix(rng, n, k, form)
        case.tensors |= {f"{module}.{suffix}": part for suffix, part in parts.items()}
        case.schemes[module] = f"GPTQ INT{form.bits}"
    return case


def contradictions():
    """The tensors outrank the config; that they differ is found. Values are those of the tensors."""
    yield from both(whole("gptq-label-v1-zeros-v2", Form(minus=False), checkpoint_format="gptq"), "zeros-convention")
    yield from both(whole("gptq-label-v2-zeros-v1", Form(), checkpoint_format="gptq_v2"), "zeros-convention")
    yield from both(whole("gptq-asym-zero-wraps", Form(sym=False)), "zeros-wrap")
    yield from both(whole("gptq-desc-act-not-stated", Form(order=True), desc_act=False), "group-index-order")
    unread = whole("gptq-desc-act-not-read", Form(order=True), desc_act=False)
    yield Case(unread.name, unread.tensors, unread.config, unread.files, depth="--headers-only", notes=("group-index-unread",), absent=("group-index-order",))
    yield from both(whole("gptq-other-bits", Form(3), scheme="GPTQ INT3", bits=4), "config-bits")
    yield from both(whole("gptq-other-group-size", Form(), group_size=64), "config-group-size")
    for name, odd in [("group-size-text", {"group_size": "32"}), ("group-size-0", {"group_size": 0}), ("group-size-of-minus-2", {"group_size": -2})]:
        yield from both(whole(f"gptq-{name}", Form(), **odd), "config-value")
    yield from both(whole("gptq-bits-4.0", Form(), bits=4.0), "config-value")
    named = whole("gptq-config-of-a-name", Form())
    named.config["quantization_config"] = "gptq"
    yield from both(named, "config-value")
    plain = Form().config(bits=8)
    yield from both(whole("gptq-two-configs", Form(), files={"quantize_config.json": plain}), "config-places-differ")
    yield from both(whole("gptq-called-awq", Form(), quant_method="awq", version="gemm"), "config-producer")


def both(case, rule):
    """The case with its finding, and with its values."""
    yield Case(case.name + "-values", case.tensors, case.config, case.files, case.schemes, case.values, warnings=(rule, "config-format"))
    case.faults = (rule,)
    yield case


def broken(fault, rule, form=None, **more):
    case = whole(f"gptq-{fault}", form, **more)
    case.faults = (rule,)
    case.values = {}
    return case


def change(fault, rule, suffix, edit, form=None, **more):
    case = broken(fault, rule, form, **more)
    name = f"{UP}.{suffix}"
    made = edit(case.tensors.pop(name).copy())
    if suffix == "qweight" and made is None:
        case.schemes.pop(UP)
    if made is not None:
        case.tensors[name] = made
    return case


def put(value, at=0):
    def edit(array):
        array.reshape(-1)[at] = value
        return array

    return edit


def faults():
    asym = Form(sym=False)
    yield change("scales-missing", "scale-missing", "scales", lambda a: None)
    yield change("qweight-missing", "scale-without-weight", "qweight", lambda a: None)
    yield change("qzeros-missing", "zeros-missing", "qzeros", lambda a: None, asym)
    yield change("group-missing", "scale-shape", "scales", lambda a: a[:-1])
    yield change("group-extra", "scale-shape", "scales", lambda a: np.concatenate([a, a[:1]]))
    yield change("scales-type", "scale-dtype", "scales", lambda a: a.astype(np.int32))
    yield change("scale-nan", "scale-nan", "scales", put(np.nan))
    yield change("scale-infinite", "scale-nan", "scales", put(np.inf, 7))
    yield change("scale-negative", "scale-negative", "scales", put(-0.5))
    yield change("scale-zero", "scale-zero", "scales", put(0))
    yield change("qweight-type", "weight-dtype", "qweight", lambda a: a.astype(np.int8))
    yield change("qweight-flat", "weight-shape", "qweight", lambda a: a.reshape(-1))
    yield change("qzeros-type", "zeros-dtype", "qzeros", lambda a: a.astype(np.int64), asym)
    yield change("qzeros-wide", "zeros-shape", "qzeros", lambda a: np.concatenate([a, a], axis=1), asym)
    yield change("qzeros-not-symmetric", "zeros-not-symmetric", "qzeros", put(0x12345678))
    yield change("g-idx-type", "group-index-dtype", "g_idx", lambda a: a.astype(np.int64))
    yield change("g-idx-short", "group-index-shape", "g_idx", lambda a: a[:-1])
    yield change("g-idx-range", "group-index-range", "g_idx", put(3, 95))
    yield change("g-idx-negative-range", "group-index-range", "g_idx", put(-4, 95))
    yield change("g-idx-uneven", "group-index-uneven", "g_idx", put(1, 5))
    yield change("g-idx-all-zero", "group-index-uneven", "g_idx", lambda a: a * 0)
    yield change("desc-act-without-g-idx", "module-unreadable", "g_idx", lambda a: None, Form(order=True))
    case = broken("weight-twice", "module-unreadable")
    case.tensors[f"{UP}.weight"] = bf16(np.ones((64, 96)))
    yield case


def index_lengths():
    """A g_idx of another length never makes another width of codes that the config and the other parts settle.

    [8, 32] leaves the width open without a config: one word of zero points holds 8 of 2, 3 or 4 bits.
    """
    form = Form(sym=False)
    config = form.config()
    file = {key: value for key, value in config.items() if key != "quant_method"}
    config8 = {"quantization_config": Form(8, sym=False).config(dynamic={".*up_proj": {"bits": 4, "group_size": 32}})}
    for length in (64, 33, 31):
        for name, configs, files in [
            ("", {"quantization_config": config}, {}),
            ("file-", {}, {"quantize_config.json": file}),
            ("rule-", config8, {}),
        ]:
            yield index_of(f"{name}{length}", 8, 32, form, length, configs, files)
        yield index_of(f"whole-rows-{length}", 8, 32, Form(group_size=-1), length, {"quantization_config": Form(group_size=-1).config()})
        yield index_of(f"without-zeros-{length}", 64, 32, Form(qzeros=False), length, {"quantization_config": Form().config()})
        yield index_of(f"without-config-{length}", 64, 32, Form(), length, {})
        if length != 64:  # as long as 2 bits have columns
            yield index_of(f"other-config-{length}", 64, 32, Form(), length, {"quantization_config": Form(2).config()})
        yield index_of(f"other-width-{length}", 64, 64, Form(3), length + 32, {"quantization_config": Form(3).config()}, scheme="GPTQ INT3")
    # Without them, or of the right length: the same shapes are read.
    for has, length in [("with", 32), ("without", None)]:
        case = index_of(f"{has}-the-right-one", 8, 32, form, length, {"quantization_config": config})
        yield Case(case.name, case.tensors, case.config, schemes=case.schemes, warnings=("zeros-wrap",))
    # All parts agree on 2 bits, and on 4 only with other groups than the config says.
    case = index_of("agrees-with-2-bits", 8, 128, Form(2, group_size=16), 128, {"quantization_config": Form(4, group_size=32).config()}, scheme="GPTQ INT2")
    yield Case(case.name, case.tensors, case.config, schemes=case.schemes, warnings=("config-bits", "config-group-size"))


def index_of(name, n, k, form, length, config, files=None, scheme="GPTQ INT4"):
    """One projection with a g_idx cut or repeated to `length`, or without one."""
    parts, _ = matrix(random(name), n, k, form)
    if length is None:
        parts.pop("g_idx")
    else:
        parts["g_idx"] = np.resize(parts["g_idx"], length)
    tensors = {f"{UP}.{suffix}": part for suffix, part in parts.items()}
    tensors["model.norm.weight"] = bf16(np.ones(32))
    return Case(f"gptq-g-idx-length-{name}", tensors, config, files or {}, {UP: scheme}, faults=("group-index-shape",), refused=True)


def other_formats():
    yield broken("asym-without-config", "module-unreadable", Form(sym=False), config=False, scheme="")
    yield broken("marlin", "module-unreadable", checkpoint_format="marlin", scheme="marlin")
    yield broken("bitblas", "module-unreadable", checkpoint_format="bitblas", scheme="bitblas")
    yield broken("planes-of-3-bits", "module-unreadable", Form(3), checkpoint_format="gptq_p", scheme="gptq_p")
    yield broken("unknown-format", "module-unreadable", checkpoint_format="gptq_v9", scheme="gptq_v9")
    yield broken("pack-dtype", "module-unreadable", pack_dtype="int16", scheme="int16")


def negative_groups():
    """Group numbers may count from the end."""
    case = whole("gptq-negative-g-idx", Form(order=True, sym=False), desc_act=True)
    case.warnings = ("zeros-wrap",)
    for projection, _, k in SIZES:
        name = f"model.layers.0.mlp.{projection}_proj.g_idx"
        case.tensors[name] = np.where(np.arange(k) % 3 == 0, case.tensors[name] - k // 32, case.tensors[name]).astype(np.int32)
    yield case


def cases():
    yield from variants()
    yield from places()
    yield from symmetric_zeros()
    yield from negative_groups()
    yield from rules()
    yield from rules_of_releases()
    yield from written_by_auto_round()
    yield from odd_rules()
    yield from heads()
    yield from contradictions()
    yield from faults()
    yield from index_lengths()
    yield from other_formats()
