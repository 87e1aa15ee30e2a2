# SPDX-License-Identifier: Apache-2.0
"""Words of 3, 5, 6 and 7 bits: a stream of bits, or whole codes in every word, which often are as many
words. Padding, zero points, other modules and the library's version tell which."""

import json

import numpy as np
from compressed_matrices import EXPERT, args, case_of, config, integers
from compressed_tensors_library import bases
from words import pack_stream, pack_whole

FORMS = {"whole": pack_whole, "stream": pack_stream}
WRITTEN_BY = {"whole": "0.12.2", "stream": "0.20.1"}


def settings(bits, group, symmetric=True, version=None):
    out = config(args(bits, group_size=group, symmetric=symmetric))
    if version is not None:
        out["quantization_config"]["version"] = version
    return out


def only_up(case):
    kept = f"{EXPERT}up_proj"
    case.tensors = {name: tensor for name, tensor in case.tensors.items() if name.startswith((kept, "model.norm"))}
    case.values = {f"{kept}.weight": case.values[f"{kept}.weight"]}
    case.schemes = {kept: case.schemes[kept]}
    return case


def matrix(name, form, bits=3, n=48, k=40, group=40, zeros=None, version=None):
    scheme = f"compressed-tensors INT{bits}"
    block = settings(bits, group, zeros is None, version)
    return only_up(integers(name, block, scheme, (n, k), bits=bits, group=group, zeros=zeros, pack=FORMS[form]))


def forms():
    for bits, n, k, group in [(3, 48, 40, 40), (3, 32, 90, 30), (5, 48, 48, 16), (6, 30, 40, 40), (7, 48, 20, 20)]:
        for form in FORMS:
            for zeros in (None, "packed"):
                name = f"ct-words-{bits}-{n}x{k}-{form}-{zeros or 'symmetric'}"
                yield matrix(name, form, bits, n, k, group, zeros, WRITTEN_BY[form])
                # The words themselves tell as well as a version does.
                yield matrix(name + "-no-version", form, bits, n, k, group, zeros)


def zero_codes(case):
    """Codes without a bit set: neither form leaves a trace."""
    for name, tensor in case.tensors.items():
        if name.endswith("weight_packed"):
            module = name.rpartition(".")[0]
            wide = case.tensors[f"{module}.weight_scale"].astype(np.float64)
            case.tensors[name] = np.zeros_like(tensor)
            case.warnings = ("weights-zero",)
            case.values[f"{module}.weight"] = np.full(case.values[f"{module}.weight"].shape, -4.0) * wide
    return case


def contradicted():
    for form, version in [("whole", "0.20.1"), ("stream", "0.12.2")]:
        case = matrix(f"ct-words-fault-version-{form}", form, version=version)
        case.faults, case.said = ("config-version",), (f'version "{version}"',)
        yield case
    for version in (None, "x", "0.17.2.a20260101", "0."):
        case = zero_codes(matrix(f"ct-words-fault-untold-{version}", "stream", version=version))
        case.faults, case.said, case.refused = ("module-unreadable",), ("neither these, nor other modules, nor a version",), True
        yield case
    case = zero_codes(matrix("ct-words-fault-open-old", "stream", version="0.17.1"))
    case.faults, case.said, case.refused = ("module-unreadable",), ('version "0.17.1"',), True
    yield case
    for version in ("0.18.0", "1.2"):
        yield zero_codes(matrix(f"ct-words-zero-codes-{version}", "stream", version=version))
    case = matrix("ct-words-fault-both-kinds", "whole", zeros="packed")
    case.tensors |= {name: part for name, part in matrix("stream", "stream", zeros="packed").tensors.items() if name.endswith("up_proj.weight_zero_point")}
    case.faults, case.said, case.refused = ("module-unreadable",), ("fit neither",), True
    yield case


def siblings():
    """Codes that leave both forms open, beside a matrix whose words are as many as one form has."""
    for form in FORMS:
        case = zero_codes(matrix(f"ct-words-siblings-{form}", form))
        other = matrix("other", form, n=40, k=64, group=32)
        part = f"{EXPERT}down_proj"
        case.tensors |= {name.replace("up_proj", "down_proj"): tensor for name, tensor in other.tensors.items() if "up_proj" in name}
        case.values[f"{part}.weight"] = other.values[f"{EXPERT}up_proj.weight"]
        case.config["quantization_config"]["config_groups"]["group_1"] = {"targets": [part], "weights": args(3, group_size=32)}
        if form == "whole":
            case.faults, case.said, case.refused = ("module-unreadable",), ("other modules hold whole codes",), True
        yield case


def cut():
    """A word short of whole codes is as many words as a stream has."""
    for version in ("0.17.1", "0.8.1"):
        case = matrix(f"ct-words-fault-cut-{version}", "whole", n=44, k=96, group=32, version=version)
        part = f"{EXPERT}up_proj.weight_packed"
        case.tensors[part] = np.ascontiguousarray(case.tensors[part][:, :-1])
        case.faults, case.said, case.refused, case.values = ("module-unreadable",), ("words are missing",), True, {}
        yield case
    for case in bases():
        if case.name == "ct-library-0.17.1-int3-asym":
            yield from cut_bases(case)


def cut_bases(base):
    """Here packed zero points tell, whatever the version says."""
    for version in ("0.17.1", "0.20.1", None, "x"):
        settings = json.loads(json.dumps(base.config))
        settings["quantization_config"]["version"] = version
        part = next(name for name in base.tensors if name.endswith("weight_packed"))
        case = case_of(f"ct-words-fault-cut-asym-{version}", {}, settings, "", faults=("module-unreadable",), refused=True)
        case.tensors = base.tensors | {part: np.ascontiguousarray(base.tensors[part][:, :-1])}
        yield case


def cases():
    yield from forms()
    yield from contradicted()
    yield from siblings()
    yield from cut()
