# SPDX-License-Identifier: Apache-2.0
"""Lists of modules that stay as they are count under all their names, whoever wrote the config."""

from plain_matrices import KINDS, faulty, model

KEYS = ["ignore", "exclude_modules", "exclude", "modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules"]
PARTS = ["self_attn.q_proj", "self_attn.o_proj"]


def listed(name, kind, key, plain=()):
    case = model(name, kind, PARTS, plain)
    block = dict(case.config["quantization_config"])
    first = next((block.pop(own) for own in KEYS if own in block), None)
    block[key] = [*(first or []), *(f"model.layers.1.{part}" for part in PARTS)]
    case.config = {"quantization_config": block}
    return case


def cases():
    for kind in KINDS:
        for key in KEYS:
            yield listed(f"list-{kind}-{key}", kind, key, [f"layers.1.{part}" for part in PARTS])
            case = listed(f"list-{kind}-{key}-quantized", kind, key)
            case.faults, case.said = ("config-excludes-quantized",), ("model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.o_proj")
            yield case
            yield faulty(listed(f"list-{kind}-{key}-more", kind, key, ["layers.1.self_attn", "layers.2.self_attn.q_proj"]), "layers.2.self_attn.q_proj")
