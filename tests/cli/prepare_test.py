#!/usr/bin/env python3
"""fewbit prepare as its users call it: the same model, its slices, what is refused.

usage: prepare_test.py FEWBIT MODEL_DIR   (standard library only)
"""
import json
import os
import subprocess
import sys
import unittest

from prepare_case import FEWBIT, MODEL, Scratch, content, run, run_json, write_gptq_model, write_model


class SameModel(Scratch):
    def test_perplexity_has_the_same_bits_and_text_is_the_same(self):
        self.prepared()
        excerpt = self.folder / "excerpt.txt"  # short: sanitized builds are slow
        excerpt.write_text((MODEL / "val.txt").read_text()[:12000])
        text = ("--text", excerpt)
        plain, prepared = (run_json(self, "eval", model, *text) for model in (MODEL, self.out))
        self.assertEqual(plain["mean_nll"], prepared["mean_nll"])
        self.assertEqual(plain["perplexity"], prepared["perplexity"])
        # Experts are mapped, not copied.
        self.assertGreater(plain["prepared_bytes"], 5_000_000)
        self.assertEqual(prepared["prepared_bytes"], 0)
        written = [run("generate", model, "--prompt", "Once upon a time", "--temperature", "0").stdout
                   for model in (MODEL, self.out)]
        self.assertEqual(written[0].splitlines()[0], written[1].splitlines()[0])

    def test_every_backend_that_plans_the_same_buffers_opens_it(self):
        self.prepared("--backend", "cpu_generic")
        first = None
        for backend in ("cpu_generic", "cpu_avx2", "cpu_avx512"):
            result = run("generate", self.out, "--prompt", "Once", "--backend", backend)
            if "has" in result.stderr and "isa" in result.stderr:
                continue  # this machine lacks the instructions
            self.assertEqual(result.returncode, 0, result.stderr)
            first = first or result.stdout
        self.assertIsNotNone(first)
        self.expect_error("prepared for backend cpu_generic", "reference",
                          args=("eval", self.out, "--text", MODEL / "README.md", "--backend",
                                "reference"))

    def test_the_reference_backend_has_a_form_of_its_own(self):
        self.prepared("--backend", "reference", "--verify")
        self.assertIn("runs on reference", run("check", self.out).stdout)
        self.expect_error("prepared for backend reference", "cpu_generic",
                          args=("eval", self.out, "--text", MODEL / "README.md", "--backend",
                                "cpu_generic"))

    def test_threads_do_not_change_a_byte(self):
        self.prepared("--threads", 1)
        report = run_json(self, "prepare", MODEL, "-o", self.folder / "two", "--threads", 2,
                          "--verify")
        self.assertEqual(content(self.out), content(self.folder / "two"))
        self.assertEqual((report["experts"], report["layers"]), (96, 6))
        self.assertEqual(report["verified_experts"], 96)

    @unittest.skipUnless("FEWBIT_TEST_MEMORY" in os.environ, "FEWBIT_TEST_MEMORY is not set: for the g++ build without sanitizers, which have memory of their own")
    def test_memory_is_an_expert_a_thread_whatever_the_size(self):
        for experts in (16, 128):  # of 442 kB each
            write_model(self.folder / f"source{experts}", layers=1, experts=experts)
        for verify in ((), ("--verify",)):
            peaks = []
            for experts in (16, 128):
                out = self.folder / f"out{experts}{len(verify)}"
                # A shell in between: a child inherits the peak of whom it was forked from.
                result = subprocess.run(
                    ["sh", "-c", '"$@"; exit', "sh", FEWBIT, "prepare",
                     self.folder / f"source{experts}", "-o", out, "--json", "--threads", "2",
                     *verify], capture_output=True, text=True, timeout=280)
                peaks.append(json.loads(result.stdout)["peak_rss_bytes"])
            self.assertLess(peaks[1], peaks[0] + (4 << 20), (verify, peaks))

    def test_commands_say_what_it_is(self):
        self.prepared()
        self.assertIn("cpu_f4_lane16", run("inspect", self.out).stdout)
        self.assertIn("prepared for", run("explain", self.out).stdout)
        page = run_json(self, "check", self.out, "--source", MODEL)
        self.assertTrue(page["prepared"])
        self.assertEqual(page["verified_experts"], 96)


