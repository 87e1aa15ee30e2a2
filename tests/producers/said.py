# SPDX-License-Identifier: Apache-2.0
"""Faults whose message must say what is there: the key of the file, both numbers, the worst case."""

import numpy as np
from case import e4m3
from files import FIRST, SECOND, damage, native_release, sharded
from gguf_files import GgufCase, moe
from small_model import EXPERT, INNER, modelopt_model, plain_model

INF, NAN = float("inf"), float("nan")


def saying(case, rules, *said, notes=()):
    case.faults = (rules,) if isinstance(rules, str) else rules
    case.said, case.notes = said, notes
    return case


def indexes():
    """The index's metadata and total size."""
    for name, metadata, rule, said in [
        ("list", [1, 2], "index-metadata", "metadata is [1,2]"),
        ("text", "x", "index-metadata", 'metadata is "x"'),
        ("total-text", {"total_size": "many"}, "index-total-size", 'total_size is "many"'),
        ("total-negative", {"total_size": -4}, "index-total-size", "total_size is -4"),
        ("total-fraction", {"total_size": 1.5}, "index-total-size", "total_size is 1.5"),
        ("total-wrong", {"total_size": 7}, "index-total-size", "total_size 7"),
    ]:
        case = sharded(f"fault-index-{name}")
        case.index["metadata"] = metadata
        yield saying(case, rule, said)
    for name, metadata in [("null", None), ("empty", {}), ("without-total", {"total_size": None})]:
        case = sharded(f"index-{name}")
        case.index["metadata"] = metadata
        yield case


def renamed(name, first, second):
    case = sharded(name)
    names = {FIRST: f"model-{first}.safetensors", SECOND: f"model-{second}.safetensors"}
    case.shards = {names[file]: tensors for file, tensors in case.shards.items()}
    case.index["weight_map"] = {tensor: names[file] for tensor, file in case.index["weight_map"].items()}
    return case


def shard_numbers():
    for name, first, second, said in [
        ("none", "00000-of-00000", "00001-of-00000", "shard 0 of 0"),
        ("behind", "00001-of-00001", "00002-of-00001", "shard 2 of 1"),
        ("far", "00001-of-00002", "99999-of-00002", "shard 99999 of 2"),
        ("counts", "00001-of-00002", "00002-of-00003", '3 shards by the name "model-00002-of-00003'),
        ("from-zero", "00000-of-00002", "00002-of-00002", "shards 0 and 2 of 2"),
    ]:
        yield saying(renamed(f"fault-shard-number-{name}", first, second), "shard-number", said)
    yield renamed("shards-from-zero", "00000-of-00002", "00001-of-00002")
    lone = renamed("fault-shard-number-alone", "00001-of-00002", "00002-of-00003")
    lone.index = None
    yield saying(lone, ("expected model.safetensors",), "3 shards by the name", '2, as "model-00001-of-00002')
    # No part of the checkpoint.
    stale = sharded("shard-number-stale")
    damage(lambda folder: (folder / "model-00001-of-00007.safetensors").write_bytes((folder / FIRST).read_bytes()))(stale)
    stale.notes, stale.said = ("extra-file", "shard-number"), ("7 shards by the name",)
    yield stale


def native_keys():
    """params.json's own names."""
    for name, params, said in [
        ("layers", {"n_layers": INF}, "n_layers Infinity"),
        ("dim", {"dim": "x"}, 'dim "x"'),
        ("experts", {"moe": {"num_experts": -1}}, "moe.num_experts -1"),
        ("inner", {"moe": {"num_experts": 4, "expert_hidden_dim": 1.5}}, "moe.expert_hidden_dim 1.5"),
    ]:
        yield saying(native_release(f"fault-native-key-{name}", **params), "config-unreadable", said)
    yield saying(native_release("fault-native-moe", moe=[1]), "config-section", "moe is [1]")


def sections():
    """What is no object where one belongs."""
    for key in ("text_config", "vision_config", "rope_parameters"):
        for value, said in [(NAN, "NaN"), ([1, INF], "[1,Infinity]"), ("x", '"x"')]:
            case = plain_model(f"fault-section-{key}-{type(value).__name__}")
            case.config[key] = value
            yield saying(case, "config-section", f"{key} is {said}")
    case = plain_model("fault-infinity-in-a-list")
    case.config["eos_token_id"] = [1, -INF]
    yield saying(case, "config-unreadable", "eos_token_id is [1,-Infinity]")


