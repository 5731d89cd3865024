"""The command line: what it refuses, in which words, and what the quick commands print."""

import contextlib
import json
import os
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

from memfloor_process import SMALL, MemfloorTest, limit_file_size, read_json, strict_json

PREDICT = ["predict", *SMALL]
CIFAR_FILES = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
CIFAR_BYTES = 30_730_000
CATEGORIES = ["weight", "sparse_index", "gradient", "optimizer_state", "buffer", "activation",
              "transient", "workspace", "input"]


def safetensors(tensors):
    """The bytes of a file of F32 zeros with these names and shapes."""
    header, offset = {}, 0
    for name, shape in tensors.items():
        size = 4
        for extent in shape:
            size *= extent
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(offset)


class RefusedFlags(MemfloorTest):

    def test_commands(self):
        self.assert_refused(words=["a command is missing", "train", "--help"])
        self.assert_refused("fly", words=["'fly' is not a command", "predict"])
        self.assert_refused("--seed", "3", "train", words="'--seed' is not a command")

    def test_unknown_flags_and_stray_words(self):
        self.assert_refused(*PREDICT, "--batchsize", "3", words="unknown flag '--batchsize'")
        self.assert_refused(*PREDICT, "--nope=3", words="unknown flag '--nope=3'")
        self.assert_refused(*PREDICT, "--mod", "wrn10_1", words="unknown flag '--mod'")
        self.assert_refused(*PREDICT, "stray", words="'stray' is not a flag")
        self.assert_refused(*PREDICT, "-j", words="'-j' is not a flag")
        self.assert_refused(*PREDICT, "--seed", words=["'--seed'", "missing"])
        self.assert_refused(*PREDICT, "--seed", "1", "--seed", "2",
                            words=["'--seed'", "more than once"])
        self.assert_refused(*PREDICT, "--out", "", words="--out is given without a value")

    def test_flags_of_another_command(self):
        self.assert_refused("train", *SMALL, "--weights", "w",
                            words=["--weights does not go with train", "evaluate"])
        self.assert_refused(*PREDICT, "--save-weights", "w",
                            words=["--save-weights does not go with predict", "train"])
        self.assert_refused("explain", *SMALL, "--out", "x",
                            words=["--out does not go with explain", "measure"])
        self.assert_refused("bench", "--json", words="--json does not go with bench")
        self.assert_refused("train", "--benchmark_filter=x",
                            words=["'--benchmark_filter=x'", "memfloor bench"])

    def test_values(self):
        for flag, value, *words in [
                ("--batch-size", "ten", "whole number", "'ten'"),
                ("--batch-size", "1e3", "whole number", "'1e3'"),
                ("--batch-size", "99999999999999999999", "whole number"),
                ("--batch-size", "0", "at least 1"),
                ("--batch-size", "-5", "at least 1", "'-5'"),
                ("--batch-size=-5", None, "--batch-size takes", "at least 1", "'-5'"),
                ("--batch-size", "1000001", "between 1 and 1000000"),
                ("--microbatch", "0", "at least 1"),
                ("--norm", "layer", "'layer'", "batch, group"),
                ("--bn-recalibrate", "-1", "0 (off)"),
                ("--bn-recalibrate", "50001", "50001", "50000 samples"),
                ("--epochs", "0", "at least 1"), ("--epochs", "0.5", "whole number"),
                ("--max-steps", "-1", "0 (no limit) or more"),
                ("--threads", "0", "at least 1"), ("--threads", "1025", "between 1 and 1024"),
                ("--seed", "-1", "between 0 and 4294967295"),
                ("--seed", "4294967296", "between 0 and 4294967295"),
                ("--sparsity", "0.99999", "one each"), ("--sparsity", "1", "[0, 1)"),
                ("--sparse-method", "l0", "'l0'", "dsr", "set", "static"),
                ("--sparse-index", "coo", "'coo'", "bitmap", "csr16", "csr32"),
                ("--sparse-scope", "embeddings", "'embeddings'", "all", "layers"),
                ("--rewire-stop", "0", "above 0, at most 0.95", "--sparse-method static"),
                ("--rewire-stop", "0.96", "above 0, at most 0.95"),
                ("--rewire-stop", "nan", "above 0, at most 0.95"),
                ("--sparsity", "nan", "[0, 1)"), ("--sparsity", "x", "a number", "'x'"),
                ("--precision", "fp8", "'fp8'", "fp32", "bf16_mixed"),
                ("--rounding", "up", "nearest or stochastic", "'up'"),
                ("--rounding", "stochastic", "fp32", "keeps both in FP32"),
                ("--loss-scale", "128", "fp16 modes", "fp32"), ("--loss-scale", "x", "a number"),
                ("--loss-scale-window", "0", "at least 1"),
                ("--model", "vgg", "'vgg'", "wrn28_2"), ("--model", "wrn11_1", "6 n + 4"),
                ("--data", "imagenet", "'imagenet'", "synthetic", "cifar10"),
                ("--recipe", "long", "'long'", "paper", "short"),
                ("--order", "random", "'random'", "shuffled", "sequential"),
                ("--checkpoint", "all", "'all'", "none", "segments:K", "budget:BYTES"),
                ("--checkpoint", "segments:0", "from 1 to 14"),
                ("--checkpoint", "segments:99", "from 1 to 14"),
                ("--checkpoint", "segments:x", "from 1 to 14"),
                ("--checkpoint", "plan:1-4,3-6", "do not overlap"),
                ("--checkpoint", "plan:3-26", "25 (head)"),
                ("--checkpoint", "budget:lots", "'lots'", "7MiB"),
                ("--checkpoint", "budget:1MB", "1000000 bytes", "smallest peak"),
                ("--device", "gpu", "'gpu'", "cpu"),
                ("--learning-rate", "-1", "positive"), ("--learning-rate", "0", "positive"),
                ("--learning-rate", "nan", "positive"), ("--learning-rate", "1e-50", "float32"),
                ("--learning-rate", "1e50", "float32"),
                ("--memory-budget", "lots", "'lots'", "bytes", "7MiB"),
                ("--memory-budget", "-1", "'-1'", "bytes")]:
            arguments = [flag] if value is None else [flag, value]
            self.assert_refused("predict", *arguments, words=[flag.split("=")[0], *words])
        self.assert_refused(*PREDICT, "--norm", "group", "--bn-recalibrate", "10",
                            words=["--bn-recalibrate is for batch norm", "--norm group"])
        for scale in ["1e-5", "-1", "1e50", "nan"]:
            self.assert_refused(*PREDICT, "--precision", "fp16", "--loss-scale", scale,
                                words=["--loss-scale", "float32", "at least 0.0001"])
        self.assert_refused(*PREDICT, "--microbatch", "11", words=["--microbatch", "(10)", "11"])

    def test_too_small_a_budget_shows_the_split(self):
        self.assert_refused("train", *SMALL, "--memory-budget", "1MB",
                            words=["1000000 bytes", "weight 311400", "optimizer_state 311400",
                                   "raise --memory-budget"])
        self.run_well(*PREDICT, "--memory-budget", "8MB")

    def test_training_flags(self):
        self.assert_refused("train", *SMALL, "--resume", words=["--resume", "--out"])
        self.assert_refused("train", *SMALL, "--snapshot-every", "3", words="--out")
        self.assert_refused("train", *SMALL, "--out", "x", "--snapshot-every", "0",
                            words=["--snapshot-every", "at least 1"])
        self.assert_refused("train", *SMALL, "--seeds", "1,x", words=["--seeds", "'x'"])
        self.assert_refused("train", *SMALL, "--seeds", "1,,2", words="--seeds")
        self.assert_refused("train", *SMALL, "--seeds", "2,1,2", words="--seeds has 2 twice")
        self.assert_refused("train", *SMALL, "--out", "x", "--log-loss", "x",
                            words=["--out and --log-loss", "same file 'x'"])
        # Told before the first seed's training, not after it.
        self.assert_refused("train", *SMALL, "--seeds", "1,5000000000", words="5000000000")
        self.assert_refused("train", *SMALL, "--seeds", "1,2", "--save-weights", "w",
                            words="--save-weights")

    def test_benchmark_flags(self):
        self.assert_refused("bench", "--benchmark_filter=zzz",
                            words=["'zzz'", "matches no benchmark", "memfloor list"])
        self.assert_refused("bench", "--benchmark_filter=[",
                            words=["'['", "no regular expression"])
        self.assert_refused("bench", "--benchmark_nope", words="'--benchmark_nope'")
        self.assert_refused("bench", "--benchmark_format=xml", words="value")