class Slices(Scratch):
    def test_slices_are_written_checked_and_not_run_alone(self):
        for rank in range(4):
            out = self.folder / f"rank{rank}"
            report = run_json(self, "prepare", MODEL, "-o", out, "--tp", 2, "--ep", 2, "--rank",
                              rank, "--verify")
            self.assertEqual(report["experts"], 6 * 8)
            self.assertEqual(report["verified_experts"], 6 * 8)
            self.assertIn(f"rank {rank} of 4 (tensor 2, expert 2)", run("check", out).stdout)
            self.expect_error(f"this is rank {rank} of 4",
                              args=("eval", out, "--text", MODEL / "README.md"))

    def test_ranks_that_get_nothing_are_refused_with_the_legal_ones(self):
        self.expect_error("9 ranks can't share 128 intermediate features: they are 8 runs of 16, at least one a rank; "
                          "legal: 1 to 8\n", args=("prepare", MODEL, "-o", self.out, "--tp", 9), code=2)
        self.expect_error("17 ranks can't share 16 experts: at least one a rank; legal: 1 to 16\n",
                          args=("prepare", MODEL, "-o", self.out, "--ep", 17), code=2)
        self.expect_error("rank 2, but 2 tensor ranks x 1 expert rank are 2; legal: 0 to 1\n",
                          args=("prepare", MODEL, "-o", self.out, "--tp", 2, "--rank", 2), code=2)
        self.nothing_left()


