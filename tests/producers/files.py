# SPDX-License-Identifier: Apache-2.0
"""Files of a checkpoint that are damaged or do not fit together."""

import copy
import json
from dataclasses import dataclass, field

import numpy as np
from case import Case, bf16, with_fault, write_safetensors
from small_model import fp8_model, plain_model

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@dataclass
class Files(Case):
    """A checkpoint of several files; shards: name -> names of tensors."""

    shards: dict = field(default_factory=dict)
    index: dict | None = None
    damage: object = None  # called with the folder at the end

    def write(self, folder):
        super().write(folder)
        if self.shards:
            (folder / "model.safetensors").unlink()
        for file, names in self.shards.items():
            write_safetensors(folder / file, {name: self.tensors[name] for name in names})
        if self.index is not None:
            (folder / "model.safetensors.index.json").write_text(json.dumps(self.index))
        if self.damage:
            self.damage(folder)


def sharded(name):
    base = plain_model(name)
    names = sorted(base.tensors)
    half = len(names) // 2
    shards = {FIRST: names[:half], SECOND: names[half:]}
    total = sum(np.asarray(base.tensors[name]).nbytes for name in names)
    return Files(
        name,
        base.tensors,
        base.config,
        shards=shards,
        index={
            "metadata": {"total_size": total},
            "weight_map": {tensor: file for file, tensors in shards.items() for tensor in tensors},
        },
    )



def damage(function):
    return lambda case: setattr(case, "damage", function)


def bytes_of_second(change):
    """change: the bytes of the second shard to others."""

    def apply(folder):
        file = folder / SECOND
        file.write_bytes(change(file.read_bytes()))

    return damage(apply)


def edit_header(file, edit):
    """edit: changes the header as an object; its result, if any, is the text in its place."""
    raw = file.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    members = json.loads(raw[8:end])
    text = edit(members) or json.dumps(members).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + raw[end:])


def header(edit):
    return damage(lambda folder: edit_header(folder / SECOND, edit))


def entry(**values):
    """The last tensor of the second shard says something else."""
    return header(lambda members: list(members.values())[-1].update(values))


def shift(by):
    """The last tensor begins, and ends, elsewhere."""

    def edit(members):
        last = list(members.values())[-1]
        last["data_offsets"] = [offset + by for offset in last["data_offsets"]]

    return edit


def hole(folder):
    edit_header(folder / SECOND, shift(2))
    with (folder / SECOND).open("ab") as file:
        file.write(b"xx")


def no_member(members):
    members[next(iter(members))] = []


def metadata_of_both(folder):
    for file, value in [(FIRST, "pt"), (SECOND, "np")]:
        edit_header(folder / file, lambda members, value=value: members.update(__metadata__={"format": value}))


def alone(folder):
    (folder / FIRST).unlink()
    (folder / "model.safetensors.index.json").unlink()


def leave_folder(case):
    names = case.index["weight_map"]
    names[next(iter(names))] = "../" + FIRST


FILE_FAULTS = {
    "index-shard-missing": damage(lambda folder: (folder / SECOND).unlink()),
    "index-tensor-missing": lambda c: c.index["weight_map"].update({"model.layers.0.ghost.weight": SECOND}),
    "index-tensor-unlisted": lambda c: c.index["weight_map"].pop("model.norm.weight"),
    "index-total-size": lambda c: c.index["metadata"].update(total_size=7),
    "weight_map": lambda c: c.index.pop("weight_map"),
    "tensor-twice": lambda c: c.shards[SECOND].append(c.shards[FIRST][0]),
    "extra-file": damage(lambda folder: write_safetensors(folder / "other.safetensors", {"a": bf16(np.ones(2))})),
    "shard-alone": damage(alone),
    "metadata-differs": damage(metadata_of_both),
    "data-incomplete": bytes_of_second(lambda raw: raw[:-1]),
    "data-size": bytes_of_second(lambda raw: raw + b"x"),
    "header-too-small": bytes_of_second(lambda raw: raw[:7]),
    "header-too-large": bytes_of_second(lambda raw: (10**8 + 1).to_bytes(8, "little") + raw[8:]),
    "header-length": bytes_of_second(lambda raw: (2**26).to_bytes(8, "little") + raw[8:]),
    "byte ": header(lambda members: b"{]"),  # the position in the text
    "header": header(lambda members: b"[]"),
    "entry": header(no_member),
    "metadata": header(lambda members: members.update(__metadata__={"format": 1})),
    "dtype": entry(dtype="BF61"),
    "shape": entry(shape=[-1]),
    "data_offsets": entry(data_offsets=[8, 0]),
    "overflow": entry(shape=[2**62, 4]),
    "misaligned": entry(dtype="F4", shape=[3, 5]),
    "size": entry(shape=[1]),
    "overlap": header(shift(-2)),
    "hole": damage(hole),
}


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def pointer(name):
    """A file whose data was not downloaded."""
    return damage(lambda folder: (folder / name).write_text(POINTER))


def pointers():
    for name, rule in [
        ("model.safetensors.index.json", "expected JSON text, this is a Git LFS pointer"),
        ("config.json", "expected JSON text, this is a Git LFS pointer"),
        (SECOND, "expected a safetensors file, this is a Git LFS pointer"),
        ("tokenizer.json", "Git LFS pointer"),
        ("tokenizer.model", "lfs-pointer"),
    ]:
        case = sharded(f"fault-files-pointer-{name}")
        pointer(name)(case)
        case.faults = (rule,) if name != "tokenizer.json" else ("tokenizer-unreadable",)
        yield case
    for name in ("chat_template.jinja", "merges.txt", "modeling_own.py", "processor_config.json"):
        case = sharded(f"fault-files-pointer-{name}")
        pointer(name)(case)
        case.faults = ("lfs-pointer",)
        yield case
    for name in ("banner.png", "README.pdf", "pytorch_model.bin", "model.gguf", "pytorch_model.bin.index.json"):
        case = sharded(f"files-pointer-{name}")
        pointer(name)(case)
        case.notes = ("lfs-pointer",)
        yield case


