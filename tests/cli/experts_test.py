#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What check, inspect and explain say of the experts of a model.

usage: experts_test.py FEWBIT MODEL_DIR   (standard library only)
"""
import json
import math
import re
import struct
import sys
import unittest

from cli_case import MODEL, Copy, run, run_json, run_json_env, write_tensors


class Experts(Copy):
    """What can run the experts of models that can't be run as a whole, and the memory they take."""

    def agree(self, model):
        """check and explain give one answer; the report and the bytes of the experts."""
        report = run_json(self, "check", model)
        asked = json.loads(run("explain", model, "--json").stdout)
        for key in ("chosen", "candidates", "numerics"):
            self.assertEqual(report["selection"][key], asked[key], key)
        experts = [r for r in report["inventory"] if r["role"].startswith("expert")]
        return report, sum(r["bytes"] for r in experts)

    def gpt_oss(self, bias):
        """A layer of two experts quantized to NVFP4; its biases stay beside it."""
        source, out = self.folder / f"source{bias}", self.folder / f"nvfp4{bias}"
        source.mkdir()
        layer = "model.layers.0."
        shapes = {
            "mlp.experts.gate_up_proj": [2, 32, 64],
            "mlp.experts.down_proj": [2, 32, 32],
            "mlp.experts.gate_up_proj_bias": [2, 64],
            "mlp.experts.down_proj_bias": [2, 32],
            "mlp.router.weight": [2, 32],
            "self_attn.q_proj.weight": [32, 32],
        }
        tensors = {"model.embed_tokens.weight": ("BF16", [2, 32], bytes(2 * 2 * 32))}
        for name, shape in shapes.items():
            value = bias if name.endswith("_bias") else 1
            raw = struct.pack("<f", value)[2:] * math.prod(shape)
            tensors[layer + name] = ("BF16", shape, raw)
        write_tensors(source, tensors)
        config = {"model_type": "gpt_oss", "hidden_size": 32, "intermediate_size": 32,
                  "num_hidden_layers": 1, "num_local_experts": 2, "num_experts_per_tok": 1}
        (source / "config.json").write_text(json.dumps(config))
        made = run("quantize", source, "--scheme", "nvfp4", "-o", out)
        self.assertEqual(made.returncode, 0, made.stderr)
        return out

    def test_check_answers_for_families_that_it_does_not_run(self):
        known, bytes_known = self.agree(self.model)
        path = self.model / "config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps({**config, "model_type": "ernie4_5_moe", "moe_use_aux_free": False}))
        report, bytes_here = self.agree(self.model)
        self.assertFalse(report["runnable"])
        self.assertIn("model-not-runnable", [f["rule"] for f in report["findings"]])
        self.assertNotEqual(report["selection"]["chosen"], "")
        self.assertEqual(report["engines"], known["engines"])
        self.assertEqual((report["memory"], bytes_here), (known["memory"], bytes_known))
        self.assertIn("experts on this machine: 6 of 6 MoE layers like layer 0",
                      run("check", self.model).stdout)

    def test_explain_has_the_same_variants_in_json(self):
        page = run_json(self, "explain", self.model)
        self.assertEqual([v["tokens"] for v in page["variants"]], [1, 16, 512])
        text = run("explain", self.model).stdout
        for variant in page["variants"]:
            self.assertRegex(text, rf"(?m)^ +{variant['tokens']} tokens? +{re.escape(variant['text'])}$")

    def test_explain_says_of_such_families_what_prepare_says(self):
        path = self.model / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": "ernie4_5_moe", "moe_use_aux_free": False}))
        page = run_json(self, "explain", self.model)
        takes = [c for c in page["candidates"] if not c["refusals"]]
        self.assertTrue(takes)
        for candidate in takes:
            self.assertFalse(candidate["preparable"])
            self.assertIn("ernie4_5_moe", candidate["unprepared"])
        refused = run("prepare", self.model, "-o", self.folder / "out")
        self.assertEqual(refused.returncode, 1)
        self.assertIn(takes[0]["unprepared"], refused.stderr)
        self.assertIn("    not preparable: " + takes[0]["unprepared"],
                      run("explain", self.model).stdout)

    def test_the_verdict_says_what_runs_them(self):
        experts_only = self.gpt_oss(bias=1)
        (experts_only / "tokenizer.json").unlink(missing_ok=True)
        last = run("check", experts_only).stdout.splitlines()[-1]
        self.assertRegex(last, r"^result: fine, \d+ notes?; fewbit runs its experts on this machine with cpu_\w+, but not the whole model$")
        nothing = run_json(self, "check", self.model, "--device", "sm_80")
        self.assertEqual((nothing["result"]["fine"], nothing["run_by"]["fewbit_backend"]), (True, None))
        forced = run_json_env(self, {"FEWBIT_BACKEND": "reference"}, "check", self.model)["run_by"]
        self.assertEqual((forced["fewbit_backend"], forced["reference_only"], forced["whole_model"]),
                         ("reference", True, True))
        built = {b["name"]: b["built"] for b in run_json(self, "backends")}
        lacks = "" if built["cuda_moe"] else "; not this binary: not built: needs code for sm_90a, has "
        for device, words in (("sm_80", "fewbit can't run it on sm_80; vLLM would choose marlin"),
                              ("sm_90", "fewbit runs it on sm_90, experts on cuda_moe" + lacks)):
            last = run("check", self.model, "--device", device).stdout.splitlines()[-1]
            self.assertIn(words, last)
            self.assertEqual("not this binary" in last, "not this binary" in words, last)

    def test_experts_in_one_tensor_are_shown_whole_and_one_by_one(self):
        model, name = self.gpt_oss(bias=1), "model.layers.0.mlp.experts.gate_up_proj"
        text = run("inspect", model, name).stdout
        for words in ("2 experts in one tensor", "[2 x 64, 32]", name):
            self.assertIn(words, text)
        listed = {m["name"]: m for m in run_json(self, "inspect", model)}
        self.assertEqual(listed[name]["experts"], 2)
        parts = [t["tensor"] for t in listed[name]["tensors"]]
        self.assertGreater(len(parts), 2)
        for part in parts:
            self.assertEqual(run_json(self, "inspect", model, part)["module"], name)
        one = run_json(self, "inspect", model, name, "--expert", 1)
        self.assertEqual((one["selected_expert"], one["weights"]["elements"]), (1, 64 * 32))
        self.assertEqual((one["scales"]["shape"], one["scales"]["dtype"]), ([64, 2], "f8_e4m3"))
        self.assertEqual(sum(b["count"] for b in one["scales"]["histogram_log2"]), 128)
        shown = run("inspect", model, parts[0], "--expert", 1).stdout
        self.assertEqual(shown.count("magnitudes"), 2)
        for args, words in (((name, "--expert", 2), "2, but " + name + " has 2 experts, 0 to 1"),
                            (("model.layers.0.mlp.router", "--expert", 0), "one matrix"),
                            (("--expert", 5), "no module of expert 5")):
            wrong = run("inspect", model, *args)
            self.assertEqual(wrong.returncode, 2)
            self.assertIn(words, wrong.stderr)

    def test_a_shard_without_experts_is_no_model_without_them(self):
        raw = (MODEL / "model.safetensors").read_bytes()
        (length,) = struct.unpack("<Q", raw[:8])
        header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
        header.pop("__metadata__", None)
        for part, words in ((".self_attn.", "holds none of its routed experts, 16 a layer"),
                            (".layers.2.mlp.experts.", "1 of 1 MoE layers like layer 2")):
            write_tensors(self.folder, {n: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])])
                                        for n, t in header.items() if part in n})
            shard = self.model / "model-00002-of-00003.safetensors"
            (self.folder / "model.safetensors").rename(shard)
            page = run("check", shard)
            self.assertEqual(page.returncode, 0, page.stderr)
            self.assertIn(words, page.stdout)
            self.assertTrue(page.stdout.splitlines()[-1].endswith("a part of a model is not run alone"))

    def test_experts_with_biases_are_prepared(self):
        report, _ = self.agree(self.gpt_oss(bias=1))
        self.assertRegex(report["selection"]["chosen"], "^cpu_")
        memory = report["memory"]
        self.assertEqual(memory["not_runnable"], 0)
        self.assertGreater(memory["packed"], 0)
        self.assertEqual(sum(memory["matrices_by_backend"].values()), 4)

    def test_the_same_experts_without_biases_are_prepared(self):
        report, _ = self.agree(self.gpt_oss(bias=0))
        memory = report["memory"]
        self.assertEqual(memory["not_runnable"], 0)
        self.assertEqual(sum(memory["matrices_by_backend"].values()), 4)
        self.assertGreaterEqual(memory["matrices_by_backend"][report["selection"]["chosen"]], 2)

    def test_without_a_config_nothing_is_known_to_run_the_experts(self):
        (self.model / "config.json").unlink()
        report = run_json(self, "check", self.model, code=1)
        self.assertNotIn("selection", report)
        self.assertIn("config.json", report["layer_error"])
        experts = [r for r in report["inventory"] if r["role"].startswith("expert")]
        self.assertEqual(report["memory"]["not_runnable"], sum(r["bytes"] for r in experts))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
