"""Small trainings of the real binary: what they write, how they repeat, stop, die and go on."""

import json
import os
import random
import re
import signal
import statistics
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from memfloor_process import (BINARY, ROOT, SMALL, MemfloorTest, limit_file_size, read_json,
                              reproducible, strict_json)

UPDATES = 12
TRAIN = ["train", *SMALL, "--max-steps", str(UPDATES)]
OUTPUTS = ["--out", "r.json", "--save-weights", "r.safetensors", "--log-loss", "losses.jsonl"]
ENDLESS = [*SMALL]  # 200 epochs: only ever interrupted


def setUpModule():
    """One uninterrupted training, which most tests compare with."""
    global folder, base, base_out, base_err
    temporary = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(temporary.cleanup)
    folder = Path(temporary.name)
    done = subprocess.run([BINARY, *TRAIN, *OUTPUTS], cwd=folder, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    base, base_out, base_err = read_json(folder / "r.json"), done.stdout, done.stderr


def base_losses():
    return [strict_json(line) for line in (folder / "losses.jsonl").read_text().splitlines()]


def tensors(path):
    """Name to bytes of every tensor of a safetensors file."""
    data = Path(path).read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    return {name: data[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]]
            for name, entry in header.items() if name != "__metadata__"}


class TrainingTest(MemfloorTest):

    def assert_equals_base(self, same_threads=True):
        """Weights and losses as bytes, quality and memory of r.json as numbers; nothing else is
        in the folder."""
        for name in ["r.safetensors", "losses.jsonl"]:
            self.assertEqual((self.folder / name).read_bytes(), (folder / name).read_bytes(), name)
        result = read_json(self.folder / "r.json")
        self.assertEqual(result["quality"], base["quality"])
        if same_threads:
            self.assertEqual(reproducible(result["memory"]), reproducible(base["memory"]))
            self.assertEqual(result["notes"], base["notes"])
        else:  # the library's workspace depends on them, nothing else does
            for category, size in base["memory"]["category_peak"].items():
                if category != "workspace":
                    self.assertEqual(result["memory"]["category_peak"][category], size)
            self.assertIn("continued with another number of threads", result["notes"][-1])
        self.assertEqual(self.names() - {"spec.json"},
                         {"r.json", "r.safetensors", "losses.jsonl"})