def native_index():
    """Mistral's own releases; beside the usual index they are not read."""
    case = sharded("files-consolidated-index")
    damage(lambda folder: (folder / "model.safetensors.index.json").rename(folder / "consolidated.safetensors.index.json"))(case)
    yield case
    broken = copy.deepcopy(case)
    broken.name = "fault-files-consolidated-index"
    broken.index["weight_map"]["model.layers.0.ghost.weight"] = SECOND
    broken.faults = ("index-tensor-missing",)
    yield broken
    both = sharded("files-two-indexes")
    damage(lambda folder: (folder / "consolidated.safetensors.index.json").write_text("{}"))(both)
    yield both


def native_release(name, **params):
    """params.json of Mistral in place of config.json."""
    case = fp8_model(name)
    config = case.config
    size = {native: config[usual] for native, usual in NATIVE.items() if usual in config}
    moe = {native: config[usual] for native, usual in NATIVE_MOE.items() if usual in config}
    quantization = {"quant_method": "fp8", **config["quantization_config"]}
    case.files["params.json"] = {**size, "moe": moe, "quantization": quantization} | params
    write = case.write

    def without_config(folder):
        write(folder)
        (folder / "config.json").unlink()

    case.write = without_config
    return case


NATIVE = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "hidden_dim": "intermediate_size",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "vocab_size": "vocab_size",
}
NATIVE_MOE = {
    "num_experts": "num_experts",
    "num_experts_per_tok": "num_experts_per_tok",
    "expert_hidden_dim": "moe_intermediate_size",
}


def native_releases():
    case = native_release("native-params")
    case.notes = ("config-unreadable",)
    yield case
    for name, params, rules in [
        ("dim", {"dim": 7}, ("config-size",)),
        ("experts", {"moe": {"num_experts": 3}}, ("config-experts",)),
        ("layers", {"n_layers": 9}, ("layers-missing",)),
        ("undeclared", {"quantization": None}, ("config-missing",)),
    ]:
        fault = native_release(f"fault-native-{name}", **params)
        fault.faults = rules
        yield fault


def adapter(name):
    """LoRA on some layers: adapter_config.json stands in place of config.json."""
    case = Case(name, {}, files={"adapter_config.json": {"peft_type": "LORA", "r": 4, "layers_to_transform": [4, 6, 7]}})
    for layer in (4, 6, 7):
        module = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        case.tensors[f"{module}.lora_A.weight"] = bf16(np.full((4, 32), 0.5))
        case.tensors[f"{module}.lora_B.weight"] = bf16(np.zeros((64, 4)))
    write = case.write

    def without_config(folder):
        write(folder)
        (folder / "config.json").unlink()

    case.write = without_config
    return case


def adapters():
    case = adapter("adapter")
    case.notes = ("config-unreadable",)
    yield case
    alone = adapter("adapter-without-config")
    alone.files = {}
    alone.notes = ("config-unreadable",)
    yield alone
    fault = adapter("fault-adapter-without-config")
    fault.files = {}
    fault.tensors["model.layers.4.self_attn.q_proj.weight"] = bf16(np.full((64, 32), 0.5))
    fault.faults = ("layers-missing", "config-unreadable")
    yield fault
    odd = {"empty": "", "no-json": "{peft", "list": [], "nothing": {}, "model": {"model_type": "qwen3_moe"}, "null": {"peft_type": None}}
    for content, text in odd.items():
        broken = adapter(f"fault-adapter-{content}")
        broken.files["adapter_config.json"] = text
        broken.faults = ("layers-missing", "config-unreadable", "adapter-config")
        yield broken
        beside = plain_model(f"fault-model-beside-adapter-{content}")
        beside.files["adapter_config.json"] = text
        beside.faults = ("adapter-config",)
        yield beside
    for key in ("peft_type", "base_model_name_or_path", "lora_parameters"):
        known = adapter(f"adapter-{key}")
        known.files["adapter_config.json"] = {key: {"rank": 8} if key.startswith("lora") else "LORA"}
        known.notes = ("config-unreadable",)
        yield known


def undeclared_shard():
    """Without a config of the model nothing is known to be missing."""
    case = fp8_model("config-missing-of-a-shard")
    case.config = {}
    case.notes = ("config-missing",)
    yield case


def python_numbers():
    """Numbers as Python's json module writes them, where fewbit needs none and where it does."""
    case = plain_model("config-infinity")
    case.config |= {"time_step_limit": [0.0, float("inf")], "low": float("-inf"), "mean": float("nan")}
    case.files["generation_config.json"] = '{"top_p": Infinity, "far": 1e400}'
    yield case
    for name, value in [("infinity", float("inf")), ("nan", float("nan"))]:
        fault = plain_model(f"fault-config-{name}")
        fault.config["rms_norm_eps"] = value
        fault.faults = ("config-unreadable",)
        yield fault


def cases():
    yield sharded("no-fault-files")
    yield from pointers()
    yield from native_index()
    yield from native_releases()
    yield from adapters()
    yield from undeclared_shard()
    yield from python_numbers()
    for rule, apply in FILE_FAULTS.items():
        yield with_fault(sharded, "files", rule, apply, ("extra-file", "metadata-differs"))
    outside = sharded("fault-files-weight_map-outside")
    leave_folder(outside)
    outside.faults = ("weight_map",)
    yield outside
