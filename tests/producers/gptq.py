# SPDX-License-Identifier: Apache-2.0
"""GPTQ: codes in words along k, zero points in words along n, a group number for every column."""

from dataclasses import dataclass

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


def cases():
    yield from variants()
    yield from places()
    yield from symmetric_zeros()
