#!/usr/bin/env python3
"""Prepared models that were damaged or edited, and their sources.

usage: prepared_damage_test.py FEWBIT MODEL_DIR   (standard library only)
"""
import json
import os
import re
import sys
import unittest

from prepare_case import MODEL, Scratch, run


class Damaged(Scratch):
    def setUp(self):
        super().setUp()
        self.prepared()
        self.layer = self.out / "prepared" / "layer-00003.safetensors"
        self.manifest = self.out / "fewbit_prepared.json"

    def test_a_truncated_file_is_refused_with_both_sizes(self):
        size = self.layer.stat().st_size
        os.truncate(self.layer, size - 1)
        for command in (("eval", self.out, "--text", MODEL / "README.md"), ("check", self.out)):
            self.expect_error("layer-00003.safetensors", f"{size - 1} bytes", str(size),
                              args=command)

    def test_a_missing_file_is_named(self):
        self.layer.unlink()
        self.expect_error("layer-00003.safetensors", "No such file", args=("check", self.out))

    def test_one_flipped_bit_is_found_by_check(self):
        data = bytearray(self.layer.read_bytes())
        data[len(data) // 2] ^= 1
        self.layer.write_bytes(data)
        self.expect_error("layer-00003.safetensors", "content hash is", args=("check", self.out))
        self.assertEqual(run("check", self.out, "--headers-only").returncode, 0)

    def test_another_checkpoint_is_not_its_source(self):
        other = self.writable_model()
        config = json.loads((other / "config.json").read_text())
        config["rms_norm_eps"] = 1e-5
        (other / "config.json").write_text(json.dumps(config))
        self.expect_error("not the source", args=("check", self.out, "--source", other))

    def test_hostile_manifests_are_refused_by_field(self):
        good = json.loads(self.manifest.read_text())

        def refused(change, *texts):
            bad = json.loads(json.dumps(good))
            change(bad)
            self.manifest.write_text(json.dumps(bad))
            self.expect_error("fewbit_prepared.json", *texts,
                              args=("eval", self.out, "--text", MODEL / "README.md"))

        def layer(key, value):
            return lambda m: m["layers"][1].__setitem__(key, value)

        def problem(key, value):
            return lambda m: m["layers"][1]["problem"].__setitem__(key, value)

        refused(lambda m: m.__setitem__("version", 99), "version 99")
        refused(problem("hidden_size", -4), "layers[1].problem.hidden_size", "-4")
        refused(problem("num_experts", 1 << 40), "layers[1].problem.num_experts")
        refused(layer("file", "../../../etc/passwd"), "layers[1].file")
        refused(layer("layer", 0), "layer 0 behind layer 0")
        refused(lambda m: m["files"][0].__setitem__("bytes", 1 << 63), "files[0].bytes")
        refused(lambda m: m.pop("layers"), "layers: expected")
        refused(lambda m: m["layers"][1]["buffers"][0].__setitem__("shape", [1 << 62, 1 << 62]),
                "layers[1].buffers[0].shape")
        self.manifest.write_text("{")
        self.expect_error("fewbit_prepared.json", args=("check", self.out))
        self.manifest.write_text(json.dumps(good))
        self.assertEqual(run("check", self.out).returncode, 0)

    def reseal(self, manifest):
        """The manifest with the hash that fits its fields."""
        self.manifest.write_text(json.dumps(manifest))
        fitting = re.search(r'the fields have "(\w{32})"', run("check", self.out).stderr)
        if fitting:  # else its fields alone are wrong
            manifest["xxh3_128"] = fitting[1]
            self.manifest.write_text(json.dumps(manifest))

    def test_a_manifest_with_a_hash_that_fits_is_compared_with_the_folder(self):
        good = json.loads(self.manifest.read_text())
        for name in [file["name"] for file in good["files"]]:
            bad = json.loads(json.dumps(good))
            bad["files"] = [file for file in bad["files"] if file["name"] != name]
            self.reseal(bad)
            for command in (("check", self.out), ("check", self.out, "--headers-only"),
                            ("eval", self.out, "--text", MODEL / "README.md")):
                with self.subTest(file=name, command=command[0]):
                    self.expect_error("not" if name != "model.safetensors" else "none holds", args=command)
        for field, said in (("top_k", "top_k 3"), ("activation", "gelu")):
            bad = json.loads(json.dumps(good))
            problem = bad["layers"][1]["problem"]
            problem[field] = 3 if field == "top_k" else problem["activation"] | {"kind": "gelu"}
            self.reseal(bad)
            self.expect_error("layer 1", said, "top_k 4", "silu", args=("check", self.out))

    def test_an_edited_manifest_is_refused_whatever_was_edited(self):
        good = json.loads(self.manifest.read_text())
        edits = {
            "router_weight_side": lambda m: m["layers"][1]["problem"].update(
                router_weight_side="input"),
            "top_k": lambda m: m["layers"][1]["problem"].update(top_k=3),
            "activation": lambda m: m["layers"][1]["problem"]["activation"].update(kind="gelu"),
            "shape": lambda m: m["layers"][1]["buffers"][0].update(shape=[1, 8192]),
            "layout": lambda m: m["layers"][1]["buffers"][0].update(layout="b12x_packed"),
            "backend": lambda m: m["layers"][1].update(backend="reference"),
            "source": lambda m: m["source"]["files"].pop(),
            "a layer": lambda m: m["layers"].pop(),
            "layers": lambda m: m.update(layers=[]),
            "files": lambda m: m["files"].pop(),
        }
        for name, edit in edits.items():
            bad = json.loads(json.dumps(good))
            edit(bad)
            self.manifest.write_text(json.dumps(bad))
            for command in (("check", self.out), ("check", self.out, "--headers-only"),
                            ("check", self.out, "--source", MODEL),
                            ("eval", self.out, "--text", MODEL / "README.md")):
                with self.subTest(edit=name, command=command[0]):
                    self.expect_error("fewbit_prepared.json",
                                      "layers: none" if name == "layers" else "was changed",
                                      args=command)
        # Its hash is of what it says, not of how it is written.
        self.manifest.write_text(json.dumps(good, indent=7))
        self.assertEqual(run("check", self.out).returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
