#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every field of every producer's quantization config, with a value of every kind that it has not.

The small checkpoints without a fault that together have every field are checked with one value changed at
a time. What `check` says then must differ by an error, or by a finding that names the field.

usage: config_mutations.py FEWBIT [NAME…]     only checkpoints whose name contains a NAME
"""

import copy
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import run

BLOCKS = ("quantization_config", "compression_config", "quantization", "quant_config", "quantize_config")
FILES = ("hf_quant_config.json", "quantize_config.json", "quant_config.json", "quant_cfg.json", "quantization_config.json")
FILES += ("quant_model_description.json",)
WRONG = {
    "null": None,
    "true": True,
    "number": 7,
    "fraction": 1.5,
    "text": "odd",
    "list": [],
    "list of text": ["odd"],
    "object": {},
    "object of text": {"odd": "odd"},
}
# Null is what the writers of these keys store where there is none.
NULL_IS_NONE = {
    *("act_bits", "actorder", "algo_config", "autoround_version", "awq_block_size", "bias", "block_name_to_quantize"),
    *("block_structure", "ch_axis", "exclude", "exclude_modules", "export", "extra_config", "format", "global_compression_ratio"),
    *("group_size", "ignore", "ignored_layers", "input_activations", "input_tensors", "kv_cache_group", "kv_cache_quant_algo"),
    *("kv_cache_quant_config", "kv_cache_scheme", "layer_quant_config", "layer_type_quant_config", "llm_int8_skip_modules"),
    *("meta", "modules_in_block_to_quantize", "modules_to_not_convert", "moe_sparsity_config", "observer", "observer_kwargs"),
    *("output_activations", "output_tensors", "pack_method", "producer", "provider", "qscheme", "quant_algo", "quantized_layers"),
    *("quantizer", "scale_dtype", "scale_format", "sparsity_config", "strategy", "sym", "desc_act", "symmetric"),
    *("transform_config", "version", "weight", "weight_block_size", "weight_format", "weights", "zp_dtype", "dynamic"),
    *("quant_method", "lm_head", "model_quant_type", "quantization", "has_zero_point", "pre_quant_scale"),
    *("kept_format", "model.layers.0.mlp.up_proj.weight"),
}
# Values of another kind that these keys may have too.
ALSO = {
    "actorder": ("true",),
    "algo_config": ("object", "text"),
    "dynamic": ("true",),
    "block_name_to_quantize": ("list", "list of text"),
    "modules_in_block_to_quantize": ("text",),
    "global_compression_ratio": ("number", "fraction"),
    "group_size": ("number",),  # AutoRound's pair of sides, and null
    "quantizer": ("text",),
    "observer": ("text",),
    "scale_dtype": ("text",),
    "fmt": ("text",),
    "kv_cache_quant_algo": ("text",),
    "moe_sparsity_config": ("object", "object of text"),
    "kv_cache_scheme": ("object", "object of text"),
    "transform_config": ("object", "object of text"),
}
# Values of what was null, which empty lists and objects stand for as well.
FOR_NULL = {
    "ignored_layers": ("list", "list of text"),
    "exclude_modules": ("list", "list of text", "object"),
    "modules_to_not_convert": ("list", "list of text"),
    "kv_cache_quant_algo": ("list", "object"),
    "bits": ("list", "object"),
}
# Fields that mean nothing to the weights, whatever they hold; by the end of their path.
MEANS_NOTHING = {
    ("algo_config", 0, "group_size"): "of the search for scales, not of what it wrote",
}
KINDS = {type(None): "null", bool: "flag", int: "number", float: "number", str: "text", list: "list", dict: "object"}


def fields(value, path=()):
    """Paths of all values below, and the values."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key), inner
            yield from fields(inner, (*path, key))
    if isinstance(value, list):
        for number, inner in enumerate(value):
            if isinstance(inner, (dict, list)):
                yield from fields(inner, (*path, number))
            elif number == 0:  # one of a list of names stands for all
                yield (*path, number), inner


def blocks(case):
    """Of the quantization: (file, path to the block, block)."""
    for key in BLOCKS:
        if isinstance(case.config, dict) and isinstance(case.config.get(key), dict):
            yield "config.json", (key,), case.config[key]
    for name, content in case.files.items():
        content = parsed(content)
        if name in FILES and isinstance(content, dict):
            yield name, (), content


