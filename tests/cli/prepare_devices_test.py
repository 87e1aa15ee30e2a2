#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fewbit prepare for described devices and slices: what check, explain and eval say of the output.

usage: prepare_devices_test.py FEWBIT MODEL_DIR   (standard library only)
"""
import subprocess
import sys
import unittest

from prepare_case import FEWBIT, MODEL, Scratch, content, run, run_json


class Described(Scratch):
    """A described device is described: by its own rules, whatever this binary holds."""

    def test_prepare_writes_for_what_explain_chooses(self):
        first = {"cpu:generic": "cpu_generic", "cpu:neon": "cpu_neon", "cpu:avx2": "cpu_avx2",
                 "cpu:avx512": "cpu_avx512", "cpu:amx": "cpu_amx", "sm_90": "cuda_moe"}
        for device, backend in first.items():
            with self.subTest(device):
                told = run_json(self, "explain", MODEL, "--device", device)
                self.assertEqual(told["chosen"], backend)
                page = run_json(self, "check", MODEL, "--device", device)
                self.assertEqual(page["run_by"]["fewbit_backend"], backend)
                out = self.folder / backend
                report = run_json(self, "prepare", MODEL, "-o", out, "--device", device, "--verify")
                self.assertEqual(report["backend"], backend)
                there = run_json(self, "check", out, "--device", device)
                self.assertRegex(there["here"], f"^would run on {backend}(; not built|$)")
                self.assertEqual(run_json(self, "explain", out, "--device", device)["chosen"], backend)
        experts = "prepared/layer-00000.safetensors"
        self.assertEqual(content(self.folder / "cpu_neon")[experts],
                         content(self.folder / "cpu_generic")[experts])

    def test_a_device_that_nothing_takes_is_refused_by_name(self):
        for device in ("sm_120", "xpu"):
            self.expect_error("none of fewbit's", device,
                              args=("prepare", MODEL, "-o", self.out, "--device", device))
            self.nothing_left()

    def test_what_is_not_built_is_said_in_one_wording(self):
        built = run_json(self, "cpu")["built_for"]
        held = ", ".join(built)
        for device, code in (("cpu:neon", "neon"), ("cpu:avx2", "avx2"), ("sm_90", "sm_90a")):
            lacking = f"not built: needs code for {code}, has {held}"
            for args in (("explain", MODEL, "--device", device), ("check", MODEL, "--device", device)):
                said = run(*args).stdout
                if code in built or code == "sm_90a" and "code for sm_90a" not in said:
                    self.assertNotIn(f"not built: needs code for {code}", said)
                else:
                    self.assertIn(lacking, said)
        page = run("explain", MODEL).stdout
        self.assertNotIn("kernels, has", page)


    def test_what_a_forced_backend_lacks_is_what_the_binary_lacks(self):
        built = {b["name"]: b["built"] for b in run_json(self, "backends")}
        for backend in ("cuda_moe", "cpu_neon", "cpu_avx2"):
            result = run("prepare", MODEL, "-o", self.folder / backend, "--backend", backend)
            self.assertEqual("not built" in result.stderr, result.returncode == 1 and not built[backend], result.stderr)

    def test_a_card_to_prepare_for_that_is_not_there_is_no_error_of_usage(self):
        env = {"CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"}
        result = subprocess.run([FEWBIT, "prepare", MODEL, "-o", self.out, "--device", "cuda"], env=env,
                                capture_output=True, text=True, timeout=100)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stderr, "^error: device cuda: .*no CUDA (device here|code)")
        self.expect_error("unknown device", args=("prepare", MODEL, "-o", self.out, "--device", "junk"), code=2)
        self.nothing_left()


class ForCuda(Scratch):
    def setUp(self):
        super().setUp()
        self.prepared("--device", "sm_90")

    def test_a_described_card_is_asked_by_rules_and_no_driver(self):
        page = run("check", self.out, "--device", "sm_90")
        self.assertEqual(page.returncode, 0, page.stderr)
        self.assertIn("would run on cuda_moe", page.stdout)
        other = run("check", self.out, "--device", "sm_80")
        self.assertIn("nothing reads it; cuda_moe refuses it: device: needs compute capability 9.0, has compute "
                      "capability 8.0", other.stdout)
        self.assertIn("can't run it on sm_80", other.stdout)
        for text in (page.stdout + page.stderr + other.stdout + other.stderr).splitlines():
            self.assertNotRegex(text, "driver|cudaError|FEWBIT_CUDA")

    def test_a_real_card_that_is_not_there_is_an_unmet_need(self):
        for call in (("check",), ("explain",), ("eval", "--text", MODEL / "val.txt")):
            env = {"CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"}
            result = subprocess.run([FEWBIT, call[0], self.out, "--device", "cuda", *call[1:]], env=env,
                                    capture_output=True, text=True, timeout=100)
            self.assertEqual(result.returncode, 1, result.stdout)
            self.assertRegex(result.stderr, "^error: device cuda: .*no CUDA (device here|code)")
            self.assertNotIn("fine", result.stdout)

    def test_where_nothing_reads_it_the_need_is_said_once_and_in_short(self):
        text = ("--text", MODEL / "val.txt")
        need = "device: needs a CUDA device, has CPU"
        for call, code in ((("check", self.out), 0), (("eval", self.out, *text), 1)):
            result = run(*call)
            said = result.stdout + result.stderr
            self.assertEqual(result.returncode, code, said)
            self.assertEqual(said.count(need), 1, said)
            self.assertNotIn("\\x0a", said)
            self.assertIn("cuda_moe", said)
            self.assertLess(max(map(len, said.splitlines())), 350, said)
        self.assertIn("result: fine; fewbit can't run it on this machine\n", run("check", self.out).stdout)

    def test_explain_says_what_it_was_prepared_for_and_answers_by_that(self):
        page = run("explain", self.out)
        self.assertEqual(page.returncode, 1)
        self.assertTrue(page.stdout.startswith("prepared for cuda_moe (cuda_f4_cells), 6 of 6 layers; "
                                               "all experts whole\n"))
        self.assertIn("layout: needs experts prepared for cpu_avx2 (cpu_f4_lane16, "
                      "cpu_f4_lane16_scales), has cuda_moe (cuda_f4_cells)", page.stdout)
        self.assertIn("layout: needs experts prepared for reference (row_major), has cuda_moe",
                      page.stdout)
        self.assertIn("needs a CUDA device, has CPU", page.stderr)
        self.assertNotIn("\\x0a", page.stderr)
        asked = run_json(self, "explain", self.out, "--device", "sm_90")
        self.assertEqual((asked["chosen"], asked["prepared"]["backend"]), ("cuda_moe", "cuda_moe"))
        forced = run("explain", self.out, "--backend", "reference")
        self.assertEqual(forced.returncode, 1)
        self.assertIn("reference, which is asked for, can't read it: layout", forced.stderr)


class Answers(Scratch):
    def test_layers_have_one_name(self):
        self.prepared()
        for layer in ((), ("--layer", 3)):
            names = {run_json(self, "explain", folder, *layer)["layer"] for folder in (MODEL, self.out)}
            self.assertEqual(len(names), 1, names)
        self.expect_error("layer 9 has no routed experts", args=("explain", self.out, "--layer", 9),
                          code=2)

    def test_what_is_prepared_is_not_spread_again(self):
        self.prepared("--tp", 2, "--ep", 2, "--rank", 3)
        whole = self.folder / "whole"
        self.assertEqual(run("prepare", MODEL, "-o", whole).returncode, 0)
        for folder, kind in ((self.out, "rank 3 of 4 (tensor 2, expert 2)"), (whole, "all experts whole")):
            for option in (("--tp", 2), ("--ep", 2)):
                self.expect_error(f"{option[0]}: what is prepared for", kind, "is not spread again",
                                  args=("explain", folder, *option), code=2)
        page = run("explain", self.out).stdout
        self.assertIn("rank 3 of 4 (tensor 2, expert 2): experts 8 to 15 of 16, features 64 to 127 of "
                      "128", page)
        self.assertIn("one rank of tensor parallel 2, expert parallel 2", page)
        self.assertNotIn("splits that each backend takes", page)

    def test_check_says_that_a_slice_is_not_run_alone(self):
        self.prepared("--tp", 2, "--ep", 2, "--rank", 3)
        page = run("check", self.out)
        self.assertEqual(page.returncode, 0)
        self.assertIn("rank 3 of 4 (tensor 2, expert 2)", page.stdout)
        self.assertIn("one rank's slice, for a program that opens all 4 ranks' and adds up their outputs; "
                      "eval and generate do not run it alone", page.stdout)
        self.assertNotRegex(page.stdout, "runs? (it )?on")
        self.assertIn("result: fine; rank 3 of 4, one rank's slice, which eval and generate do not run "
                      "alone\n", page.stdout)
        self.assertFalse(run_json(self, "check", self.out)["runnable"])
        marlin = self.folder / "marlin"
        on = ("--backend", "marlin", "--device", "sm_90", "--tp", 2, "--rank", 1)
        self.assertEqual(run("prepare", MODEL, "-o", marlin, *on).returncode, 0)
        page = run("check", marlin, "--device", "sm_90").stdout
        self.assertIn("one rank's slice, for that rank of vLLM; ", page)
        self.assertIn("read by marlin of vLLM; fewbit does not run it", page)

    def test_another_engines_form_is_answered_by_that_engine(self):
        self.prepared("--backend", "marlin", "--device", "sm_90")
        told = run_json(self, "explain", self.out, "--device", "sm_90")
        self.assertEqual((told["engine"], told["chosen"]), ("vLLM", "marlin"))
        others = [c for c in told["candidates"] if c["backend"] != "marlin"]
        self.assertTrue(all(any(r["reason"] == "layout" for r in c["refusals"]) for c in others))
        own = run("explain", self.out, "--engine", "fewbit", "--device", "sm_90")
        self.assertEqual(own.returncode, 1)
        self.assertIn("which no backend of fewbit reads", own.stderr)

    def test_a_model_that_eval_does_not_run_is_not_said_to_run(self):
        source = self.writable_model()
        self.prepared(source=source)
        self.assertIn("result: fine; fewbit runs it on this machine", run("check", self.out).stdout)
        (source / "tokenizer.json").unlink()
        other = self.folder / "other"
        self.assertEqual(run("prepare", source, "-o", other).returncode, 0)
        self.assertRegex(run("check", other).stdout, "result: fine; .*but not the whole model")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
