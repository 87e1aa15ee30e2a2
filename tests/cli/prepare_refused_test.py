#!/usr/bin/env python3
"""fewbit prepare with bad luck: full disks, closed folders, broken sources, names in the way.

usage: prepare_refused_test.py FEWBIT MODEL_DIR   (standard library only)
"""
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

from prepare_case import FEWBIT, MODEL, Scratch, content, rewrite_header, run, write_model


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

    def test_memory_that_has_too_little_room_for_all_files_is_not_begun_with(self):
        """A file system in memory of 8 MiB, each of whose files alone would fit."""
        source = self.folder / "large"
        write_model(source, layers=4, experts=8)
        disk = self.folder / "disk"
        disk.mkdir()
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c",
             'mount -t tmpfs -o size=8m none "$0" || exit 77; touch "$0/kept"; '
             '"$@"; code=$?; ls -A "$0"; exit $code', disk, FEWBIT, "prepare", source, "-o", disk / "out"],
            capture_output=True, text=True, timeout=800)
        if done.returncode == 77 or "unshare" in done.stderr:
            self.skipTest("no right to mount a file system in memory: " + done.stderr.strip())
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("cannot reserve", done.stderr)
        self.assertIn("No space left on device", done.stderr)
        self.assertEqual(done.stdout.split(), ["kept"])

    def test_a_disk_that_is_full_at_once_leaves_no_empty_journal(self):
        self.expect_error("out.partial.journal", "File too large", limit=16,
                          args=("prepare", MODEL, "-o", self.out))
        self.nothing_left()

    def test_too_few_open_files_are_named_and_leave_nothing(self):
        # With fewer the check of dynamic types in sanitized programs finds no file for itself.
        for most in (8, 9, 10):
            self.expect_error("Too many open files", f"may have {most} at once", "ulimit -n",
                              args=("prepare", MODEL, "-o", self.out), open_files=most)
            self.nothing_left()

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