class RefusedFiles(MemfloorTest):

    def test_spec_files(self):
        self.assert_refused("predict", "--spec", "absent",
                            words=["'absent'", "No such file", "check the path"])
        (self.folder / "folder").mkdir()
        self.assert_refused("predict", "--spec", "folder", words=["'folder'", "it is a folder"])
        for text, *words in [
                ("hello", "not JSON at byte 1", "memfloor list"), ("", "not JSON"),
                ('{"seed": 1', "not JSON"), (b"\xff\xfe{}", "not JSON"), ("{} {}", "not JSON"),
                ("null", "JSON object"), ("[]", "JSON object"), ("3", "JSON object"),
                ('{"model": 3}', "'model'", "a string, not 3"),
                ('{"model": ["a"]}', "'model'", "a string"),
                ('{"batchsize": 3}', "unknown key 'batchsize'", "memfloor list"),
                ('{"batch_size": "10"}', "'batch_size'", "a whole number"),
                ('{"batch_size": 1.5}', "'batch_size'", "1.5"),
                ('{"batch_size": 10.0}', "'batch_size'", "a whole number"),
                ('{"batch_size": true}', "'batch_size'", "true"),
                ('{"seed": null}', "'seed'", "null"),
                ('{"batch_size": 1e300}', "'batch_size'", "a whole number"),
                ('{"batch_size": 99999999999999999999}', "'batch_size'", "a whole number"),
                ('{"batch_size": 9223372036854775807}', "between 1 and 1000000"),
                ('{"batch_size": -5}', "-5"),
                ('{"sparsity": 1e999}', "too large"), ('{"learning_rate": "x"}', "a number"),
                ('{"augment": 1}', "'augment'", "true or false"),
                ('{"memory_budget": "lots"}', "'memory_budget'", "'lots'"),
                ('{"seed": 1, "seed": 2}', '"seed" twice')]:
            self.write("spec.json", text)
            self.assert_refused("predict", "--spec", "spec.json", words=words)

    def test_image_files(self):
        measure = ["measure", *SMALL, "--data", "cifar10"]
        self.assert_refused(*measure, words=["--data-dir", "scripts/fetch_data cifar10"])
        self.assert_refused(*measure, "--data-dir", "absent",
                            words=["absent", "No such file", "scripts/fetch_data cifar10"])
        for name in CIFAR_FILES:  # label 0 throughout; they take no space on the disk
            os.truncate(self.write(name, b""), CIFAR_BYTES)
        third = self.folder / CIFAR_FILES[2]
        for size, word in [(CIFAR_BYTES - 1, "truncated"), (CIFAR_BYTES + 1, "too long"),
                           (0, "empty")]:
            os.truncate(third, size)
            self.assert_refused(*measure, "--data-dir", ".",
                                words=["data_batch_3.bin", word, "scripts/fetch_data"])
        os.truncate(third, CIFAR_BYTES)
        with open(third, "r+b") as file:
            file.seek(3073 * 7)
            file.write(b"\xc8")
        self.assert_refused(*measure, "--data-dir", ".",
                            words=["data_batch_3.bin", "label 200", "record 7"])
        third.unlink()
        self.assert_refused(*measure, "--data-dir", ".",
                            words=["data_batch_3.bin", "No such file"])

    def test_weights(self):
        evaluate = ["evaluate", *SMALL]
        self.assert_refused(*evaluate, words="--weights FILE")
        for content, *words in [
                (None, "No such file"), (b"", "empty"), (b"{}", "shorter than 8 bytes"),
                ("a text file, not weights\n", "no safetensors file"),
                (struct.pack("<Q", 2**60) + b"{}", "claims 1152921504606846976 bytes"),
                (struct.pack("<Q", 90_000_000) + b"{}", "claims 90000000 bytes in a file of 10"),
                (safetensors({"other": [3]}), "no tensor 'stem.weight' among its 1"),
                (safetensors({"stem.weight": [3, 16, 3, 3]}),
                 "'stem.weight'", "(3, 16, 3, 3)", "(16, 3, 3, 3)"),
                (safetensors({"stem.weight": [16, 3, 3, 3]})[:-1], "damaged"),
                (safetensors({"stem.weight": [16, 3, 3, 3]}), "no tensor")]:
            if content is not None:
                self.write("weights", content)
            self.assert_refused(*evaluate, "--weights", "weights", words=["'weights'", *words])
        self.assert_refused("train", *SMALL, "--init-weights", "weights", words="'weights'")

    def test_places_that_cannot_be_written(self):
        (self.folder / "folder").mkdir()
        for command in ["predict", "measure", "train", "evaluate"]:
            extra = ["--weights", "w"] if command == "evaluate" else []
            self.assert_refused(command, *SMALL, *extra, "--out", "absent/result.json",
                                words=["'absent/result.json'", "create the folder 'absent'"])
        self.assert_refused(*PREDICT, "--out", "folder", words=["'folder'", "it is a folder"])
        self.assert_refused(*PREDICT, "--out", "/dev/null", words="not a regular file")
        self.assert_refused("train", *SMALL, "--save-weights", "absent/w", words="'absent/w'")
        self.assert_refused("train", *SMALL, "--log-loss", "absent/l",
                            words=["the loss log 'absent/l'", "check the folder"])
        self.assert_refused("train", *SMALL, "--log-loss", "folder", words="'folder'")

    def test_a_damaged_snapshot(self):
        self.write("r.json.snapshot", "not a snapshot")
        train = ["train", *SMALL, "--out", "r.json", "--resume"]
        self.assert_refused(*train, words=["'r.json.snapshot'", "damaged"])
        self.write("r.json.snapshot", safetensors({"stem.weight": [1]}))
        self.assert_refused(*train, words=["not a memfloor snapshot", "delete it to start anew"])


