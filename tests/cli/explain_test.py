#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which backend runs a layer: explain, and check, prepare and others that ask the same.

usage: explain_test.py FEWBIT MODEL_DIR   (standard library only)
"""
import json
import pathlib
import sys
import tempfile
import unittest

from cli_case import MODEL, legal_ranks, run, run_json, run_json_env


class Explain(unittest.TestCase):
    def test_check_explain_and_prepare_agree_on_every_split(self):
        plans = run_json(self, "check", MODEL)["splits"]
        explained = run_json(self, "explain", MODEL)
        backends = [name for split in explained["splits"] for name in split["backends"]]
        self.assertIn(explained["chosen"], backends)
        for kind, option, examined in (("tensor_parallel", "--tp", (1, 2, 3, 5, 8, 9, 12, 16)),
                                       ("expert_parallel", "--ep", (3, 16, 17))):
            alone = {p["ranks"]: p["experts_fit"] for p in plans[kind]}
            for backend in backends:
                self.assertEqual(legal_ranks(explained, backend, kind),
                                 {n: fit != "none" for n, fit in alone.items()}, (backend, kind))
            for ranks in examined:
                fits = alone[ranks] != "none"
                asked = run("explain", MODEL, option, ranks)
                self.assertEqual(asked.returncode == 0, fits, (option, ranks))
                with tempfile.TemporaryDirectory() as folder:
                    args = ("-o", pathlib.Path(folder) / "out", option, ranks, "--rank", 0)
                    self.assertEqual(run("prepare", MODEL, *args).returncode == 0, fits)
        self.assertIn("whole model, TP 3: not the whole model; its experts alone unevenly",
                      run("explain", MODEL, "--tp", 3).stdout)
        self.assertIn("16 ranks can't share 128 intermediate features: they are 8 runs of 16, at least one a rank; legal: 1 to 8",
                      run("explain", MODEL, "--tp", 16).stderr)

    def test_explain_says_nothing_twice(self):
        asked = run("explain", MODEL, "--json")
        self.assertLess(len(asked.stdout), 20000)
        report = json.loads(asked.stdout)
        self.assertEqual(report["layers"], list(range(6)))
        self.assertEqual(report["prepare"], {"writes": True, "backends": report["chosen"]})
        names = [name for split in report["splits"] for name in split["backends"]]
        self.assertEqual(len(names), len(set(names)))
        for split in report["splits"]:
            for kind in ("tensor_parallel", "expert_parallel"):
                reasons = [json.dumps(v["refusals"]) for v in split[kind]]
                self.assertEqual(len(reasons), len(set(reasons)))
                ranks = sorted(n for v in split[kind] for n in v["ranks"])
                self.assertEqual(ranks, list(range(1, 65)))
        # What check says in sentences of every number, by fits and parts.
        for kind, plans in run_json(self, "check", MODEL)["splits"].items():
            grouped = {n: group for group in report["model_splits"][kind] for n in group["ranks"]}
            for plan in plans:
                group = grouped[plan["ranks"]]
                self.assertEqual((group["fit"], group["experts_fit"]), (plan["fit"], plan["experts_fit"]))
                self.assertEqual([(p["fit"], p["what"]) for p in group["parts"]],
                                 [(r["fit"], r["what"]) for r in plan["reasons"]])
        three = run_json(self, "explain", MODEL, "--tp", 3)["model_splits"]["asked_tensor_parallel"]
        self.assertIn("8 heads over 3", [reason["why"] for reason in three["reasons"]])

    def test_explain_lists_backends_with_reference_last(self):
        report = run_json(self, "explain", MODEL)
        names = [c["backend"] for c in report["candidates"]]
        self.assertEqual(names[-1], "reference")
        self.assertIn(report["chosen"], names)

    def test_explain_for_another_machine_gives_reasons_with_numbers(self):
        report = run_json(self, "explain", MODEL, "--device", "cpu:generic")
        refused = [c for c in report["candidates"] if not c["usable"]]
        self.assertTrue(refused)
        for candidate in refused:
            self.assertTrue(candidate["refusals"])
            for refusal in candidate["refusals"]:
                self.assertTrue(refusal["needs"] and refusal["has"])

    def test_explain_tells_what_another_engine_would_choose(self):
        report = run_json(self, "explain", MODEL, "--engine", "vllm", "--device", "sm_90")
        self.assertEqual((report["engine"], report["chosen"]), ("vLLM", "marlin"))
        self.assertFalse(report["runs_here"])
        self.assertEqual(report["problem"]["hidden_size"], 256)
        self.assertIn("NVFP4", report["problem"]["gate_up"]["text"])
        tensor = legal_ranks(report, "marlin", "tensor_parallel")
        self.assertEqual([ranks for ranks, legal in tensor.items() if legal], [1, 2, 4, 8])
        forced = run("explain", MODEL, "--engine", "vllm", "--device", "sm_90",
                     "--backend", "batched_marlin", "--json")
        self.assertEqual(forced.returncode, 1)
        self.assertIn("token exchange", json.loads(forced.stdout)["error"]["what"])
        here = run("explain", MODEL, "--backend", "marlin")
        self.assertEqual(here.returncode, 2)
        self.assertIn("run by vLLM, not by fewbit", here.stderr)

    def test_explain_has_the_choice_above_the_table_and_the_names_in_its_help(self):
        text = run("explain", "--problem", "gpt-oss-20b/mxfp4", "--engine", "vllm", "--device", "sm_120").stdout
        lines = text.splitlines()
        chosen = [i for i, line in enumerate(lines) if line.startswith("chosen ")]
        table = [i for i, line in enumerate(lines) if line.startswith("backends of vLLM")]
        self.assertEqual((len(chosen), len(table)), (1, 1))
        self.assertLess(chosen[0], table[0])
        self.assertIn("  Mixtral-8x7B: bf16, ", run("explain", "--help").stdout)
        none = run("explain", "--problem", "gpt-oss-20b/mxfp4", "--device", "sm_80").stdout
        backends = len(run_json(self, "backends"))
        self.assertIn(f"chosen   none: none of fewbit's {backends} backends can run it", none)

    def test_explain_knows_published_layers(self):
        args = ("explain", "--problem", "Qwen3-30B-A3B/gptq-int4-g128", "--engine", "vllm")
        report = run_json(self, *args, "--device", "sm_80", "--tp", "2")
        self.assertEqual(report["problem"]["intermediate_size"], 384)
        self.assertEqual(report["chosen"], "marlin")
        wrong = run(*args, "--device", "sm_80", "--tp", "5")
        self.assertIn("5 ranks can't share 768 intermediate features equally: 768 / 5 = 153.6; legal, in whole runs of 128: 1 to 3, 6",
                      wrong.stderr)
        self.assertIn("known: Qwen3-30B-A3B, ", run("explain", "--problem", "x").stderr)
        shapes = pathlib.Path(__file__).parents[1] / "problems/moe_layers.txt"
        for name in ("Mixtral", "Mixtral/nvfp4", "tiny-moe", "DeepSeek-V3/nvfp4"):
            report = run_json(self, "explain", "--problems", shapes, "--problem", name, "--engine",
                              "vllm", "--device", "sm_80")
            self.assertEqual(report["chosen"], "marlin")
        self.assertEqual(run("explain").returncode, 2)

    def test_cuda_runs_the_layer_on_a_card_of_its_capability_only(self):
        report = run_json(self, "explain", "--problem", "gpt-oss-20b/mxfp4", "--device", "sm_80", code=1)
        mine = next(c for c in report["candidates"] if c["backend"] == "cuda_moe")
        self.assertIn(("device", "compute capability 9.0", "compute capability 8.0"),
                      [(r["reason"], r["needs"], r["has"]) for r in mine["refusals"]])
        on_cpu = run_json(self, "explain", MODEL, "--device", "cpu:generic")
        mine = next(c for c in on_cpu["candidates"] if c["backend"] == "cuda_moe")
        self.assertEqual([(r["reason"], r["needs"]) for r in mine["refusals"]][0], ("device", "a CUDA device"))

    def test_without_a_card_cuda_is_refused_and_says_why(self):
        calls = (("explain", MODEL), ("backends",), ("bench", "tiny-moe", "--tokens", "1"),
                 ("generate", MODEL, "--prompt", "a", "--max-tokens", "1"),
                 ("eval", MODEL, "--text", MODEL / "val.txt"))
        for call in calls:
            with self.subTest(call[0]):
                result = run(*call, "--device", "cuda", env={"CUDA_VISIBLE_DEVICES": ""})
                self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
                self.assertRegex(result.stderr, "no CUDA (device here|code)")

    def test_prepare_for_another_engine_needs_its_device(self):
        with tempfile.TemporaryDirectory() as folder:
            args = ("prepare", MODEL, "-o", pathlib.Path(folder) / "out", "--backend", "marlin")
            self.assertIn("needs a CUDA device, has CPU", run(*args).stderr)
            # The kernels have one global scale for gate and up, as this model has.
            result = run(*args, "--device", "sm_90")
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_check_asks_for_any_device(self):
        report = run_json(self, "check", MODEL, "--device", "sm_90")
        self.assertEqual([e["chosen"] for e in report["engines"]], ["marlin", "", ""])
        text = run("check", MODEL, "--device", "sm_90").stdout
        self.assertIn("vLLM marlin", text)
        self.assertIn("none of the backends described here takes it: SGLang (2), FlashInfer (5)", text)
        other = run("explain", MODEL, "--engine", "sglang", "--device", "sm_90")
        self.assertIn("none of the 2 backends of SGLang described here can run it", other.stdout)
        self.assertIn("none of the 2 backends of SGLang described here can run it", other.stderr)
        foreign = run_json(self, "backends", "--foreign", "--device", "xpu")
        self.assertTrue(all(not b["runs_here"] for b in foreign))
        self.assertEqual([b["name"] for b in foreign if b["usable"]],
                         ["vllm_triton", "vllm_batched_triton", "vllm_triton_wna16",
                          "vllm_emulation_nvfp4", "vllm_emulation_mx",
                          "xpu_int4", "xpu_mxfp4", "xpu_fp8", "xpu_plain"])

    def test_what_the_environment_forces_is_seen(self):
        self.assertEqual(run_json_env(self, {"FEWBIT_THREADS": "1"}, "cpu")["threads_in_use"], 1)
        self.assertEqual(run("cpu", env={"FEWBIT_THREADS": "abc"}).returncode, 2)
        self.assertIn("FEWBIT_BACKEND forces reference",
                      run("backends", env={"FEWBIT_BACKEND": "reference"}).stdout)
        self.assertEqual(run("check", MODEL, env={"FEWBIT_BACKEND": "frob"}).returncode, 2)
        forced = run("check", MODEL, env={"FEWBIT_BACKEND": "cpu_avx512", "FEWBIT_ISA": "generic"})
        self.assertEqual(forced.returncode, 0)
        self.assertIn("layer-not-runnable  FEWBIT_BACKEND", forced.stdout)
        self.assertTrue(forced.stdout.endswith("fewbit can't run it on this machine\n"), forced.stdout)
        self.assertNotIn("fewbit convert", forced.stdout)

    def test_explain_gives_the_layer_in_json(self):
        problem = run_json(self, "explain", MODEL)["problem"]
        sizes = [problem[key] for key in ("hidden_size", "intermediate_size", "num_experts", "top_k")]
        self.assertEqual(sizes, [256, 128, 16, 4])
        self.assertIn("NVFP4", problem["gate_up"]["text"])
        self.assertIn("NVFP4", problem["down"]["text"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
