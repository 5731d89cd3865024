"""scripts/check_results accepts a good result file and names what is wrong with a bad one."""

import copy
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(os.environ.get("MEMFLOOR_SOURCE_DIR", Path(__file__).resolve().parent.parent))
SCRIPT = ROOT / "scripts" / "check_results"

SPLIT = {"weight": 5870440, "sparse_index": 0, "gradient": 5870440, "optimizer_state": 5870440,
         "buffer": 14464, "activation": 381407264, "transient": 1000, "workspace": 2000,
         "input": 3000}
PEAKS = {**SPLIT, "transient": 9000, "workspace": 8000}


def good_result():
    return {
        "schema_version": 1,
        "command": "train",
        "spec": {"model": "wrn28_2", "data": "synthetic", "data_dir": None,
                 "device": "cpu", "precision": "fp32", "sparsity": 0, "batch_size": 100,
                 "microbatch": 100, "checkpoint": "none", "recipe": "short", "epochs": 2,
                 "max_steps": None, "seed": 1, "threads": 2, "memory_budget": None},
        "memory": {"peak_total_bytes": sum(SPLIT.values()), "at_peak": dict(SPLIT),
                   "category_peak": dict(PEAKS),
                   "paper": {"model_bytes": 5870440, "optimizer_bytes": 11740880,
                             "activation_bytes": 381407264, "total_bytes": 399018584},
                   "allocated_peak_bytes": 399100000, "reserved_bytes": 399200000,
                   "evaluation_peak_bytes": 60000000, "library_bytes": None,
                   "rss_anon_delta_bytes": 400000000},
        "quality": {"test_accuracy": 0.5, "curve": [
            {"epoch": 1, "train_loss": 2.0, "test_accuracy": 0.4, "test_loss": 1.9,
             "learning_rate": 0.1},
            {"epoch": 2, "train_loss": 1.5, "test_accuracy": 0.5, "test_loss": 1.4,
             "learning_rate": 0.0}]},
        "time": {"step_seconds_median": 0.5, "images_per_second": 200.0},
        "flops": {"forward": 428706304, "backward": 857412608, "recompute": 0},
        "environment": {"git_commit": "0" * 40, "compiler": "GNU 12.2.0", "compiler_flags": "-O3",
                        "build_type": "Release", "libraries": {"oneDNN": "2.6.3"},
                        "cpu_model": None, "gpu_model": None, "instruction_set": "avx2",
                        "fingerprint": None, "data_sha256": {}},
        "notes": ["The recipe is shortened: 2 epochs instead of 200."],
    }


def good_translation():
    """Of the paper's recipe, whose length is in max_steps: not shortened."""
    result = good_result()
    result["spec"].update(model="dynamic_conv", data="translation", batch_size=None,
                          microbatch=None, max_tokens=4000, microbatch_tokens=500,
                          conv_impl="direct", loss_chunk=250, sentence_length=None,
                          test_sentences=None, recipe="paper", epochs=0, max_steps=50000)
    result["quality"] = {
        "test_accuracy": None, "perplexity": 6.5, "bleu": 34.2, "bleu_signature": "BLEU+tok.none",
        "samples": [{"source": "ja .", "reference": "yes .", "translation": "yes ."}],
        "curve": [{"epoch": 1, "train_loss": 4.0, "test_accuracy": None, "test_loss": 3.9,
                   "perplexity": 49.4, "learning_rate": 0.0005}]}
    result["time"] = {"step_seconds_median": 1.5, "images_per_second": None,
                      "target_tokens_per_second": 2400.0}
    result["notes"] = []
    return result


class CheckResultsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def run_on(self, texts):
        """Runs the script once on one file for each text; returns (status, output, faults), the
        faults of each text as one string."""
        paths = [Path(self.folder.name) / f"{i}.json" for i in range(len(texts))]
        for path, text in zip(paths, texts):
            path.write_text(text, encoding="utf-8")
        done = subprocess.run([str(SCRIPT), *map(str, paths)], capture_output=True, text=True,
                              check=False)
        if done.returncode == 77:
            self.skipTest(done.stdout.strip())
        self.assertNotIn("Traceback", done.stderr)
        lines = done.stderr.splitlines()
        faults = ["\n".join(l for l in lines if l.startswith(f"{path}: ")) for path in paths]
        return done.returncode, done.stdout + done.stderr, faults

    def assert_accepted(self, *results):
        status, output, _ = self.run_on([json.dumps(result) for result in results])
        self.assertEqual(status, 0, output)
        self.assertIn(f"{len(results)} result files checked", output)

    def assert_refused(self, cases):
        """Each case is (text, words...): the text's faults must hold the words."""
        status, output, faults = self.run_on([text for text, *_ in cases])
        self.assertEqual(status, 1, output)
        self.assertIn(f"{len(cases)} of {len(cases)} result files have faults", output)
        for (_, *words), fault in zip(cases, faults):
            for word in words:
                with self.subTest(word=word):
                    self.assertIn(word, fault)

    def changed(self, path, value):
        """A good result with the value at the dotted path replaced; `...` removes the key."""
        result = copy.deepcopy(good_result())
        place = result
        *parents, last = path.split(".")
        for key in parents:
            place = place[int(key)] if isinstance(place, list) else place[key]
        if value is ...:
            del place[last]
        else:
            place[last] = value
        return json.dumps(result)

    def test_accepts_good_files(self):
        prediction = good_result()
        prediction["command"] = "predict"
        prediction["quality"] = {"test_accuracy": None, "curve": []}
        prediction["time"] = {"step_seconds_median": None, "images_per_second": None}
        prediction["memory"]["rss_anon_delta_bytes"] = None
        prediction["notes"] = []
        full_training = good_result()
        full_training["spec"]["recipe"] = "paper"
        full_training["notes"] = []
        self.assert_accepted(good_result(), prediction, full_training, good_translation())

    def test_refuses_a_wrong_form(self):
        self.assert_refused([(self.changed(path, value), *words) for path, value, *words in [
            ("memory", ..., "'memory' is a required property"),
            ("memory.at_peak.weight", ..., "'weight' is a required property"),
            ("memory.peak_total_bytes", 1.5, "memory.peak_total_bytes", "not of type 'integer'"),
            ("memory.peak_total_bytes", 399000000.0, "not of type 'integer'"),
            ("memory.reserved_bytes", -1, "memory.reserved_bytes", "less than the minimum"),
            ("memory.extra", 1, "'extra' was unexpected"),
            ("spec.batchsize", 100, "'batchsize' was unexpected"),
            ("spec.microbatch", 0, "spec.microbatch"),
            ("spec.seed", True, "spec.seed"),
            ("quality.test_accuracy", 91.1, "quality.test_accuracy", "greater than the maximum"),
            ("quality.curve.0.epoch", 0, "quality.curve.0.epoch"),
            ("environment.git_commit", "abc", "environment.git_commit"),
            ("schema_version", 2, "schema_version", "1 was expected"),
            ("notes", "shortened", "notes"),
        ]])

    def test_refuses_sums_that_do_not_hold(self):
        self.assert_refused([(self.changed(path, value), *words) for path, value, *words in [
            ("memory.peak_total_bytes", 1, "memory.at_peak sums to", "peak_total_bytes is 1"),
            ("memory.category_peak.weight", 5870439, "above that category's own peak"),
            ("memory.category_peak.input", 400000000, "above peak_total_bytes"),
            ("memory.paper.model_bytes", 5870441, "memory.paper.model_bytes", "5870440"),
            ("memory.paper.optimizer_bytes", 1, "memory.paper.optimizer_bytes", "11740880"),
            ("memory.paper.total_bytes", 399018585, "three components sum to 399018584"),
            ("memory.allocated_peak_bytes", 399000000, "allocated_peak_bytes", "below"),
            ("quality.test_accuracy", 0.6, "the curve ends at 0.5"),
            ("quality.curve.0.epoch", 2, "epochs do not increase"),
            ("command", "predict", "a prediction cannot know it"),
        ]])

    def test_refuses_a_shortened_training_without_a_note(self):
        cut = good_result()
        cut["spec"].update(recipe="paper", max_steps=60)
        cut["notes"] = ["Nothing to see here."]
        wanted = 'no note says "shortened"'
        translations = [good_translation(), good_translation()]
        translations[0]["spec"]["max_steps"] = 49999
        translations[1]["spec"]["test_sentences"] = 100
        self.assert_refused([(self.changed("notes", []), wanted), (json.dumps(cut), wanted),
                             *((json.dumps(result), wanted) for result in translations)])

    def test_refuses_a_bleu_without_its_signature(self):
        result = good_translation()
        del result["quality"]["bleu_signature"]
        self.assert_refused([(json.dumps(result), "no bleu_signature")])

    def test_refuses_what_is_not_json(self):
        self.assert_refused([
            ("{", "is not JSON (line 1"),
            (self.changed("time.images_per_second", float("nan")), "holds NaN"),
            ('{"a": 1, "a": 2}', "has the key 'a' twice"),
        ])

    def test_refuses_a_missing_file(self):
        done = subprocess.run([str(SCRIPT), self.folder.name + "/none.json"], capture_output=True,
                              text=True, check=False)
        if done.returncode == 77:
            self.skipTest(done.stdout.strip())
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot be read", done.stderr)


if __name__ == "__main__":
    unittest.main()