class FullDisk(MemfloorTest):

    def assert_printed_though_not_written(self, status, out, err, words):
        self.assert_one_sentence(status, err, "r.json", *words)
        printed = strict_json(out[out.index("\n{\n"):])  # after the table
        self.assertGreater(printed["memory"]["peak_total_bytes"], 0)

    def test_a_file_size_limit(self):
        run = self.run_memfloor("measure", *SMALL, "--out", "r.json",
                                preexec_fn=limit_file_size(1000))
        self.assert_printed_though_not_written(*run, ["File too large", "1000 bytes"])
        self.assertEqual(self.names(), set())

    def test_a_full_file_system(self):
        with tempfile.TemporaryDirectory() as disk:
            mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", disk],
                                   capture_output=True, text=True, check=False)
            if mount.returncode != 0:
                self.skipTest("only root may mount the tiny disk: " + mount.stderr.strip())
            with contextlib.ExitStack() as stack:
                stack.callback(subprocess.run, ["umount", disk], check=True)
                Path(disk, "ballast").write_bytes(bytes(4096))
                run = self.run_memfloor("measure", *SMALL, "--out", f"{disk}/r.json")
                self.assertEqual(os.listdir(disk), ["ballast"])
        self.assert_printed_though_not_written(*run, ["No space left", "free some space"])

    def test_standard_output(self):
        for command in [PREDICT, [*PREDICT, "--json"], ["explain", *SMALL], ["list"]]:
            with self.subTest(command=command[0]), open("/dev/full", "wb") as full:
                status, _, err = self.run_memfloor(*command, stdout=full)
                self.assert_one_sentence(status, err, "standard output")

    def test_a_reader_that_went_away_does_not_cost_the_file(self):
        reader, writer = os.pipe()
        os.close(reader)
        self.run_memfloor("predict", *SMALL, "--out", "r.json", stdout=writer)
        os.close(writer)
        self.assertEqual(read_json(self.folder / "r.json")["command"], "predict")