def parsed(content):
    if not isinstance(content, str):
        return content
    try:
        return json.loads(content)
    except ValueError:
        return None


def method_of(block):
    return str(block.get("quant_method", "")) if isinstance(block, dict) else ""


def fields_of(case):
    """By what tells them from others (method, file, path without numbers, kind): file, path, value."""
    out = {}
    for file, start, block in blocks(case):
        for path, value in fields(block):
            full = (*start, *path)
            words = tuple(part if isinstance(part, str) else "[]" for part in full)
            out[method_of(block), file, words, KINDS[type(value)]] = (file, full, value)
    return out


def chosen_cases():
    """Few that have every field between them, each with those that no other has."""
    cases = [case for case in run.all_cases() if not case.faults and not case.named and not case.refused]
    wanted = [(fields_of(case), case) for case in cases]
    wanted.sort(key=lambda one: (-len(one[0]), one[1].name))
    seen = set()
    for have, case in wanted:
        new = [field for key, field in have.items() if key not in seen]
        seen.update(have)
        if new:
            yield case, new


def changed(case, file, path, value):
    case = copy.copy(case)
    case.config, case.files = copy.deepcopy(case.config), copy.deepcopy(case.files)
    if file != "config.json":
        case.files[file] = parsed(case.files[file])
    at = case.config if file == "config.json" else case.files[file]
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    return case


def same_kind(old, new):
    if isinstance(old, float) or isinstance(new, float):
        return isinstance(old, float)
    return KINDS[type(old)] == KINDS[type(new)]


def allowed(path, old, name):
    key = path[-1]
    if name == "null" and key in NULL_IS_NONE:
        return True
    if name in ALSO.get(key, ()) or (old is None and name in FOR_NULL.get(key, ())):
        return True
    return any(path[-len(end) :] == end for end in MEANS_NOTHING)


def configs_written(case, folder):
    (folder / "config.json").write_text(json.dumps(case.config))
    for name, content in case.files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))


def report_of(program, folder):
    """None: an error. Else the texts of all findings."""
    _, report = run.fewbit(program, "check", folder, "--json")
    if "findings" not in report:
        return None
    return {" | ".join((f["level"], f["rule"], f["where"], f["found"], f["expected"])) for f in report["findings"]}


def names(text, file, path, value):
    """An error; or a finding with the key; or, of a whole block, with the file and the value."""
    level, rule, where, found, _ = text.split(" | ", 4)
    key = [part for part in path if isinstance(part, str)][-1]
    shown = json.dumps(value, separators=(",", ":"))
    return level == "error" or key in text or (rule == "config-value" and where.startswith(file) and found == shown)


def silent(program, case, wanted, folder):
    case.write(folder)
    before = report_of(program, folder)
    for file, path, old in wanted:
        for name, value in WRONG.items():
            if same_kind(old, value):
                continue
            if allowed(path, old, name):
                continue
            configs_written(changed(case, file, path, value), folder)
            after = report_of(program, folder)
            if after is None:
                continue
            new = after - (before or set())
            if any(names(text, file, path, value) for text in new):
                continue
            how = "nothing" if not new else f"not the field, but {sorted(new)[0][:300]}"
            yield file, path, old, name, how


def tried(program, case, wanted):
    with tempfile.TemporaryDirectory() as scratch:
        return case.name, list(silent(program, case, wanted, Path(scratch) / "checkpoint"))


def main():
    program, *names = sys.argv[1:]
    cases = [one for one in chosen_cases() if not names or any(name in one[0].name for name in names)]
    print(len(cases), "checkpoints,", sum(len(wanted) for _, wanted in cases), "fields")
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, problems in pool.map(lambda one: tried(program, *one), cases):
            failed += len(problems)
            for file, path, old, value, how in problems:
                print(f"{name}: {file} {'.'.join(map(str, path))} = {json.dumps(old)[:60]} as {value}: {how}")
    print(f"{failed} values are read without a word")
    sys.exit(not cases or failed > 0)


if __name__ == "__main__":
    main()
