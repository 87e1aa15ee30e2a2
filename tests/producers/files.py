# SPDX-License-Identifier: Apache-2.0
"""Files of a checkpoint that are damaged or do not fit together."""

import json
from dataclasses import dataclass, field

import numpy as np
from case import Case, bf16, with_fault, write_safetensors
from small_model import plain_model

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


def cases():
    yield sharded("no-fault-files")
    for rule, apply in FILE_FAULTS.items():
        yield with_fault(sharded, "files", rule, apply, ("extra-file", "metadata-differs"))
    outside = sharded("fault-files-weight_map-outside")
    leave_folder(outside)
    outside.faults = ("weight_map",)
    yield outside
