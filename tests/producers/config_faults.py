# SPDX-License-Identifier: Apache-2.0
"""Lists of modules in configs, and configs that contradict each other or are left over."""

import copy

import numpy as np
from case import e4m3, random, with_fault
from small_model import ATTENTION, EXCLUDED, HIDDEN, block, modelopt_model, plain_model, second_layer


PREFIXES = ("", "model.", "language_model.", "model.language_model.", "language_model.model.")


def other_prefixes():
    """Entries and tensors that differ in a wrapper's prefix name the same modules."""
    for in_list in PREFIXES:
        for in_file in PREFIXES:
            case = modelopt_model(f"prefix-list-{in_list}-file-{in_file}".replace(".", "-"))
            case.tensors = {name.replace("model.", in_file, 1): value for name, value in case.tensors.items()}
            layers = [f"{in_list}layers.*.self_attn.{name}_proj" for name in "qk"]
            layers += [f"{in_list}layers.0.self_attn.v_proj", f"*{in_list}layers.0.self_attn.o_proj"]
            block(case, ignore=["lm_head", f"{in_list}layers.?.mlp.gate", *layers])
            case.config["model_type"] = "another_moe"
            yield case
            mixed = copy.deepcopy(case)
            mixed.name += "-mixed"
            layers = {f"{in_list}layers.0.mlp.experts": {"quant_algo": "NVFP4"}}
            mixed.config["quantization_config"] = {
                "quant_method": "modelopt",
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": layers,
            }
            yield mixed


def wide(name):
    """Layers 1 and 10 to 12; the entry names the first."""
    case = plain_model(name)
    case.config["num_hidden_layers"] = 13
    for layer in range(1, 13):
        second_layer(case, layer)
    case.config["quantization_config"] = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": ["lm_head", *(f"model.layers.{n}.*" for n in range(13))],
    }
    case.warnings = ("config-producer",)
    return case


def too_wide(case):
    listed = ["lm_head", "model.layers.1*", *(f"model.layers.{n}.*" for n in (0, *range(2, 10)))]
    block(case, ignore=listed)


def ignore_ct(pattern):
    def apply(case):
        case.config["quantization_config"] = {
            "quant_method": "compressed-tensors",
            "format": "nvfp4-pack-quantized",
            "config_groups": {},
            "ignore": [pattern],
        }

    return apply


def generic_lists():
    """What exporters exclude in every model: nothing of it need be there."""
    modelopt = modelopt_model("generic-list-modelopt")
    names = ["*lm_head*", "*proj_out.*", "*block_sparse_moe.gate*", "*router*", "*mlp.shared_expert_gate.*", "*linear_attn.conv1d*"]
    block(modelopt, ignore=[*EXCLUDED, *names, "*mixer.conv1d*", "*output_layer*", "output.*", "nn.BatchNorm1d"])
    modelopt.notes = ("pattern-unmatched",)
    yield modelopt
    names = ["re:.*shared_expert_gate$", "re:.*block_sparse_moe\\.gate", "re:visual.*", "re:model.visual.*", "re:.*vision_tower.*"]
    compressed = modelopt_model("generic-list-compressed-tensors")
    ignored = ["lm_head", "re:.*mlp\\.gate$", "re:.*self_attn.*", *names, "re:multi_modal_projector.*", "re:.*mtp.*"]
    compressed.config["quantization_config"] = {"quant_method": "compressed-tensors", "ignore": ignored}
    compressed.notes = ("pattern-unmatched",)
    compressed.warnings = ("config-producer",)
    yield compressed
    # Of parts and layers that the model or its release lacks, as published lists have them.
    absent = ["model.layers.7.mlp.gate", "re:.*layers.9.*router", "re:.*kv_b_proj$", "re:.*mixer.*", "re:.*in_proj_[ab]$"]
    absent += ["Linear", "mtp.fc", "model.visual.merger.linear_fc1", "model.decoder.self_attn.o_proj"]
    for number, entry in enumerate([*absent, "model.layers.0.self_attn.indexers_proj"]):
        case = plain_model(f"no-fault-list-absent-{number}")
        ignore_ct(entry)(case)
        case.notes = ("pattern-unmatched",)
        case.warnings = ("config-producer", "module-unreadable", "layer-not-runnable")
        yield case
    for name, entry in [("typo", "re:.*self_atn.*"), ("swapped", "re:.*self_attn.o_porj"), ("part", "experts.0.down_proj")]:
        case = plain_model(f"fault-list-{name}")
        ignore_ct(entry)(case)
        case.faults = ("pattern-unmatched",)
        yield case
    # A router that is not there is no matter; matrices that are plain against the config are.
    contradicted = modelopt_model("fault-list-contradicted")
    block(contradicted, ignore=["lm_head", "model.layers.0.mlp.gate", "*mixer.in_proj*"])
    contradicted.faults = ("pattern-unmatched", "config-expects-quantized")
    yield contradicted
    behind = modelopt_model("no-fault-list-behind")
    block(behind, ignore=[*EXCLUDED, "model.layers.1*", "model.layers.1.eh_proj"])
    behind.notes = ("pattern-unmatched",)
    yield behind


