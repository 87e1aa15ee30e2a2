#!/usr/bin/env python3
"""fewbit prepare killed at any moment, and what it finds when it is called again.

usage: prepare_interrupted_test.py FEWBIT MODEL_DIR   (standard library only)
"""
import fcntl
import json
import os
import random
import re
import shutil
import signal
import sys
import time
import unittest

from prepare_case import MODEL, Scratch, content, rewrite_header, run, run_json, write_model

KILLS = 20


class Interrupted(Scratch):
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
            self.assertIn(code, (0, -kind))
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

    def test_finished_experts_are_not_done_again(self):
        source = self.folder / "source"
        write_model(source, layers=1, experts=8)
        finished = self.leave_unfinished(source)
        # All tasks as done, but for the last, whose line was cut: what the others wrote is there.
        self.as_finished(finished, self.whole_journal(source)[:-3])
        report = run_json(self, "prepare", source, "-o", self.out, "--verify")
        self.assertEqual((report["resumed_experts"], report["redone"]), (7, 0))
        self.assertEqual(content(self.out), finished)

    def whole_journal(self, source):
        """The journal of a run that did everything; a small disk's limit ends it after the tasks."""
        shutil.rmtree(self.partial, ignore_errors=True)
        self.journal.unlink(missing_ok=True)
        largest = max(path.stat().st_size for path in source.iterdir())
        (source / "LICENSE-large.txt").write_bytes(bytes(2 * largest))
        try:
            self.expect_error("LICENSE-large.txt", args=("prepare", source, "-o", self.out),
                              limit=largest + 65536)
        finally:
            (source / "LICENSE-large.txt").unlink()
        text = self.journal.read_text()
        head, _, rest = text.partition("\n")
        job = json.loads(head)
        job["job"] = {key: value for key, value in job["job"].items() if "LICENSE-large.txt" not in key}
        # By their numbers, experts last: threads end in any order.
        lines = sorted(rest.splitlines(True), key=lambda line: int(line.split()[0]))
        return json.dumps(job) + "\n" + "".join(lines)

    def as_finished(self, finished, journal):
        """An unfinished output with these bytes."""
        (self.partial / "LICENSE-large.txt").unlink(missing_ok=True)
        for name, data in finished.items():
            if name.endswith(".safetensors"):
                (self.partial / name).parent.mkdir(exist_ok=True)
                (self.partial / name).write_bytes(data)
        self.journal.write_text(journal)

    def test_finished_parts_that_no_longer_have_their_bytes_are_done_again(self):
        """A disk that lost or changed what was written is not believed: not for one bit."""
        source = self.folder / "source"
        write_model(source, layers=1, experts=8)
        finished = self.leave_unfinished(source)
        journal = self.whole_journal(source)
        layer = "prepared/layer-00000.safetensors"
        rng = random.Random(3)
        for files in ([layer], ["model.safetensors"], [layer, "model.safetensors"], []):
            damaged = dict(finished)
            for name in files:
                data = bytearray(damaged[name])
                begin = 8 + int.from_bytes(data[:8], "little")
                data[rng.randrange(begin, len(data))] ^= 1 << rng.randrange(8)
                damaged[name] = bytes(data)
            self.as_finished(damaged, journal)
            text = run("prepare", source, "-o", self.out)
            self.assertEqual(text.returncode, 0, text.stderr)
            said = f"so done again: {len(files)} expert"
            self.assertEqual(said in text.stdout, bool(files), text.stdout)
            self.assertEqual(content(self.out), finished)
            shutil.rmtree(self.out)
        # Bytes are as they were, what is noted of them is not.
        lines = journal.splitlines(True)
        lines[-1] = lines[-1][:-2] + ("0" if lines[-1][-2] != "0" else "1") + "\n"
        self.as_finished(finished, "".join(lines))
        report = run_json(self, "prepare", source, "-o", self.out, "--verify")
        self.assertEqual((report["resumed_experts"], report["redone"]), (7, 1))
        self.assertEqual(content(self.out), finished)

    def test_a_journal_without_its_folder_is_no_unfinished_output(self):
        source = self.writable_model()
        self.leave_unfinished(source)
        journal = self.journal.read_text()
        shutil.rmtree(self.partial)
        for text in (journal, journal[:20]):
            shutil.rmtree(self.out, ignore_errors=True)
            self.journal.write_text(text)
            os.utime(source / "config.json", ns=(1, 2))
            result = run("prepare", source, "-o", self.out, "--verify")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("begun anew", result.stdout)
            self.assertEqual([p.name for p in self.folder.glob("out*")], ["out"])

    def test_a_file_in_the_journals_place_that_is_none_is_left_alone(self):
        for text in ("no journal at all\n", "{}\n", "x"):
            self.journal.write_text(text)
            for restart in ((), ("--restart",)):
                self.expect_error("out.partial.journal: is no journal of fewbit's",
                                  args=("prepare", MODEL, "-o", self.out, *restart))
                self.assertEqual(self.journal.read_text(), text)
            self.assertEqual([p.name for p in self.folder.glob("out*")], ["out.partial.journal"])

    def test_an_output_inside_the_source_is_no_change_of_it(self):
        source = self.writable_model()
        out = source / "prepared"
        report = run_json(self, "prepare", source, "-o", out, "--verify")
        self.assertGreater(report["verified_experts"], 0)

    def test_a_changed_source_is_refused_by_name_until_restart(self):
        source = self.writable_model()
        self.leave_unfinished(source)
        with open(source / "model.safetensors", "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x55")
        os.utime(source / "model.safetensors", ns=(1, 2))
        refused = run("prepare", source, "-o", self.out)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("source model.safetensors, modified at: begun with", refused.stderr)
        self.assertIn('now "1970-01-01 00:00:00.000000002 UTC"', refused.stderr)
        self.assertIn("restart", refused.stderr)
        self.every_difference_is_seen(refused.stderr)
        self.assertTrue(self.partial.exists())
        result = run("prepare", source, "-o", self.out, "--restart", "--verify")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([p.name for p in self.folder.glob("out*")], ["out"])

    def every_difference_is_seen(self, text):
        pairs = re.findall(r'begun with ("[^"]*"|nothing), now ("[^"]*"|nothing)', text)
        self.assertTrue(pairs, text)
        for before, now in pairs:
            self.assertNotEqual(before, now)

    def test_a_change_of_header_size_or_side_file_is_named_with_both(self):
        source = self.writable_model()
        self.leave_unfinished(source)
        size = (source / "config.json").stat().st_size
        (source / "config.json").write_text((source / "config.json").read_text() + "\n")
        refused = run("prepare", source, "-o", self.out)
        self.assertIn(f'source config.json, bytes: begun with "{size}", now "{size + 1}"',
                      refused.stderr)
        self.every_difference_is_seen(refused.stderr)
        rewrite_header(source / "model.safetensors", lambda header, data: (
            header | {"__metadata__": {"note": "another"}}, data))
        refused = run("prepare", source, "-o", self.out)
        self.assertIn("source model.safetensors, hash of the header: begun with", refused.stderr)
        self.every_difference_is_seen(refused.stderr)

    def test_a_change_is_seen_although_the_time_of_modification_is_set_back(self):
        source = self.writable_model()
        self.leave_unfinished(source)
        weights = source / "model.safetensors"
        before = weights.stat()
        with open(weights, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x55")
        os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.assertEqual(weights.stat().st_mtime_ns, before.st_mtime_ns)
        self.expect_error("source model.safetensors, changed at: begun with",
                          args=("prepare", source, "-o", self.out))

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
        for restart in ((), ("--restart",)):
            self.expect_error("is no unfinished output",
                              args=("prepare", MODEL, "-o", self.out, *restart))
            self.assertTrue((self.partial / "mine").exists())

    def test_restart_drops_what_was_not_marked_yet_or_no_longer(self):
        source = self.writable_model()
        finished = self.leave_unfinished(source)
        journal = self.journal.read_text()
        shutil.rmtree(self.partial)
        for complete in (False, True):
            # Killed between the folder and its mark; between the mark's removal and the new name.
            (self.partial / "prepared").mkdir(parents=True)
            if complete:
                for name, data in finished.items():
                    (self.partial / name).write_bytes(data)
            self.journal.write_text(journal)
            os.utime(source / "config.json", ns=(complete, 2))
            self.expect_error("source config.json, modified at: begun with", "restart drops it",
                              args=("prepare", source, "-o", self.out))
            result = run("prepare", source, "-o", self.out, "--restart")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual([p.name for p in self.folder.glob("out*")], ["out"])
            shutil.rmtree(self.out)

    def test_restart_drops_an_empty_folder_without_its_journal(self):
        (self.partial / "prepared").mkdir(parents=True)
        self.expect_error("without its journal, or with an empty one (--restart drops it)",
                          args=("prepare", MODEL, "-o", self.out))
        self.assertEqual(run("prepare", MODEL, "-o", self.out, "--restart").returncode, 0)

    def test_a_damaged_journal_says_how_to_go_on(self):
        source = self.folder / "source"
        write_model(source, layers=1, experts=8)
        head, task, rest = self.whole_journal(source).split("\n", 2)
        for damaged, words in (("", "or with an empty one"), (head[:-9], "whose journal has no whole line"),
                               ("\0" + head[1:] + "\n" + task + "\n", "journal"), ("{}\n", "expected a journal"),
                               (f"{head}\n{task}x\n{rest}", "line 2: expected the number of a task"),
                               (f"{head}\n99999 {task.split()[1]}\n", "task 99999 of")):
            self.journal.write_text(damaged)
            self.expect_error(words, "(--restart drops it)", args=("prepare", source, "-o", self.out))
        self.assertEqual(run("prepare", source, "-o", self.out, "--restart").returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