class FinishedRuns(TrainingTest):

    def test_the_report(self):
        self.assertEqual(len(base["quality"]["curve"]), 1)
        accuracy = base["quality"]["test_accuracy"]
        self.assertRegex(base_out, rf"\ntest accuracy {100 * accuracy:.2f} %, ")
        self.assertRegex(base_out, r"\nnote: shortened training: 12 updates")
        self.assertTrue(base_out.endswith("\nresult: r.json\n"))
        self.assertRegex(base_err, r"(?m)^epoch 1: train loss \d\.\d+, test accuracy ")
        for text in (base_out, base_err):  # no terminal: plain lines
            self.assertNotRegex(text, r"[\x00-\x09\x0b-\x1f\x7f]")

    def test_the_loss_log(self):
        losses = base_losses()
        self.assertEqual([entry["update"] for entry in losses], list(range(1, UPDATES + 1)))
        for entry in losses:
            self.assertEqual(set(entry), {"update", "loss", "learning_rate"})
            self.assertTrue(0 < entry["loss"] < 100)
            self.assertAlmostEqual(entry["learning_rate"], 0.1)
        self.assertAlmostEqual(statistics.mean(entry["loss"] for entry in losses),
                               base["quality"]["curve"][0]["train_loss"])

    def test_its_own_spec_gives_the_same_bytes(self):
        self.write("spec.json", json.dumps(base["spec"]))
        out = self.run_well("train", "--spec", "spec.json", *OUTPUTS, "--json")
        self.assertEqual(strict_json(out), read_json(self.folder / "r.json"))
        self.assertEqual(strict_json(out)["spec"], base["spec"])
        self.assert_equals_base()

    def test_saved_weights_evaluate_to_the_reported_accuracy(self):
        self.run_well("evaluate", *SMALL, "--weights", folder / "r.safetensors", "--out", "e.json")
        evaluated = read_json(self.folder / "e.json")
        self.assertEqual(evaluated["quality"]["test_accuracy"], base["quality"]["test_accuracy"])
        self.assertEqual(evaluated["notes"],
                         ["shortened evaluation: accuracy is over the first 205 test images only"])
        measured, predicted = self.folder / "m.json", self.folder / "p.json"
        self.run_well("measure", *SMALL, "--out", measured)
        self.run_well("predict", *SMALL, "--out", predicted)
        check = subprocess.run([ROOT / "scripts" / "check_results", folder / "r.json", measured,
                                predicted, self.folder / "e.json"],
                               capture_output=True, text=True, check=False)
        if check.returncode == 77:
            self.skipTest(check.stdout.strip())
        self.assertEqual(check.returncode, 0, check.stderr)

    def test_weights_of_another_model_are_refused(self):
        self.assert_refused("evaluate", "--model", "wrn10_2", "--weights",
                            folder / "r.safetensors", words=["r.safetensors", "shape", "weight"])
        self.assert_refused("evaluate", "--model", "wrn16_1", "--weights",
                            folder / "r.safetensors", words=["r.safetensors", "shape", "weight"])

    def test_initial_weights_make_the_round_trip(self):
        # Steps of 1e-30 change no weight; the running statistics do move.
        self.run_well("train", *SMALL, "--max-steps", "1", "--learning-rate", "1e-30",
                      "--init-weights", folder / "r.safetensors", "--save-weights", "again")
        given, saved = tensors(folder / "r.safetensors"), tensors(self.folder / "again")
        self.assertEqual(list(given), list(saved))
        for name in given:
            if ".running_" not in name:
                self.assertEqual(given[name], saved[name], name)

    def test_flags_that_change_the_losses(self):
        wanted = [entry["loss"] for entry in base_losses()[:3]]
        self.assertEqual(self.interrupt_after(3, *ENDLESS)[0], wanted)
        for flags, unchanged in [(["--learning-rate", "0.01"], 1), (["--order", "sequential"], 0),
                                 (["--no-augment"], 0), (["--seed", "2"], 0)]:
            losses, err = self.interrupt_after(3, *ENDLESS, *flags)
            with self.subTest(flags=flags):
                self.assertEqual(losses[:unchanged], wanted[:unchanged])
                for i in range(unchanged, 3):
                    self.assertNotEqual(losses[i], wanted[i])
                self.assertRegex(err, r"memfloor: interrupted after update \d+ of 1000000; without "
                                      r"--out there is no snapshot to continue from\n\Z")

    def test_several_seeds(self):
        out = self.run_well("train", *SMALL, "--max-steps", "1", "--seeds", "1,2",
                            "--out", "r.json")
        self.assertEqual(self.names(), {"r_seed1.json", "r_seed2.json"})
        results = [read_json(self.folder / f"r_seed{seed}.json") for seed in (1, 2)]
        self.assertEqual([result["spec"]["seed"] for result in results], [1, 2])
        accuracies = [100 * result["quality"]["test_accuracy"] for result in results]
        found = re.search(r"test accuracy over 2 seeds: mean (\S+) %, standard deviation (\S+) "
                          r"points\n\Z", out)
        self.assertAlmostEqual(float(found[1]), statistics.mean(accuracies), delta=0.00501)
        self.assertAlmostEqual(float(found[2]), statistics.stdev(accuracies), delta=0.00501)


