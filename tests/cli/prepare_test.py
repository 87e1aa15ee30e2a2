#!/usr/bin/env python3
"""fewbit prepare as its users call it: the same model, any interruption, every kind of bad luck.

usage: prepare_test.py FEWBIT MODEL_DIR   (standard library only)
"""
import fcntl
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

FEWBIT = sys.argv[1]
MODEL = pathlib.Path(sys.argv[2])
KILLS = 20


def run(*args, limit=None):
    def set_limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [FEWBIT, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=800,
        preexec_fn=set_limit if limit else None,
    )


def run_json(case, *args):
    result = run(*args, "--json")
    case.assertEqual(result.returncode, 0, result.stderr)
    return json.loads(result.stdout)


def content(folder):
    """Every file below a folder with its bytes."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write_model(folder, layers=3, experts=24, hidden=512, inner=512):
    """A random NVFP4 model, large enough that preparing it takes a moment."""
    rng = random.Random(7)
    folder.mkdir()
    tensors = {}

    def add(name, dtype, shape, data):
        tensors[name] = (dtype, shape, data)

    for layer in range(layers):
        base = f"model.layers.{layer}.mlp"
        add(f"{base}.gate.weight", "BF16", [experts, hidden], rng.randbytes(experts * hidden * 2))
        for expert in range(experts):
            for name, n, k in (("gate_proj", inner, hidden), ("up_proj", inner, hidden),
                               ("down_proj", hidden, inner)):
                module = f"{base}.experts.{expert}.{name}"
                add(f"{module}.weight", "U8", [n, k // 2], rng.randbytes(n * k // 2))
                add(f"{module}.weight_scale", "F8_E4M3", [n, k // 16],
                    bytes(0x20 + b % 64 for b in rng.randbytes(n * k // 16)))
                add(f"{module}.weight_scale_2", "F32", [], struct.pack("<f", rng.random()))
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            out.write(data)
    config = json.loads((MODEL / "config.json").read_text())
    config.update(hidden_size=hidden, moe_intermediate_size=inner, num_experts=experts,
                  num_hidden_layers=layers)
    (folder / "config.json").write_text(json.dumps(config))


class Scratch(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.out = self.folder / "out"
        self.partial = self.folder / "out.partial"
        self.journal = self.folder / "out.partial.journal"

    def expect_error(self, *texts, args, limit=None, code=1):
        result = run(*args, limit=limit)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        for text in texts:
            self.assertIn(text, result.stderr)

    def writable_model(self):
        model = self.folder / "model"
        shutil.copytree(MODEL, model)
        for path in model.iterdir():
            path.chmod(0o644)
        return model

    def prepared(self, *args):
        result = run("prepare", MODEL, "-o", self.out, *args)
        self.assertEqual(result.returncode, 0, result.stderr)

    def nothing_left(self):
        self.assertEqual([p.name for p in self.folder.glob("out*")], [])


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

    @unittest.skipUnless("FEWBIT_TEST_MEMORY" in os.environ, "only where memory is not instrumented")
    def test_memory_is_an_expert_a_thread_whatever_the_size(self):
        peaks = []
        for experts in (16, 128):  # of 442 kB each
            source = self.folder / f"source{experts}"
            write_model(source, layers=1, experts=experts)
            # A shell in between: a child inherits the peak of whom it was forked from.
            result = subprocess.run(
                ["sh", "-c", '"$@"; exit', "sh", FEWBIT, "prepare", source, "-o",
                 self.folder / f"out{experts}", "--json", "--threads", "2"],
                capture_output=True, text=True, timeout=280)
            peaks.append(json.loads(result.stdout)["peak_rss_bytes"])
        self.assertLess(peaks[1], peaks[0] + (4 << 20), peaks)

    def test_commands_say_what_it_is(self):
        self.prepared()
        self.assertIn("cpu_f4_lane16", run("inspect", self.out).stdout)
        self.assertIn("prepared for", run("explain", self.out).stdout)
        page = run_json(self, "check", self.out, "--source", MODEL)
        self.assertTrue(page["prepared"])
        self.assertEqual(page["verified_experts"], 96)
        self.expect_error("a prepared model already",
                          args=("prepare", self.out, "-o", self.folder / "again"))


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
        self.expect_error("128 intermediate features in runs of 16 can't be dealt to 9 ranks",
                          "1 to 8 ranks", args=("prepare", MODEL, "-o", self.out, "--tp", 9), code=2)
        self.expect_error("16 experts can't be dealt to 17 ranks",
                          args=("prepare", MODEL, "-o", self.out, "--ep", 17), code=2)
        self.expect_error("rank 2 of 2 tensor ranks",
                          args=("prepare", MODEL, "-o", self.out, "--tp", 2, "--rank", 2), code=2)
        self.nothing_left()


class Interrupted(Scratch):
    def start(self, source, *args):
        return subprocess.Popen([FEWBIT, "prepare", source, "-o", self.out, *map(str, args)],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def interrupt(self, source, seconds, kind=signal.SIGKILL):
        process = self.start(source)
        time.sleep(seconds)
        process.send_signal(kind)
        return process.wait(timeout=60)

    def test_any_interruption_and_the_bytes_are_those_of_one_run(self):
        source = self.folder / "source"
        write_model(source)
        whole = self.folder / "whole"
        begin = time.monotonic()
        self.assertEqual(run("prepare", source, "-o", whole).returncode, 0)
        seconds = time.monotonic() - begin
        want = content(whole)
        rng = random.Random(11)
        complete = 0
        for kill in range(KILLS):
            kind = signal.SIGINT if kill % 5 == 4 else signal.SIGKILL
            code = self.interrupt(source, rng.uniform(0, seconds), kind)
            self.assertIn(code, (0, 1, -signal.SIGKILL))
            self.assertFalse(self.out.exists() and self.partial.exists())
            if self.out.exists() and not self.journal.exists():  # killed too late
                complete += 1
                self.assertEqual(content(self.out), want)
                shutil.rmtree(self.out)
        report = run_json(self, "prepare", source, "-o", self.out, "--verify")
        self.assertEqual(content(self.out), want)
        self.assertEqual(report["verified_experts"], 72)
        self.assertEqual([p.name for p in self.folder.glob("out*")], ["out"])
        self.assertLess(complete, KILLS)

    def leave_unfinished(self, source):
        """A run that was killed half way: the state is made, so that it does not depend on luck."""
        self.assertEqual(run("prepare", source, "-o", self.out).returncode, 0)
        finished = content(self.out)
        for _ in range(200):
            shutil.rmtree(self.out, ignore_errors=True)
            self.interrupt(source, random.uniform(0, 0.3))
            if self.journal.exists() and self.journal.read_text().count("\n") >= 1 and (
                    self.partial.exists()):
                return finished
        self.fail("no run could be interrupted")

    def test_finished_experts_are_not_done_again(self):
        source = self.folder / "source"
        write_model(source, layers=1, experts=8)
        finished = self.leave_unfinished(source)
        # All tasks as done, but for the last: their bytes are those of the finished model.
        head = self.journal.read_text().splitlines()[0]
        for name, data in finished.items():
            if name.endswith(".safetensors"):
                (self.partial / name).parent.mkdir(exist_ok=True)
                (self.partial / name).write_bytes(data)
        self.journal.write_text(head + "\n" + "".join(f"{i}\n" for i in range(8)) + "9")
        report = run_json(self, "prepare", source, "-o", self.out, "--verify")
        self.assertEqual(report["resumed_experts"], 7)
        self.assertEqual(content(self.out), finished)

    def test_a_changed_source_is_refused_by_name_until_restart(self):
        source = self.writable_model()
        self.leave_unfinished(source)
        with open(source / "model.safetensors", "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x55")
        os.utime(source / "model.safetensors", ns=(1, 2))
        self.expect_error("source model.safetensors: begun with", "modified at 2 ns", "restart",
                          args=("prepare", source, "-o", self.out))
        self.assertTrue(self.partial.exists())
        result = run("prepare", source, "-o", self.out, "--restart", "--verify")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([p.name for p in self.folder.glob("out*")], ["out"])

    def test_other_options_are_refused_by_name(self):
        source = self.writable_model()
        self.leave_unfinished(source)
        self.expect_error('backend: begun with "', 'now "reference"', "tensor ranks: begun with",
                          args=("prepare", source, "-o", self.out, "--backend", "reference",
                                "--tp", 2))

    def test_a_run_that_ended_before_its_last_step_is_completed(self):
        source = self.writable_model()
        self.leave_unfinished(source)
        journal = self.journal.read_text()
        self.assertEqual(run("prepare", source, "-o", self.out).returncode, 0)
        want = content(self.out)
        self.journal.write_text(journal)
        self.assertEqual(run("prepare", source, "-o", self.out).returncode, 0)
        self.assertEqual(content(self.out), want)
        self.assertFalse(self.journal.exists())
        self.expect_error("exists already", args=("prepare", source, "-o", self.out))

    def test_two_runs_do_not_share_an_output(self):
        with open(self.journal, "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.expect_error("another run is at work",
                              args=("prepare", MODEL, "-o", self.out))

    def test_an_unfinished_folder_without_its_journal_is_left_alone(self):
        self.partial.mkdir()
        (self.partial / "mine").write_text("x")
        self.expect_error("without its journal", args=("prepare", MODEL, "-o", self.out))
        self.assertTrue((self.partial / "mine").exists())


class BadLuck(Scratch):
    def test_a_full_disk_leaves_nothing_and_touches_no_old_output(self):
        old = self.folder / "old"
        self.assertEqual(run("prepare", MODEL, "-o", old).returncode, 0)
        before = content(old)
        self.expect_error("cannot reserve", "File too large", "model.safetensors", limit=1 << 20,
                          args=("prepare", MODEL, "-o", self.out))
        self.nothing_left()
        self.expect_error("exists already", args=("prepare", MODEL, "-o", old))
        self.assertEqual(content(old), before)

    def test_a_folder_that_can_not_be_written(self):
        (self.folder / "file").write_text("x")
        self.expect_error("cannot create", "Not a directory",
                          args=("prepare", MODEL, "-o", self.folder / "file" / "out"))
        if os.getuid() != 0:
            closed = self.folder / "closed"
            closed.mkdir(mode=0o500)
            self.expect_error("cannot create", "Permission denied",
                              args=("prepare", MODEL, "-o", closed / "out"))

    def test_the_source_is_no_output(self):
        source = self.writable_model()
        before = content(source)
        self.expect_error("is in it", args=("prepare", source, "-o", source))
        for folder in (self.partial, self.partial / "deep"):
            shutil.copytree(MODEL, folder)
            for restart in ((), ("--restart",)):
                self.expect_error("is in it", args=("prepare", folder, "-o", self.out, *restart))
            self.assertEqual(content(folder).keys() & before.keys(), before.keys())
            shutil.rmtree(folder)
        self.assertEqual(content(source), before)

    def test_a_folder_in_the_way_is_not_removed(self):
        shutil.copytree(MODEL, self.partial)
        before = content(self.partial)
        self.expect_error("is no unfinished output",
                          args=("prepare", self.writable_model(), "-o", self.out, "--restart"))
        self.assertEqual(content(self.partial), before)

    def test_what_can_not_be_prepared_is_said(self):
        self.expect_error("cannot open", args=("prepare", self.folder / "none", "-o", self.out))
        self.nothing_left()


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

    def test_a_manifest_that_disagrees_with_the_weights_is_refused(self):
        good = json.loads(self.manifest.read_text())
        good["layers"][1]["buffers"][0]["layout"] = "b12x_packed"
        self.manifest.write_text(json.dumps(good))
        self.expect_error("b12x_packed", "missing among", args=("check", self.out))
        good = json.loads(json.dumps(good).replace("b12x_packed", "cpu_f4_lane16"))
        good["layers"][1]["problem"]["top_k"] = 3
        self.manifest.write_text(json.dumps(good))
        self.expect_error("top_k 3", "config.json",
                          args=("eval", self.out, "--text", MODEL / "README.md"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