class QuickCommands(MemfloorTest):

    def result(self, *arguments):
        return strict_json(self.run_well(*arguments, "--json"))

    def test_help(self):
        for arguments in [["--help"], ["help"], ["train", "--help"]]:
            text = self.run_well(*arguments)
            for word in ["usage: memfloor <command>", "evaluate", "--batch-size", "--resume"]:
                self.assertIn(word, text)

    def test_resident_memory_of_the_leanest_preset(self):
        measured = self.result("measure", "--preset", "leanest", "--threads", "2")
        memory, environment = measured["memory"], measured["environment"]
        self.assertEqual(measured["spec"]["preset"], "leanest")
        self.assertLess(memory["peak_total_bytes"], 4023744)
        if "-fsanitize" in environment["compiler_flags"]:
            self.skipTest("sanitizers keep books of their own in resident memory")
        self.assertLessEqual(memory["rss_anon_delta_bytes"],
                             memory["reserved_bytes"] + (4 << 20))

    def test_plan(self):
        small = ["--threads", "2", "--batch-size", "20", "--model", "wrn16_1"]
        for plan in strict_json(self.run_well("plan", "--json", *small, "--memory-budget", "40MB")):
            self.assertLessEqual(plan["peak_bytes"], 40_000_000)
        text = self.run_well("plan", *small, "--memory-budget", "3MB")
        self.assertIn("--microbatch", text)
        self.assert_refused("plan", words=["--memory-budget"])
        self.assert_refused("plan", *small, "--memory-budget", "1kB",
                            words=["nothing fits", "smallest peak"])
        self.assert_refused("predict", "--preset", "fattest", words=["fattest", "paper-best"])

    def test_list(self):
        listed = strict_json(self.run_well("list", "--json"))
        self.assertEqual(set(listed), {"models", "data", "precision", "checkpoint", "presets",
                                       "combinations",
                                       "sparse_method", "sparse_scope", "sparse_index",
                                       "recipes",
                                       "spec_keys", "default_spec", "benchmarks"})
        self.assertEqual({key["key"] for key in listed["spec_keys"]}, set(listed["default_spec"]))
        for key in listed["spec_keys"]:
            self.assertEqual(key["flag"], "--" + key["key"].replace("_", "-"))
        self.assertEqual([(r["model"], r["name"], r["shortened"]) for r in listed["recipes"]],
                         [(model, *recipe) for model in ["wide_resnet", "dynamic_conv"]
                          for recipe in [("paper", False), ("short", True)]])
        self.assertEqual(len(set(listed["benchmarks"])), len(listed["benchmarks"]))
        text = self.run_well("list")
        for name in listed["models"] + listed["precision"] + listed["benchmarks"]:
            self.assertIn(name, text)
        # Combinations are those of the spec that is given.
        given = ["--model", "dynamic_conv2_2_64", "--sentence-length", "25"]
        combinations = strict_json(self.run_well("list", "--json", *given))["combinations"]
        self.assertEqual(len(combinations), 16)
        self.assertEqual({(c["model"], c["sentence_length"]) for c in combinations},
                         {("dynamic_conv2_2_64", 25)})
        self.assertEqual({c["microbatch_tokens"] for c in combinations}, {4000, 500})
        # The printed default is a spec file.
        self.write("spec.json", json.dumps(listed["default_spec"]))
        again = self.result("predict", "--spec", "spec.json")
        self.assertEqual(again["spec"], listed["default_spec"])

    def test_prediction_equals_measurement(self):
        for extra in [[], ["--microbatch", "4"], ["--precision", "bf16_mixed"],
                      ["--norm", "group", "--microbatch", "4"],
                      ["--bn-recalibrate", "11", "--microbatch", "4"],
                      ["--precision", "fp16", "--microbatch", "7"]]:
            predicted = self.result("predict", *SMALL, *extra)
            text = self.run_well("measure", *SMALL, *extra, "--out", "measured.json")
            measured = read_json(self.folder / "measured.json")
            self.assertIn("predicted and measured bytes are equal in every category", text)
            self.assertIsNone(predicted["memory"].pop("rss_anon_delta_bytes"))
            for memory in [predicted["memory"], measured["memory"]]:
                memory.pop("library_bytes")
            self.assertGreater(measured["memory"].pop("rss_anon_delta_bytes"), 0)
            self.assertEqual(predicted["memory"], measured["memory"])
            self.assertEqual(list(sorted(measured["memory"]["at_peak"])), sorted(CATEGORIES))
            self.assertEqual(predicted["spec"], measured["spec"])
            for key in ["flops", "quality", "time", "environment"]:
                self.assertEqual(predicted[key], measured[key])

    def test_the_report_says_what_batch_norm_normalises_over(self):
        note = "batch norm normalises over parts of 4 samples"
        for command in ["predict", "measure"]:
            self.assertIn(note, self.run_well(command, *SMALL, "--microbatch", "4"))
            self.assertIn(note, self.result(command, *SMALL, "--microbatch", "4")["notes"][0])
            for without in [[], ["--microbatch", "4", "--norm", "group"]]:
                self.assertEqual(self.result(command, *SMALL, *without)["notes"], [])

    def test_explain(self):
        blocks = strict_json(self.run_well("explain", *SMALL, "--json"))
        sizes = [block["bytes"] for block in blocks]
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        memory = self.result("predict", *SMALL)["memory"]
        self.assertEqual(sum(sizes), memory["peak_total_bytes"])
        for category in CATEGORIES:
            self.assertEqual(sum(b["bytes"] for b in blocks if b["category"] == category),
                             memory["at_peak"][category])
        lines = self.run_well("explain", *SMALL).splitlines()
        self.assertIn(f"{len(blocks)} blocks", lines[1])
        self.assertEqual([int(line.split()[0]) for line in lines[2:]], sizes)

    def test_a_spec_file_and_flags_beside_it(self):
        self.write("spec.json", json.dumps({"model": "wrn10_1", "batch_size": 20, "threads": 1,
                                            "test_images": 205, "seed": 7, "augment": False, "memory_budget": "9MB"}))
        by_file = self.result("predict", "--spec", "spec.json", "--batch-size", "10")
        by_flags = self.result("predict", *SMALL, "--seed", "7", "--no-augment",
                               "--memory-budget", "9000000")
        for result in (by_file, by_flags):
            result["memory"].pop("library_bytes")
        self.assertEqual(by_file, by_flags)
        self.assertEqual(by_file["spec"]["batch_size"], 10)

    def test_a_folder_name_that_is_not_unicode(self):
        name = os.fsdecode(b"data\xff")
        self.run_well(*PREDICT, "--data-dir", name, "--out", "r.json")
        self.assertIn("data", read_json(self.folder / "r.json")["spec"]["data_dir"])

    def test_what_is_not_a_terminal_gets_plain_lines(self):
        for arguments in [PREDICT, ["list"], ["explain", *SMALL], ["measure", *SMALL], ["--help"]]:
            status, out, err = self.run_memfloor(*arguments)
            self.assertEqual((status, err), (0, ""))
            self.assertNotRegex(out, r"[\x00-\x09\x0b-\x1f\x7f]")


if __name__ == "__main__":
    unittest.main()