class StoppedRuns(TrainingTest):

    def test_interrupted_and_continued_with_another_number_of_threads(self):
        _, err = self.interrupt_after(2, *TRAIN[1:], *OUTPUTS[:4])
        self.assertRegex(err, rf"memfloor: interrupted after update \d+ of {UPDATES}; continue "
                              r"with the same command and --resume\n\Z")
        self.assertEqual(self.names(), {"r.json.snapshot", "losses.jsonl"})
        snapshot = self.folder / "r.json.snapshot"
        whole = snapshot.read_bytes()
        self.assert_refused(*TRAIN, *OUTPUTS, "--resume", "--seed=2",
                            words=["r.json.snapshot", "its seed is 1, not 2", "another --out"])
        for damage in [whole[:len(whole) // 2], whole[:-1],
                       whole.replace(b"epoch_loss", b"epoch_lost"),
                       whole.replace(b'"F32"', b'"F31"', 1),
                       re.sub(rb'(updates\\":)\d', rb"\g<1>0", whole)]:
            self.assertNotEqual(damage, whole)
            snapshot.write_bytes(damage)
            self.assert_refused(*TRAIN, *OUTPUTS, "--resume",
                                words=["r.json.snapshot", "damaged"])
        snapshot.write_bytes(whole)
        more_threads = [*TRAIN, *OUTPUTS, "--resume"]
        more_threads[more_threads.index("--threads") + 1] = "2"
        status, _, err = self.run_memfloor(*more_threads)
        self.assertEqual(status, 0, err)
        self.assertRegex(err, r"(?m)^continuing after update \d+$")
        self.assert_equals_base(same_threads=False)

    def test_killed_at_random_moments_and_continued(self):
        chance = random.Random(20)
        arguments = [*TRAIN, *OUTPUTS, "--snapshot-every", "2", "--resume"]
        snapshot = self.folder / "r.json.snapshot"
        kills = 0
        for _ in range(50):
            process = self.start(*arguments)
            self.wait_until(snapshot.exists, process)
            # From the first milliseconds of a start to the last evaluation.
            time.sleep(chance.choice([0.01, 0.05, 0.2]) * chance.random())
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
            # Half-written files do not pile up: at most one for each of three.
            left = self.names() - {"r.json.snapshot", "losses.jsonl", "r.json", "r.safetensors"}
            self.assertTrue(all(name.endswith(".tmp") for name in left), left)
            self.assertLessEqual(len(left), 3)
            if kills == 5:
                break
        self.assertEqual(kills, 5)
        # As left by a kill in the middle of writing; the next run clears it.
        self.write("r.json.snapshot.4000000.0.tmp", b"half a snapshot")
        self.run_well(*arguments)
        self.assert_equals_base()

    def test_a_diverged_run_can_be_continued(self):
        diverging = [*ENDLESS, "--learning-rate", "1e30", "--out", "r.json"]
        self.interrupt_after(4, *diverging)
        losses = [json.loads(line)["loss"]
                  for line in (self.folder / "losses.jsonl").read_text().splitlines()]
        self.assertIsNone(losses[3])  # NaN, as JSON has it
        _, err = self.interrupt_after(1, *diverging, "--resume")
        self.assertIn("continuing after update", err)

    def test_overflows_count_as_minibatches_and_survive_an_interruption(self):
        # At such a scale the first minibatches overflow FP16; each halves it.
        arguments = [*SMALL, "--precision", "fp16", "--loss-scale", "1e9", "--max-steps", "3"]
        self.run_well("train", *arguments, *OUTPUTS)
        whole = {name: (self.folder / name).read_bytes() for name in self.names()}
        lines = [strict_json(line) for line in whole["losses.jsonl"].splitlines()]
        skipped = sum("skipped" in line for line in lines)
        self.assertGreaterEqual(skipped, 3)
        self.assertEqual([line["update"] for line in lines], [1] * skipped + [1, 2, 3])
        self.assertEqual(read_json(self.folder / "r.json")["notes"][-1],
                         "minibatches skipped because gradients overflowed FP16: "
                         f"{skipped} of {len(lines)}")
        for name in whole:
            (self.folder / name).unlink()
        _, err = self.interrupt_after(2, *arguments, *OUTPUTS[:4])
        self.assertIn("its gradients overflow FP16", err)
        self.run_well("train", *arguments, *OUTPUTS, "--resume")
        for name in ["r.safetensors", "losses.jsonl"]:
            self.assertEqual((self.folder / name).read_bytes(), whole[name], name)

    def test_a_training_that_diverges_in_fp16_ends(self):
        for precision in ["fp16", "fp16_master", "fp16_mixed"]:
            status, _, err = self.run_memfloor("train", *SMALL, "--precision", precision,
                                               "--learning-rate", "1e30")
            self.assert_one_sentence(status, err[err.index("memfloor:"):], "diverged",
                                     "--learning-rate", "bf16")

    def test_weights_that_cannot_be_written_do_not_cost_the_result(self):
        status, out, err = self.run_memfloor(
            "train", *SMALL, "--max-steps", "1", *OUTPUTS[:4],
            preexec_fn=limit_file_size(100_000))
        self.assert_one_sentence(status, err.split("\n", 1)[1], "r.safetensors", "File too large")
        self.assertIn("test accuracy", out)
        self.assertEqual(read_json(self.folder / "r.json")["spec"]["max_steps"], 1)
        self.assertEqual(self.names(), {"r.json"})

    def test_a_snapshot_that_cannot_be_written_does_not_stop_the_run(self):
        _, err = self.interrupt_after(5, *ENDLESS, "--out", "r.json", "--snapshot-every", "2",
                                      preexec_fn=limit_file_size(100_000))
        self.assertRegex(err, r"(?m)^warning: no snapshot after update 2: .*File too large")
        self.assertIn("could not be written", err.splitlines()[-1])
        self.assertEqual(self.names(), {"losses.jsonl"})



class OtherProcessors(TrainingTest):
    """BF16 trains on processors without its instructions too: the same losses to its rounding."""

    def losses(self, **environment):
        out = self.folder / "l.jsonl"
        self.run_well("train", *SMALL, "--precision", "bf16_mixed", "--learning-rate", "0.02",
                      "--max-steps", "4", "--log-loss", out, env={**os.environ, **environment})
        return [strict_json(line)["loss"] for line in out.read_text().splitlines()]

    def test_without_bf16_instructions(self):
        native = self.losses()
        for isa in ["AVX512_CORE", "AVX2"]:
            other = self.losses(ONEDNN_MAX_CPU_ISA=isa, MEMFLOOR_NO_AMX="1")
            for a, b in zip(native, other, strict=True):
                self.assertAlmostEqual(a, b, delta=0.02)


if __name__ == "__main__":
    unittest.main()
