"""The command line with a translation model: its results, and what it says of bad data."""

import json
import os
import shutil
import subprocess
import unittest
from pathlib import Path

from memfloor_process import ROOT, MemfloorTest, read_json, reproducible

SMALL = ["--model", "dynamic_conv1_1_16", "--max-tokens", "400", "--sentence-length", "25",
         "--threads", "1"]
BRIEF = [*SMALL, "--test-sentences", "3"]
MULTI30K = Path(os.environ.get("MEMFLOOR_TEST_DATA_DIR", "/nonexistent")) / "prepared" / "multi30k"


class Commands(MemfloorTest):

    def result(self, command, *arguments):
        """Its result, which the checker of results accepts where its library is there."""
        self.run_well(command, *arguments, "--out", "result.json")
        check = subprocess.run([ROOT / "scripts" / "check_results", self.folder / "result.json"],
                               capture_output=True, text=True, check=False)
        self.assertIn(check.returncode, (0, 77), check.stdout + check.stderr)
        return read_json(self.folder / "result.json")

    def test_train_and_evaluate(self):
        trained = self.result("train", *BRIEF, "--max-steps", "3", "--save-weights", "weights")
        self.assertEqual(self.names(), {"result.json", "weights"})
        quality = trained["quality"]
        self.assertIsNone(quality["test_accuracy"])
        self.assertGreater(quality["perplexity"], 1)
        self.assertEqual(quality["perplexity"], quality["curve"][-1]["perplexity"])
        self.assertGreaterEqual(quality["bleu"], 0)
        self.assertIn("tok:none", quality["bleu_signature"])
        self.assertEqual(len(quality["samples"]), 3)
        for sample in quality["samples"]:
            self.assertEqual(len(sample["source"].split()), 24)
            self.assertEqual(len(sample["reference"].split()), 24)
        self.assertGreater(trained["time"]["target_tokens_per_second"], 0)
        self.assertIsNone(trained["time"]["images_per_second"])
        self.assertEqual(trained["spec"]["microbatch_tokens"], 400)
        self.assertIsNone(trained["spec"]["batch_size"])
        notes = " ".join(trained["notes"])
        self.assertIn("shortened", notes)
        self.assertNotIn("differ:", notes)

        evaluated = self.result("evaluate", *BRIEF, "--weights", "weights")["quality"]
        for key in ["perplexity", "bleu", "bleu_signature", "samples"]:
            self.assertEqual(evaluated[key], quality[key])

    def test_prediction_equals_measurement(self):
        for extra in [[], ["--microbatch-tokens", "100", "--checkpoint", "blocks"],
                      ["--preset", "leanest"]]:
            predicted = self.result("predict", *SMALL, *extra)
            measured = self.result("measure", *SMALL, *extra)
            self.assertEqual(reproducible(predicted["memory"]), reproducible(measured["memory"]))
            self.assertEqual(predicted["flops"], measured["flops"])
            self.assertIsNone(predicted["quality"]["test_accuracy"])

    def test_timeline(self):
        result = self.result("timeline", *SMALL, "--preset", "leanest")
        points = result["timeline"]["points"]
        self.assertIn(result["memory"]["at_peak"], [point["bytes"] for point in points])
        self.assertEqual({point["phase"] for point in points},
                         {"forward", "backward", "update", "pattern update"})
        self.assertEqual(points[-1]["event"], result["timeline"]["events"] - 1)

    def test_an_averaged_training_leaves_its_result_only(self):
        # Sentences of one word: two minibatches an epoch.
        arguments = ["--model", "dynamic_conv1_1_16", "--sentence-length", "2", "--max-tokens",
                     "20000", "--loss-chunk", "500", "--threads", "1", "--test-sentences", "1",
                     "--recipe", "short", "--max-steps", "3"]
        trained = self.result("train", *arguments)
        self.assertIn("the final weights are the average of those after the last 2 epochs",
                      trained["notes"])
        self.assertNotEqual(trained["quality"]["perplexity"],
                            trained["quality"]["curve"][-1]["perplexity"])
        self.assertEqual(self.names(), {"result.json"})

    def test_data_that_is_not_there(self):
        train = ["train", "--model", "dynamic_conv1_1_16", "--data", "translation"]
        self.assert_refused(*train, words=["--data-dir", "scripts/prepare_iwslt14"])
        self.assert_refused(*train, "--data-dir", "absent", words=["absent", "No such file"])
        self.write("corpus.json", "{}")
        self.assert_refused(*train, "--data-dir", ".", words=["corpus.json"])
        self.write("corpus.json", "not JSON")
        self.assert_refused(*train, "--data-dir", ".", words=["corpus.json"])


@unittest.skipUnless(MULTI30K.exists(), f"no prepared Multi30k in {MULTI30K}")
class RealText(MemfloorTest):
    DATA = ["--data", "translation", "--data-dir", "data", "--model", "dynamic_conv1_1_16",
            "--threads", "1"]

    def setUp(self):
        super().setUp()
        shutil.copytree(MULTI30K, self.folder / "data")

    def test_measure(self):
        self.run_well("measure", *self.DATA, "--microbatch-tokens", "1000", "--out", "result.json")
        result = read_json(self.folder / "result.json")
        self.assertIn("train.de.bin", result["environment"]["data_sha256"])
        self.assertIn("the corpus is multi30k.de-en, 29000 pairs to train on", result["notes"])

    def test_a_result_says_what_the_corpus_is_not(self):
        record = self.folder / "data" / "corpus.json"
        warning = "The training text is not the standard one."
        record.write_text(json.dumps({**read_json(record), "notes": [warning]}))
        self.run_well("measure", *self.DATA, "--microbatch-tokens", "1000", "--out", "result.json")
        self.assertIn(warning, read_json(self.folder / "result.json")["notes"])

    def test_a_damaged_file(self):
        path = self.folder / "data" / "train.de.bin"
        os.truncate(path, path.stat().st_size // 2)
        self.assert_refused("train", *self.DATA, words=["train.de.bin", "prepare_iwslt14"])
        path.unlink()
        self.assert_refused("train", *self.DATA, words=["train.de.bin", "No such file"])


if __name__ == "__main__":
    unittest.main()