class BadSource(Scratch):
    def refused(self, source, *texts):
        self.expect_error(*texts, args=("prepare", source, "-o", self.out))
        self.nothing_left()

    def test_a_source_that_is_cut_meanwhile_is_named(self):
        for _ in range(3):
            source = self.folder / "source"
            write_model(source, layers=2, experts=64)
            weights = source / "model.safetensors"
            process = subprocess.Popen([FEWBIT, "prepare", source, "-o", self.out],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            while process.poll() is None and not (self.partial / "prepared").exists():
                time.sleep(0.001)
            process.send_signal(signal.SIGSTOP)
            os.truncate(weights, 1 << 20)
            process.send_signal(signal.SIGCONT)
            said = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, 1, said)
            self.assertIn(str(weights), said)
            self.assertRegex(said, "could not be read any more|has changed while")
            shutil.rmtree(source)
            for left in self.folder.glob("out*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()

    def test_a_missing_layer_is_refused_with_the_finding_of_check(self):
        source = self.writable_model()
        rewrite_header(source / "model.safetensors", lambda header, data: (
            {name: info for name, info in header.items() if ".layers.5." not in name}, data))
        # The data of the layer is still there: a checkpoint that was cut must be whole again.
        self.assertEqual(run("check", source).returncode, 1)
        self.refused(source)

    def test_a_config_of_another_model_is_refused(self):
        source = self.writable_model()
        config = json.loads((source / "config.json").read_text())
        for key, value, text in (("num_hidden_layers", 7, "tensor-missing"),
                                 ("vocab_size", 4097, "config-size"),
                                 ("num_attention_heads", 4, "config-size")):
            (source / "config.json").write_text(json.dumps(config | {key: value}))
            self.refused(source, "in the source:", "found", "expected")

    def test_scales_that_are_no_numbers_are_refused(self):
        source = self.folder / "source"
        write_model(source, layers=1, experts=4, hidden=128, inner=128,
                    global_scale=lambda rng: float("nan"))
        self.refused(source, "in the source:", "weight_scale_2")

    def test_what_a_model_needs_and_can_not_be_copied_is_named(self):
        """Left out, its lack would be seen when the prepared model is opened."""
        def put(kind, path):
            path.unlink(missing_ok=True)
            if kind == "link":
                path.symlink_to("/nonexistent")
            elif kind == "FIFO":
                os.mkfifo(path)
            elif kind == "folder":
                path.mkdir()
            else:
                with open(path, "wb") as file:
                    file.truncate(70 << 20)
        for name, kind, words in (("tokenizer.json", "link", "a link to nothing"),
                                  ("chat_template.jinja", "FIFO", "expected a regular file, found a FIFO"),
                                  ("tokenizer.json", "folder", "expected a regular file, found a directory"),
                                  ("tokenizer.model", "large", f"{70 << 20} bytes, files beside the weights are copied up to {64 << 20}")):
            for command in (("prepare",), ("convert", "--to", "bf16")):
                source = self.writable_model()
                put(kind, source / name)
                self.expect_error(name, words, args=(*command, source, "-o", self.out))
                self.assertEqual([p.name for p in self.folder.glob("out*")], [])
                shutil.rmtree(source)
        source = self.writable_model()
        (source / "tokenizer").mkdir()
        (source / "notes.txt").symlink_to("/nonexistent")
        self.prepared(source=source)

    def test_a_text_of_the_source_is_in_no_ones_way(self):
        source = self.writable_model()
        (source / "prepared").write_text("notes")
        self.prepared(source=source)
        self.assertIn("prepared/layer-00000.safetensors", content(self.out))

    def test_a_name_that_is_no_text_is_refused(self):
        source = self.writable_model()
        (source / os.fsdecode(b"license-caf\xe9.txt")).write_text("of the weights")
        self.refused(source, "is no UTF-8", "caf")

    def test_a_prepared_model_is_no_source(self):
        self.prepared()
        for command in (("prepare", self.out, "-o", self.folder / "again"),
                        ("convert", self.out, "-o", self.folder / "again", "--to", "bf16"),
                        ("quantize", self.out, "-o", self.folder / "again")):
            self.expect_error("a prepared model already", command[0], args=command)
        self.assertFalse((self.folder / "again").exists())


class OtherEngines(Scratch):
    ON = ("--device", "sm_90", "--engine", "vllm")

    def write(self, gate, up):
        """Experts whose gate and up have these global scales."""
        turn = iter(range(1 << 20))
        source = self.folder / "source"
        write_model(source, layers=1, experts=4, hidden=128, inner=128,
                    global_scale=lambda rng: (gate, up, 0.5)[next(turn) % 3])
        return source

    def test_global_scales_that_can_be_one_exactly_become_one(self):
        source = self.write(0.25, 0.5)
        self.prepared("--backend", "marlin", "--device", "sm_90", "--verify", source=source)
        self.assertRegex(run("explain", source, *self.ON).stdout, r"marlin +chosen\n  humming")
        page = run("check", self.out, "--source", source, "--device", "sm_90").stdout
        self.assertIn("read by marlin of vLLM", page)
        self.assertIn("marlin of vLLM refuses it: device: needs a CUDA device, has",
                      run("check", self.out, "--device", "cpu:avx2").stdout)

    def test_those_that_can_not_are_named_before_anything_is_written(self):
        source = self.write(0.25, 0.3)
        text = "gate and up of 4 experts have two global scales"
        self.expect_error("model.layers.0.mlp.experts", "not preparable", text,
                          "the first is expert 0",
                          args=("prepare", source, "-o", self.out, "--backend", "marlin",
                                "--device", "sm_90"))
        self.nothing_left()
        told = run("explain", source, *self.ON, "--backend", "marlin").stdout
        self.assertIn("described, not preparable: " + text, told)
        # Our own kernels keep both.
        self.prepared("--verify", source=source)

    def test_scales_that_the_layout_would_lose_name_the_expert_and_leave_nothing(self):
        source = self.write(0.25, 0.25)
        raw = bytearray((source / "model.safetensors").read_bytes())
        (length,) = struct.unpack("<Q", raw[:8])
        name = "model.layers.0.mlp.experts.2.down_proj.weight_scale"
        begin, end = json.loads(raw[8:8 + length])[name]["data_offsets"]
        # The smallest e4m3 scale beside the largest.
        raw[8 + length + begin:8 + length + end] = b"\x01\x7e" * ((end - begin) // 2)
        (source / "model.safetensors").write_bytes(raw)
        self.expect_error("model.layers.0.mlp.experts expert 2", "scales of w2 would be lost",
                          args=("prepare", source, "-o", self.out, "--backend", "marlin",
                                "--device", "sm_90"))
        self.nothing_left()

    def test_what_is_only_described_is_said_by_both(self):
        source = self.write(0.25, 0.25)
        reason = "how its kernels want weights arranged is not public"
        self.expect_error("humming is described, not preparable", reason,
                          args=("prepare", source, "-o", self.out, "--backend", "humming",
                                "--device", "sm_90"))
        self.nothing_left()
        self.assertIn("described, not preparable: " + reason,
                      run("explain", source, *self.ON, "--backend", "humming").stdout)

    def test_kernels_for_batched_tokens_are_prepared_for_their_exchange(self):
        source = self.write(0.25, 0.25)
        batched = ("--backend", "batched_marlin", "--device", "sm_90")
        self.expect_error("needs token exchange deepep_low_latency or nixl, has none",
                          args=("prepare", source, "-o", self.out, *batched))
        self.prepared(*batched, "--ep", 2, "--exchange", "deepep_low_latency", "--verify",
                      source=source)
        self.assertIn("read by batched_marlin",
                      run("check", self.out, "--device", "sm_90").stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