def pattern_reasons():
    """Also of rules for codes that are not there."""
    for method, key, rule, said in [
        ("compressed-tensors", "ignore", ["re:a("], "missing closing parenthesis at byte 2"),
        ("gptq", "dynamic", {"+:a(": {"bits": 8}}, "missing closing parenthesis at byte 2"),
        ("auto-round", "extra_config", {"layers.[b-a]": {"bits": 8}}, "range out of order in character class"),
    ]:
        case = plain_model(f"fault-pattern-reason-{method}")
        case.config["quantization_config"] = {"quant_method": method, "bits": 4, "group_size": 128, key: rule}
        yield saying(case, "pattern-invalid", said)


def clip(folder, file, damaged):
    other = GgufCase("other", {"v.patch_embd.weight": ("F32", np.ones((4, 4), np.float32))}, architecture="clip")
    other.write(folder / "other")
    raw = (folder / "other" / "model.gguf").read_bytes()
    (folder / file).write_bytes(raw[:40] if damaged else raw)
    (folder / "other" / "model.gguf").unlink()
    (folder / "other").rmdir()


def beside(name, damaged=False, **files):
    """A GGUF model, and clip files under these names."""
    case = moe(name, "Q8_0")
    write = case.write

    def write_all(folder):
        write(folder)
        for file in files.values():
            clip(folder, file, damaged)

    case.write = write_all
    return case


def gguf_folders():
    broken = beside("fault-gguf-broken-projector", True, a="mmproj-F16.gguf")
    yield saying(broken, "extra-file", "can't be read")
    other = beside("fault-gguf-broken-other", True, a="other.gguf")
    other.schemes = {}
    yield saying(other, ("1 GGUF model, 1 files that can't be read",))
    two = beside("fault-gguf-two-projectors", a="mmproj-F16.gguf", b="mmproj-F32.gguf")
    write = two.write

    def without_model(folder):
        write(folder)
        (folder / "model.gguf").unlink()

    two.write, two.schemes = without_model, {}
    yield saying(two, ("0 GGUF models, 2 projectors",))


def worst_of_a_group():
    """Experts 0 and 2 have one bad scale, expert 1 has seven, expert 3 two."""
    case = modelopt_model("fault-worst-scales")
    for expert, bad in enumerate((1, 7, 1, 2)):
        name = EXPERT.format(expert, "up") + ".weight_scale"
        scales = np.array(case.tensors[name], np.float32)
        scales.reshape(-1)[:bad] = np.nan
        case.tensors[name] = e4m3(scales)
    yield saying(case, "scale-nan", f"7 of {INNER * 2} scales are NaN", EXPERT.format(1, "up"))
    case = modelopt_model("fault-worst-factor")
    for expert, factor in enumerate((2048, 65536, 4096, 2048)):
        case.tensors[EXPERT.format(expert, "down") + ".weight_scale_2"] = np.float32(factor)
    yield saying(case, "global-scale-direction", "global factor 65536", EXPERT.format(1, "down"))


def minus_zeros():
    for name, value in [("all", [-0.0, -0.0]), ("mixed", [0.0, -0.0])]:
        for dtype in ("bfloat16", "float16", "float32"):
            case = plain_model(f"fault-minus-zero-{name}-{dtype}")
            tensor = EXPERT.format(1, "up") + ".weight"
            kind = case.tensors[tensor].dtype if dtype == "bfloat16" else dtype
            case.tensors[tensor] = np.resize(value, case.tensors[tensor].shape).astype(kind)
            case.warnings = ("experts-mixed", "fused-schemes-differ")
            yield saying(case, "weights-zero", tensor)
    # The sign bit of a low byte is no sign.
    case = plain_model("minus-zero-in-low-bytes")
    tensor = EXPERT.format(1, "up") + ".weight"
    raw = np.full(case.tensors[tensor].shape, 0x0080, np.uint16)
    case.tensors[tensor] = raw.view(case.tensors[tensor].dtype)
    yield case


def cases():
    yield from indexes()
    yield from shard_numbers()
    yield from native_keys()
    yield from sections()
    yield from pattern_reasons()
    yield from gguf_folders()
    yield from worst_of_a_group()
    yield from minus_zeros()