RULES = {
    "gptq": ("dynamic", "-:{}", "model\\.layers\\.1", "model\\.layers\\.1\\."),
    "auto-round": ("extra_config", "{}", "layers\\.1.*", "layers\\.1\\."),
    "quark": ("layer_quant_config", "{}", "model.layers.1*", "model.layers.1.*"),
}


SLIPS = {"gptq": "model\\.layrs\\.1\\.", "auto-round": "layrs\\.1\\.", "quark": "model.layrs.1.*"}


def module_rules():
    """Rules of single modules: of a layer alone, of more layers than the number says, of nothing."""
    for method, (key, form, wide_entry, right) in RULES.items():
        for entry, rule in [(right, None), (wide_entry, "pattern-wide"), (SLIPS[method], "pattern-unmatched"), ("vanished.layer*", "")]:
            case = wide(f"{'fault' if rule else 'no-fault'}-rule-{method}-{'absent' if rule == '' else rule}")
            rules = {form.format(entry): {"bits": 16}}
            case.config["quantization_config"] = {"quant_method": method, "bits": 4, "group_size": 128, key: rules}
            # The weights are plain all the same.
            case.warnings = ("config-producer", "config-expects-quantized", "module-unreadable", "layer-not-runnable")
            case.faults = (rule,) if rule else ()
            case.notes = ("pattern-unmatched",) if rule == "" else ()
            yield case


def stale_configs():
    """A release that was quantized again, with the first quantizer's config left in config.json."""
    case = modelopt_model("stale-config")
    hf_quant = {"quant_algo": "W4A16_NVFP4", "exclude_modules": list(EXCLUDED)}
    case.files["hf_quant_config.json"] = {"producer": {"name": "modelopt"}, "quantization": hf_quant}
    case.config["expert_dtype"] = "fp4"
    case.config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    case.notes = ("config-methods-differ",)
    yield case
    # Attention as it was, in FP8: each config describes its part.
    parts = copy.deepcopy(case)
    parts.name = "stale-config-of-a-part"
    for name, n in [("q", 32), ("k", 16), ("v", 16), ("o", HIDDEN)]:
        module = f"{ATTENTION}{name}_proj"
        del parts.tensors[module + ".weight"]
        parts.tensors[module + ".weight"] = e4m3(random(module).normal(0, 50, (n, HIDDEN)))
        parts.tensors[module + ".weight_scale_inv"] = np.full((1, 1), 0.001, np.float32)
    yield parts
    neither = modelopt_model("fault-two-stale-configs")
    neither.config["quantization_config"] = {"quant_method": "fp8"}
    neither.files["quantize_config.json"] = {"bits": 4, "group_size": 128}
    neither.faults = ("config-methods-differ", "config-producer")
    yield neither


def cases():
    yield from stale_configs()
    yield from generic_lists()
    yield from other_prefixes()
    yield from module_rules()
    yield plain_model("no-fault-plain")
    yield wide("no-fault-layers")
    yield with_fault(wide, "layers", "pattern-wide", too_wide)
    yield with_fault(plain_model, "plain", "pattern-invalid", ignore_ct("re:\\p{L}"))
    yield with_fault(plain_model, "plain", "pattern-limit", ignore_ct("re:(.*.*)*gate_proj_b"))
