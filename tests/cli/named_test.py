#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a path names: a folder, an index, one file, a prepared folder, something unfinished.

usage: named_test.py FEWBIT MODEL_DIR   (standard library only)
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import unittest

from cli_case import MODEL, run, run_json, write_tensors
from prepare_case import Scratch, bf16


def gone_process():
    """The number of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


class Named(Scratch):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "model"
        shutil.copytree(MODEL, self.model)
        self.text = self.folder / "text.txt"
        self.text.write_text((MODEL / "val.txt").read_text()[:2000])

    def index(self):
        raw = (self.model / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        names = [name for name in json.loads(raw[8 : 8 + length]) if name != "__metadata__"]
        index = self.model / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": {name: "model.safetensors" for name in names}}))
        return index

    def test_a_named_file_is_shown_by_its_name_and_evaluated_with_what_stands_beside_it(self):
        want = run_json(self, "eval", self.model, "--text", self.text)["mean_nll"]
        for path in (self.model / "model.safetensors", self.index()):
            self.assertEqual(run_json(self, "check", path)["path"], str(path))
            self.assertIn(str(path), run("check", path).stdout.split("\n")[0])
            self.assertEqual(run_json(self, "eval", path, "--text", self.text)["mean_nll"], want)
            made = run("generate", path, "--prompt", "Once", "--max-tokens", 2)
            self.assertEqual(made.returncode, 0, made.stderr)

    def test_one_shard_is_told_from_a_model(self):
        shard = self.model / "model-00001-of-00002.safetensors"
        (self.model / "model.safetensors").rename(shard)
        self.expect_error(f"{shard}: one shard of a model, which does not run alone",
                          args=("eval", shard, "--text", self.text))

    def test_a_file_of_a_prepared_model_is_told(self):
        self.prepared()
        file = self.out / "model.safetensors"
        self.expect_error(f"{file}: a file of a prepared model; name its folder",
                          args=("eval", file, "--text", self.text))

    def test_an_unfinished_output_is_called_so_by_every_command(self):
        unfinished = self.folder / "out.partial"
        shutil.copytree(self.model, unfinished)
        (unfinished / ".fewbit-unfinished").touch()
        for path in (unfinished, unfinished / "model.safetensors"):
            for command in (("check",), ("inspect",), ("explain",), ("eval", "--text", self.text),
                            ("generate", "--prompt", "Once"), ("quantize", "-o", self.folder / "q"),
                            ("convert", "-o", self.folder / "q", "--to", "f32"),
                            ("prepare", "-o", self.folder / "p")):
                self.expect_error(f"{unfinished}: an unfinished output of fewbit",
                                  args=(command[0], path, *command[1:]))

    def test_tensors_of_a_decoded_gguf_file_are_no_fault(self):
        """convert X.gguf -o DIR: GGUF's own names, without a config."""
        folder = self.folder / "decoded"
        folder.mkdir()
        data = bf16([0.5] * (4 * 32 * 64))
        write_tensors(folder, {"blk.0.ffn_gate_exps.weight": ("BF16", [4, 32, 64], data),
                               "blk.0.ffn_up_exps.weight": ("BF16", [4, 32, 64], data),
                               "blk.0.ffn_down_exps.weight": ("BF16", [4, 64, 32], data)})
        page = run_json(self, "check", folder)
        self.assertTrue(page["result"]["fine"], page["findings"])
        shapes = {m["name"]: (m["n"], m["k"]) for m in run_json(self, "inspect", folder)}
        self.assertEqual(shapes, {"blk.0.ffn_gate_exps": (32, 64), "blk.0.ffn_up_exps": (32, 64),
                                  "blk.0.ffn_down_exps": (64, 32)})

    def test_experts_of_a_prepared_folder_are_with_their_source(self):
        self.prepared()
        name = "model.layers.0.mlp.experts.3.up_proj"
        self.expect_error(f"'{name}' is prepared", "the checkpoint that it was made from",
                          args=("inspect", self.out, name), code=2)
        self.expect_error("--expert: experts of a prepared folder are in a backend's layout",
                          args=("inspect", self.out, "--expert", 3), code=2)
        self.assertIn("layer    layer 0, and 5 more alike", run("explain", self.out).stdout)
        self.assertIn("layer    layer 3\n", run("explain", self.out, "--layer", 3).stdout)

    def test_lists_of_layers_are_read_alone_and_not_empty(self):
        shapes = self.folder / "shapes.txt"
        shapes.write_text("# none\n")
        self.expect_error("no shape in it", args=("bench", "--shapes", shapes))
        listed = run("explain", "--problems", os.path.join(os.path.dirname(__file__), "../problems/models.txt"))
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertIn("gpt-oss-20b", listed.stdout)

    def test_gguf_files_of_killed_processes_are_named(self):
        left = [self.folder / f"{name}.partial.{gone_process()}"
                for name in ("x.gguf", "x-00001-of-00002.gguf", "xy.gguf")]
        for path in left:
            path.write_bytes(b"GGUF")
        result = run("convert", self.model, "-o", self.folder / "x.gguf", "--to", "f32")
        self.assertEqual([str(path) in result.stderr for path in left], [True, True, False], result.stderr)
        self.assertTrue(all(path.exists() for path in left))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
