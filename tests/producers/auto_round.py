# SPDX-License-Identifier: Apache-2.0
"""AutoRound with integer codes: GPTQ's and AWQ's layouts, whose zero points its formats tell."""

import awq
import gptq
import numpy as np
from case import Case, bf16, random
from gptq import Form

SIZES = awq.SIZES


def config(packing_format=None, **more):
    block = {"quant_method": "auto-round", "bits": 4, "group_size": 32, "sym": True, "data_type": "int"}
    if packing_format:
        block["packing_format"] = packing_format
    return {"quantization_config": block | more}


def whole(name, forms, block):
    """forms: of each projection, or one for all; None is plain, "awq" is AWQ GEMM."""
    rng = random(name)
    case = Case(name, {}, block, warnings=("fused-schemes-differ",) if isinstance(forms, dict) else ())
    for projection, n, k in SIZES:
        module = f"model.layers.0.mlp.{projection}_proj"
        form = forms[projection] if isinstance(forms, dict) else forms
        case.schemes[module] = f"AutoRound INT{getattr(form, 'bits', 4)}"
        if form is None:
            case.tensors[f"{module}.weight"] = bf16(rng.normal(size=(n, k)))
            case.schemes[module] = "bf16"
            continue
        if form == "awq":
            parts, values, _ = awq.matrix(rng, n, k, "gemm", 32)
        else:
            parts, values = gptq.matrix(rng, n, k, form)
        case.values[f"{module}.weight"] = values
        case.tensors |= {f"{module}.{suffix}": part for suffix, part in parts.items()}
    return case


def formats():
    for name in ("auto_round:auto_gptq", "auto_round:gptq"):
        yield whole(f"auto-round-{name[11:]}", Form(), config(name))
        case = whole(f"auto-round-{name[11:]}-asym", Form(sym=False), config(name, sym=False))
        case.warnings = ("zeros-wrap",)
        yield case
    for name in ("auto_round", "auto_round:gptqmodel"):
        form = Form(sym=False, minus=False, g_idx=False)
        yield whole(f"auto-round-{name.replace(':', '-')}-asym", form, config(name, sym=False))
    for name in ("auto_round:auto_awq", "auto_round:awq"):
        yield whole(f"auto-round-{name[11:]}", "awq", config(name, sym=False))
    for bits in (2, 3, 8):
        yield whole(f"auto-round-{bits}bit", Form(bits), config("auto_round:auto_gptq", bits=bits))
    yield whole("auto-round-without-format", Form(g_idx=False), config())
    yield whole("auto-round-without-format-v2", Form(minus=False), config())


def layers():
    """extra_config: by name or regular expression, 16 bits leave a module alone."""
    extra = {
        "model.layers.0.mlp.gate_proj": {"bits": 16},
        ".*up.*": {"bits": 8, "group_size": 64},
        "model.layers.0.mlp.up": {"bits": 2},  # a name, not a prefix
    }
    forms = {"gate": None, "up": Form(8, group_size=64), "down": Form()}
    case = whole("auto-round-extra-config", forms, config("auto_round:auto_gptq", extra_config=extra))
    case.warnings += ("pattern-unmatched",)
    yield case
    mixed = {"gate": Form(), "up": Form(sym=False), "down": Form()}
    case = whole(
        "auto-round-extra-config-sym",
        mixed,
        config("auto_round:auto_gptq", extra_config={"model.layers.0.mlp.up_proj": {"sym": False}}),
    )
    case.warnings += ("zeros-wrap",)
    yield case
    # Blocks outside the list stay plain.
    case = whole("auto-round-blocks", Form(), config("auto_round:auto_gptq", block_name_to_quantize="model.layers"))
    case.tensors["lm_head.weight"] = bf16(np.ones((64, 64)))
    yield case
    # Of a list of lists each counts as what its names have in common.
    for number, (blocks, excluded) in enumerate([
        ([["model.layers.1", "model.layers.2"]], False),
        ([["model.layers.10", "model.layers.11"]], False),
        ([["model.visual.blocks.0", "model.visual.blocks.1"], ["model.layers.1", "model.layers.2"]], False),
        ([["model.layers.1"]], True),
        ([["model.visual.blocks.0", "model.visual.blocks.1"]], True),
        (["model.layers.1", "model.layers.2"], True),
        ([["model.visual.blocks.0", "layers.1"]], True),
    ]):
        case = whole(f"auto-round-blocks-{number}", Form(), config("auto_round:auto_gptq", block_name_to_quantize=blocks))
        case.faults = ("config-excludes-quantized",) if excluded else ()
        yield case
    case = whole("auto-round-lm-head", Form(), config("auto_round:auto_gptq", extra_config={"lm_head": {"bits": 4}}))
    parts, case.values["lm_head.weight"] = gptq.matrix(random("head"), 64, 64, Form())
    case.tensors |= {f"lm_head.{suffix}": part for suffix, part in parts.items()}
    yield case


def signed_scales():
    """Symmetric scales may be negative: the largest weight then has the lowest code."""
    case = whole("auto-round-negative-scales", Form(), config("auto_round:auto_gptq"))
    for projection, _, _ in SIZES:
        module = f"model.layers.0.mlp.{projection}_proj"
        case.tensors[f"{module}.scales"] = -case.tensors[f"{module}.scales"]
        case.values[f"{module}.weight"] = -case.values[f"{module}.weight"]
    return case


def faults():
    extra = {"model.layers.0.mlp.up_proj": {"bits": 16}}
    case = whole("auto-round-excludes-quantized", Form(), config("auto_round:auto_gptq", extra_config=extra))
    case.faults = ("config-excludes-quantized",)
    yield case
    forms = {"gate": Form(), "up": None, "down": Form()}
    case = whole("auto-round-expects-quantized", forms, config("auto_round:auto_gptq"))
    case.faults = ("config-expects-quantized",)
    yield case
    case = whole("auto-round-other-bits", Form(8), config("auto_round:auto_gptq"))
    case.faults = ("config-bits",)
    yield case
    for kind in ("mx_fp", "nv_fp4", "fp8"):
        case = whole(f"auto-round-type-{kind}", Form(), config("auto_round:auto_gptq", data_type=kind))
        case.faults, case.said = ("config-format",), (f'data_type "{kind}"',)
        yield case
    extra = {"model.layers.0.mlp.up_proj": {"data_type": "mx_fp"}}
    case = whole("auto-round-type-of-one", Form(), config("auto_round:auto_gptq", extra_config=extra))
    case.faults, case.said = ("config-format",), ("model.layers.0.mlp.up_proj",)
    yield case
    for kind in ("int_sym", "fp8_to_int_sym", None):
        yield whole(f"auto-round-type-{kind}", Form(), config("auto_round:auto_gptq", data_type=kind))
    case = whole("auto-round-awq-by-name-only", Form(), config("auto_round:auto_awq"))
    case.faults = ("config-format",)
    yield case
    case = whole("auto-round-asym-without-format", Form(sym=False), config(sym=False))
    case.schemes = {}
    case.faults = ("module-unreadable",)
    yield case


def cases():
    yield from formats()
    yield from layers()
    yield signed_scales()
    yield from faults()
