"""scripts/check_results accepts a good result file and names what is wrong with a bad one."""

import copy
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from result_samples import training, translation, untrained, whole_training

ROOT = Path(os.environ.get("MEMFLOOR_SOURCE_DIR", Path(__file__).resolve().parent.parent))
SCRIPT = ROOT / "scripts" / "check_results"


class CheckResultsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def run_on(self, texts):
        """Runs the script once on one file for each text; returns (status, output, faults), the
        faults of each text as one string."""
        # In folders of their own, as nobody else's results.
        paths = [Path(self.folder.name) / str(i) / "result.json" for i in range(len(texts))]
        for path, text in zip(paths, texts):
            path.parent.mkdir()
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
        self.assertIn(f"{len(results)} files checked", output)

    def assert_refused(self, cases):
        """Each case is (text, words...): the text's faults must hold the words."""
        status, output, faults = self.run_on([text for text, *_ in cases])
        self.assertEqual(status, 1, output)
        self.assertIn(f"{len(cases)} of {len(cases)} files have faults", output)
        for (_, *words), fault in zip(cases, faults):
            for word in words:
                with self.subTest(word=word):
                    self.assertIn(word, fault)

    def changed(self, path, value):
        """A good result with the value at the dotted path replaced; `...` removes the key."""
        result = copy.deepcopy(training())
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
        self.assert_accepted(training(), whole_training(), translation(),
                             *map(untrained, ("predict", "measure", "step", "timeline")))

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
        cut = training()
        cut["spec"].update(recipe="paper", max_steps=60)
        cut["notes"] = ["Nothing to see here."]
        wanted = 'no note says "shortened"'
        translations = [translation(), translation()]
        translations[0]["spec"]["max_steps"] = 49999
        translations[1]["spec"]["test_sentences"] = 100
        self.assert_refused([(self.changed("notes", []), wanted), (json.dumps(cut), wanted),
                             *((json.dumps(result), wanted) for result in translations)])

    def test_refuses_a_bleu_without_its_signature(self):
        result = translation()
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