class ActOrder(Scratch):
    """GPTQ desc_act: what explain finds possible over ranks is what prepare writes."""
    MARLIN = ("--backend", "marlin", "--device", "sm_90")

    def write(self, **form):
        source = self.folder / "source"
        write_gptq_model(source, **form)
        return source

    def buffers(self, out):
        layer = json.loads((out / "fewbit_prepared.json").read_text())["layers"][0]
        return {buffer["name"]: buffer["shape"] for buffer in layer["buffers"]}

    def test_our_own_backend_gives_the_same_bits(self):
        source = self.write()
        self.prepared("--backend", "reference", "--verify", source=source)
        excerpt = self.folder / "excerpt.txt"
        excerpt.write_text((MODEL / "val.txt").read_text()[:2500])
        results = [run_json(self, "eval", model, "--text", excerpt) for model in (source, self.out)]
        self.assertEqual(results[0]["mean_nll"], results[1]["mean_nll"])

    def test_the_order_of_columns_is_that_of_the_file_whatever_the_config_says(self):
        source = self.write()
        asked = (("check", 1, ("splits", "schemes", "selection")),
                 ("explain", 0, ("splits", "model_splits", "layers", "candidates")))
        said = {c: run_json(self, c, source, code=code) for c, code, _ in asked}
        schemes = [m["scheme"] for m in run_json(self, "inspect", source)]
        self.prepared(source=source)
        stated = content(self.out)
        config = json.loads((source / "config.json").read_text())
        config["quantization_config"]["desc_act"] = False
        (source / "config.json").write_text(json.dumps(config))
        now = {c: run_json(self, c, source, code=code) for c, code, _ in asked}
        for command, _, keys in asked:
            for key in keys:
                self.assertEqual(now[command].get(key), said[command].get(key), (command, key))
        self.assertEqual([m["scheme"] for m in run_json(self, "inspect", source)], schemes)
        rules = [{f["rule"] for f in page["check"]["findings"]} for page in (said, now)]
        self.assertEqual(rules[1] - rules[0], {"group-index-order"})
        again = self.folder / "again"
        made = run("prepare", source, "-o", again)
        self.assertEqual(made.returncode, 0, made.stderr)
        # What check warns of, prepare says too.
        warned = [f for f in now["check"]["findings"] if f["level"] == "warning"]
        for finding in warned:
            self.assertIn(f"{finding['rule']}  {finding['where']}", made.stdout)
        self.assertEqual(run_json(self, "prepare", source, "-o", self.folder / "third")["source_warnings"], warned)
        for name in stated:
            if name.startswith("prepared/"):
                self.assertEqual(content(again)[name], stated[name], name)
        # What was not read is not guessed.
        headers = run_json(self, "check", source, "--headers-only", code=1)
        self.assertIn("group-index-unread", {f["rule"] for f in headers["findings"]})

    def test_every_rank_has_its_columns_and_all_scales(self):
        source = self.write()
        for args, on in ((("--backend", "reference"), ()),
                         (self.MARLIN, (*self.MARLIN, "--engine", "vllm"))):
            for ranks in (2, 4):
                told = run("explain", source, "--tp", ranks, *on)
                self.assertEqual(told.returncode, 0, told.stderr)
                self.assertRegex(told.stdout, args[1] + r" +chosen")
                for rank in range(ranks):
                    out = self.folder / f"{args[1]}-{rank}-of-{ranks}"
                    report = run_json(self, "prepare", source, "-o", out, "--tp", ranks, "--rank",
                                      rank, *args, "--verify")
                    self.assertEqual(report["verified_experts"], 4)
                    shapes = self.buffers(out)
                    if args[1] == "marlin":
                        self.assertEqual(shapes["w2.scales"], [8, 128])
                        self.assertEqual(shapes["w2.order"], [256 // ranks])
                    else:
                        self.assertEqual(shapes["down.scales"], [128, 8])
                        self.assertEqual(shapes["down.g_idx"], [256 // ranks])

    def test_sizes_that_the_kernels_refuse_are_refused_by_both_with_the_legal_ones(self):
        source = self.write()
        need = "needs intermediate_size % 64 = 0, has 32"
        self.assertIn(need, run("explain", source, "--tp", 8, *self.MARLIN, "--engine",
                                "vllm").stdout)
        self.expect_error(need, "marlin takes 1, 2, 4 tensor ranks",
                          args=("prepare", source, "-o", self.out, "--tp", 8, *self.MARLIN))
        undealt = ("3 ranks can't share 256 intermediate features equally: 256 / 3 = 85.3333; "
                   "legal, in whole runs of 8: 1, 2, 4, 8, 16, 32\n")
        self.expect_error(undealt, args=("explain", source, "--tp", 3, *self.MARLIN, "--engine", "vllm"),
                          code=2)
        self.expect_error(undealt, args=("prepare", source, "-o", self.out, "--tp", 3, *self.MARLIN),
                          code=2)
        self.nothing_left()
        # Whole words dealt unevenly, as our own kernels take them.
        self.prepared("--tp", 3, "--rank", 2, "--backend", "reference", "--verify", source=source)

    def test_one_group_over_all_columns_is_no_other_form(self):
        source = self.write(hidden=128, inner=256, group=128)
        report = run_json(self, "prepare", source, "-o", self.out, *self.MARLIN, "--verify")
        self.assertEqual(report["verified_experts"], 4)
        shapes = self.buffers(self.out)
        self.assertEqual((shapes["w13.scales"], shapes["w2.scales"]), ([1, 512], [2, 128]))
        self.assertEqual(shapes["w2.order"], [256])
        self.assertNotIn("w13.order", shapes)  # all columns are of one group

    def test_activations_are_the_models_own_unless_asked_for(self):
        source = self.write()
        path = source / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"torch_dtype": "float16"}))
        turing = ("--backend", "marlin", "--device", "sm_75")
        self.assertIn("f16 activations", run("explain", source, *turing, "--engine", "vllm").stdout)
        report = run_json(self, "prepare", source, "-o", self.out, *turing, "--verify")
        self.assertEqual(report["activation_dtype"], "f16")
        layer = json.loads((self.out / "fewbit_prepared.json").read_text())["layers"][0]
        self.assertIn(("w13.scales", "f16"),
                      {(buffer["name"], buffer["dtype"]) for buffer in layer["buffers"]})
        other = self.folder / "other"
        self.expect_error("needs activations in f16, has bf16",
                          args=("prepare", source, "-o", other, *turing, "--activation-dtype",
                                "bf16"))
        own = run_json(self, "prepare", source, "-o", other, "--backend", "reference")
        self.assertEqual(own["activation_dtype"], "bf16")

    def test_kernels_without_act_order_say_so_in_both(self):
        source = self.write()
        for backend, device in (("vllm_triton_wna16", "sm_90"), ("vllm_cpu_int4", "cpu:amx"),
                                ("xpu_int4", "xpu")):
            need = "without act-order in groups, has act-order"
            on = ("--backend", backend, "--device", device, "--tp", 2)
            self.assertIn(need, run("explain", source, "--engine", "vllm", *on).stdout)
            self.expect_error(need, args=("prepare", source, "-o", self.out, *on))
        self.nothing_left()

    def test_gate_and_up_in_two_orders_are_refused_by_both(self):
        source = self.write(up_order=5)
        reason = "gate and up of 4 experts have two act-orders, and the kernels have one for both"
        self.assertIn("described, not preparable: " + reason,
                      run("explain", source, *self.MARLIN, "--engine", "vllm").stdout)
        for split in ((), ("--ep", 2, "--rank", 1), ("--tp", 2, "--rank", 1)):
            self.expect_error("marlin is described, not preparable: " + reason,
                              "the first is expert 0",
                              args=("prepare", source, "-o", self.out, *self.MARLIN, *split))
        self.nothing_left()
        self.prepared("--backend", "reference", "--verify", source=source)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
