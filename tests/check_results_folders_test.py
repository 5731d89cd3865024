"""The checker of results on a machine's folder: accepts a good one, and says of every spoilt copy
exactly what is wrong, where, and what to do."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(os.environ.get("MEMFLOOR_SOURCE_DIR", Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(ROOT / "scripts"))
try:
    import result_files
    from result_checks import places
    MISSING = ""
except ModuleNotFoundError as error:
    MISSING = f"the Python package '{error.name}' is missing"

from result_samples import SPLIT, TOTAL, folder_of_a_machine, training, untrained

AGAIN = "run the case again."
EVERYTHING = list(folder_of_a_machine())
PREDICTION = ["predict/baseline.json"]


def put(content, path, value):
    """Replaces the value at "FILE:dotted.path"; `...` removes the key."""
    file, place = path.split(":")
    *parents, last = (int(key) if key.isdigit() else key for key in place.split("."))
    target = content[file]
    for key in parents:
        target = target[key]
    if value is ...:
        del target[last]
    else:
        target[last] = value


@unittest.skipIf(MISSING, MISSING)
class Folders(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "machine"

    def write(self, content):
        for name, value in content.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(value if isinstance(value, str) else json.dumps(value),
                            encoding="utf-8")

    def faults(self, content):
        """Those of the folder with this content, as (name in the folder, sentence)."""
        with tempfile.TemporaryDirectory() as folder:
            self.folder = Path(folder) / "machine"
            self.write(content)
            found = [*places.faults_of_folder(self.folder),
                     *result_files.faults_of_all(result_files.found_in(self.folder))]
            return [(str(path.relative_to(self.folder)), sentence.replace(f"{self.folder}/", ""))
                    for path, sentence in found]

    def assert_faults(self, changes, *expected, beside=()):
        """Of the files that are changed, those beside them and machine.json. Changes are of put();
        a name without a place replaces the file; None deletes it."""
        names = {path.partition(":")[0] for path in changes}
        content = {name: value for name, value in folder_of_a_machine().items()
                   if name in {"machine.json", *names, *beside}}
        for path, value in changes.items():
            if ":" in path:
                put(content, path, value)
            elif value is None:
                del content[path]
            else:
                content[path] = value
        with self.subTest(changes=str(changes)[:100]):
            self.assertEqual(self.faults(content), list(expected))

    def test_a_good_folder_has_no_fault(self):
        self.assert_faults({}, beside=EVERYTHING)

    def test_any_text_in_labels(self):
        strange = "«Übung» \"so\" \\ 漢字\n{}"
        self.assert_faults({"measure/baseline.json:notes": [strange],
                            "train/translation.json:quality.samples.0.translation": strange,
                            "train/translation.json:quality.bleu_signature": strange})

    def test_a_damaged_file(self):
        text = json.dumps(untrained("measure"))
        for spoilt, sentence in [
                (text[:-1], f"is not JSON (line 1: Expecting ',' delimiter); {AGAIN}"),
                ("", f"is not JSON (line 1: Expecting value); {AGAIN}"),
                (text.replace('"seed": 1', '"seed": 1, "seed": 2'),
                 "has the key 'seed' twice; keep one."),
                (text.replace('"step_seconds_median": null', '"step_seconds_median": NaN'),
                 "holds NaN, which is not JSON; write null for what is unknown."),
                ("[" * 100000, f"is nested too deeply for a result; {AGAIN}")]:
            self.assert_faults({"measure/baseline.json": spoilt},
                               ("measure/baseline.json", sentence))

    def test_a_wrong_form(self):
        schema = "results/schema.json says what belongs there."
        for place, value, message in [
                ("memory.reserved_bytes", -1,
                 "memory.reserved_bytes: -1 is less than the minimum of 0"),
                ("memory.peak_total_bytes", float(TOTAL),
                 f"memory.peak_total_bytes: {float(TOTAL)} is not of type 'integer'"),
                ("memory.at_peak.weight", ..., "memory.at_peak: 'weight' is a required property"),
                ("spec.batchsize", 100, "spec: Additional properties are not allowed "
                 "('batchsize' was unexpected)"),
                ("environment.source_sha256", "ab", "environment.source_sha256: 'ab' does not "
                 "match '^[0-9a-f]{64}$'"),
                ("time.step_seconds", [0.5, 0], "time.step_seconds.1: 0 is less than or equal to "
                 "the minimum of 0")]:
            self.assert_faults({f"step/baseline.json:{place}": value},
                               ("step/baseline.json", f"{message}; {schema}"))
        self.assert_faults({"machine.json:fingerprint": ...}, (
            "machine.json", f"the file: 'fingerprint' is a required property; {schema}"))

    def test_one_byte_too_many(self):
        self.assert_faults({"train/paper.json:memory.at_peak.input": SPLIT["input"] - 1}, (
            "train/paper.json", f"memory.at_peak sums to {TOTAL - 1}, but peak_total_bytes is "
            f"{TOTAL}; {AGAIN}"))

    def test_bytes_that_do_not_add_up(self):
        name = "train/paper.json"
        self.assert_faults({f"{name}:memory.paper.model_bytes": 5870441,
                            f"{name}:memory.paper.total_bytes": 399018585}, (
            name, "memory.paper.model_bytes is 5870441, but the category peaks of weight and "
            f"sparse_index make 5870440; {AGAIN}"))
        self.assert_faults({f"{name}:memory.paper.total_bytes": 399018585}, (
            name, "memory.paper.total_bytes is 399018585, but its three components sum to "
            f"399018584; {AGAIN}"))
        self.assert_faults({f"{name}:memory.category_peak.input": TOTAL + 1}, (
            name, f"memory.category_peak.input is {TOTAL + 1}, above peak_total_bytes ({TOTAL}); "
            f"{AGAIN}"))
        self.assert_faults({f"{name}:memory.category_peak.input": 2999}, (
            name, "memory.at_peak.input is 3000, above that category's own peak of 2999; "
            f"{AGAIN}"))
        self.assert_faults({f"{name}:memory.reserved_bytes": TOTAL - 1}, (
            name, f"memory.reserved_bytes is {TOTAL - 1}, below peak_total_bytes ({TOTAL}); "
            f"{AGAIN}"))
        self.assert_faults({f"{name}:spec.memory_budget": TOTAL - 1}, (
            name, f"memory.peak_total_bytes is {TOTAL}, above spec.memory_budget ({TOTAL - 1}), "
            f"which no run exceeds; {AGAIN}"))
        self.assert_faults({f"{name}:spec.memory_budget": TOTAL})

    def test_a_measurement_that_is_not_the_prediction(self):
        words = ("for the same spec, code and machine; run both again, and if it stays, the "
                 "accounting is wrong.")
        for command in ("measure", "step", "timeline"):
            name = f"{command}/baseline.json"
            self.assert_faults({f"{name}:memory.category_peak.workspace": 8001}, (
                name, f"memory.category_peak.workspace is 8001 by command {command}, but 8000 by "
                f"command predict in predict/baseline.json, {words}"), beside=PREDICTION)
        self.assert_faults({"measure/baseline.json:memory.evaluation_peak_bytes": 60000001}, (
            "measure/baseline.json", "memory.evaluation_peak_bytes is 60000001 by command measure, "
            f"but 60000000 by command predict in predict/baseline.json, {words}"),
            beside=PREDICTION)
        # Nothing was evaluated.
        self.assert_faults({"step/baseline.json:memory.evaluation_peak_bytes": 0},
                           beside=PREDICTION)
        # A training's spec says more, and its seed may be another.
        self.assert_faults({"train/short.json:memory.reserved_bytes": 399200064,
                            "train/short.json:spec.seed": 2}, (
            "train/short.json", "memory.reserved_bytes is 399200064 by command train, but "
            f"399200000 by command predict in predict/baseline.json, {words}"),
            beside=PREDICTION)
        self.assert_faults({"measure/baseline.json:flops.forward": 428706305}, (
            "measure/baseline.json", "flops.forward is 428706305 by command measure, but 428706304 "
            f"by command predict in predict/baseline.json, {words}"), beside=PREDICTION)
        # Other code may have other bytes.
        self.assert_faults({"measure/baseline.json:memory.reserved_bytes": 399200064,
                            "measure/baseline.json:environment.source_sha256": "ef" * 32},
                           beside=PREDICTION)
        # And so may another number of threads.
        self.assert_faults({
            "measure/baseline.json:memory.reserved_bytes": 399200064,
            "measure/baseline.json:spec.threads": 1,
            "measure/baseline.json:environment.fingerprint":
                "device=cpu instruction_set=avx2 onednn=2.6.3 own_kernels=none threads=1"},
            beside=PREDICTION)

    def test_a_run_twice(self):
        # Neither the name of a preset nor the path of the data makes another run.
        twice = untrained("measure")
        twice["spec"].update(preset="leanest", data_dir="/data")
        self.assert_faults({"measure/again.json": twice}, (
            "measure/baseline.json", "is the same run as measure/again.json: same command, spec "
            "and machine; keep one of the two."), beside=["measure/baseline.json"])

    def test_a_quality_that_is_not_plausible(self):
        for name, value, words in [
                ("train/paper.json", 0.897, "the whole paper recipe: it should lie between 0.9 and "
                 "0.96 (published: 94.7 %)"),
                ("train/paper.json", 0.961, "the whole paper recipe: it should lie between 0.9 and "
                 "0.96 (published: 94.7 %)")]:
            self.assert_faults({f"{name}:quality.test_accuracy": value,
                                f"{name}:quality.curve.1.test_accuracy": value}, (
                name, f"quality.test_accuracy is {value}, which is not plausible for wrn28_2 on "
                f"cifar10 after {words}; check data and settings, and {AGAIN}"))
        # In parts batch norm sees few images, so less is plausible.
        in_parts = {"train/paper.json:spec.microbatch": 10,
                    "train/paper.json:quality.test_accuracy": 0.85,
                    "train/paper.json:quality.curve.1.test_accuracy": 0.85}
        self.assert_faults(in_parts)
        self.assert_faults({"train/translation.json:quality.bleu": 46.0}, (
            "train/translation.json", "quality.bleu is 46.0, which is not plausible for "
            "dynamic_conv on translation after the whole paper recipe: it should lie between 10 "
            f"and 45 (published on IWSLT'14: 35.2); check data and settings, and {AGAIN}"))

    def test_chance_is_plausible_only_for_a_training_cut_short(self):
        chance = {"train/paper.json:spec.recipe": "short", "train/paper.json:spec.epochs": 12,
                  "train/paper.json:quality.curve.1.epoch": 12,
                  "train/paper.json:quality.test_accuracy": 0.1,
                  "train/paper.json:quality.curve.1.test_accuracy": 0.1,
                  "train/paper.json:notes": ["shortened training: 6000 updates"]}
        self.assert_faults(chance, (
            "train/paper.json", "quality.test_accuracy is 0.1, which is not plausible for wrn28_2 "
            "on cifar10 after the short recipe: it should lie between 0.15 and 0.96 (chance is "
            f"10 %); check data and settings, and {AGAIN}"))
        self.assert_faults({**chance, "train/paper.json:spec.max_steps": 10})

    def test_a_training_that_diverged(self):
        self.assert_faults({"train/short.json:quality.curve.1.train_loss": None}, (
            "train/short.json", "quality.curve: train_loss is null after epoch 2, so the training "
            "diverged or every gradient overflowed; train with a smaller learning rate or another "
            "loss scale, and keep this file out of results/."))

    def test_a_training_without_its_quality(self):
        self.assert_faults({"train/translation.json:quality.bleu": None}, (
            "train/translation.json", f"quality.bleu is null after command train; {AGAIN}"))
        self.assert_faults({"train/short.json:quality.curve": []}, (
            "train/short.json", f"quality.curve is empty after a training; {AGAIN}"))
        self.assert_faults({"train/paper.json:quality.curve.1.epoch": 199}, (
            "train/paper.json", f"quality.curve ends after epoch 199, but spec.epochs is 200; "
            f"{AGAIN}"))
        self.assert_faults({"measure/baseline.json:quality.test_accuracy": 0.5}, (
            "measure/baseline.json", "quality.test_accuracy is 0.5, but command measure trains "
            f"nothing; it must be null, so {AGAIN}"))
        self.assert_faults({"measure/baseline.json:quality.curve": training()["quality"]["curve"]},
                           ("measure/baseline.json", "quality.curve has entries, but command "
                            f"measure trains nothing; it must be empty, so {AGAIN}"))

    def test_the_mark_of_a_shortened_run(self):
        missing = ("notes: the run was cut short (recipe short, epochs, max_steps, test_images or "
                   f"test_sentences), and no note says \"shortened\"; {AGAIN}")
        self.assert_faults({"train/short.json:notes": ["cut"]}, ("train/short.json", missing))
        self.assert_faults({"train/translation.json:spec.max_steps": 49999},
                           ("train/translation.json", missing))
        self.assert_faults({"train/paper.json:notes": ["shortened training: 1 update"]}, (
            "train/paper.json",
            f"notes: a note says \"shortened\", but the run was not cut short; {AGAIN}"))

    def test_a_wrong_folder(self):
        self.assert_faults({"measure/baseline.json": None, "step/other.json": untrained("measure")},
                           ("step/other.json", "lies in step/, but its command is measure; move "
                            "it to machine/measure/."))
        evaluation = training()
        evaluation["command"] = "evaluate"
        evaluation["quality"]["curve"] = []
        evaluation["notes"] = []
        self.assert_faults({"train/evaluation.json": evaluation}, (
            "train/evaluation.json", "command evaluate has no place in a machine's folder; keep "
            "the file elsewhere."))
        self.assert_faults({"machine.json": None}, *(
            ("machine.json", f"is missing beside {command}/; memfloor suite run writes it, or "
             "write the keys of a result's environment as results/schema.json says.")
            for command in ("measure", "predict", "step", "timeline", "train")), beside=EVERYTHING)

    def test_the_result_of_another_machine(self):
        move = "move the file to the folder of its own machine."
        self.assert_faults({"measure/baseline.json:environment.cpu_model": "Xeon"}, (
            "measure/baseline.json", "environment.cpu_model is Xeon, but machine.json of this "
            f"folder says AMD EPYC; {move}"))
        other = "device=cpu instruction_set=avx2 onednn=2.6.3 own_kernels=amx threads=2"
        self.assert_faults({"measure/baseline.json:environment.fingerprint": other}, (
            "measure/baseline.json", "environment.fingerprint has own_kernels=amx, but "
            f"machine.json of this folder has own_kernels=none; {move}"))

    def test_a_fingerprint_that_disagrees_with_its_own_file(self):
        self.assert_faults({"measure/baseline.json:spec.threads": 3}, (
            "measure/baseline.json", "environment.fingerprint has threads=2, but spec.threads is "
            f"3; {AGAIN}"))

    def test_times(self):
        name = "step/baseline.json"
        self.assert_faults({f"{name}:time.step_seconds_median": 0.51}, (
            name, "time.step_seconds_median is 0.51, but the median of time.step_seconds is 0.5; "
            f"{AGAIN}"))
        self.assert_faults({f"{name}:time.images_per_second": 210}, (
            name, "time.images_per_second is 210, which does not fit 100 a step and a median of "
            f"0.5 seconds (200 a second); {AGAIN}"))
        self.assert_faults({f"{name}:time.step_seconds": ...}, (
            name, "time: command step needs step_seconds, their median and images_per_second; "
            f"{AGAIN}"))
        self.assert_faults({"train/short.json:time.images_per_second": 20}, (
            "train/short.json", "time.images_per_second is 20, which does not fit 100 a step and "
            f"a median of 0.5 seconds (200 a second); {AGAIN}"))
        self.assert_faults({"predict/baseline.json:time.step_seconds_median": 0.5}, (
            "predict/baseline.json", "time: a prediction times nothing, so its figures must be "
            "null; predict again."))
        self.assert_faults({"measure/baseline.json:time.step_seconds": [0.5]}, (
            "measure/baseline.json", "time.step_seconds belongs to command step, not to measure; "
            f"take it out, or {AGAIN}"))
        # Of an even number of steps any value between the middle two is their median.
        self.assert_faults({f"{name}:time.step_seconds": [0.49, 0.5, 0.51, 0.6]})

    def test_operations(self):
        for place, value, message in [
                ("flops.recompute", 5, "flops.recompute is 5, but spec.checkpoint is none, which "
                 "recomputes nothing"),
                ("spec.checkpoint", "blocks", "flops.recompute is 0, but spec.checkpoint is "
                 "blocks, which recomputes"),
                ("flops.backward", 1, "flops.backward is 1, which is not between once and twice "
                 "forward (428706304)")]:
            self.assert_faults({f"train/paper.json:{place}": value},
                               ("train/paper.json", f"{message}; {AGAIN}"))

    def test_sparse_layers(self):
        name = "train/paper.json"
        sparse = {f"{name}:spec.sparsity": 0.8}
        layer = {"name": "conv", "positions": 1000, "non_zeros": 200}
        self.assert_faults({**sparse, f"{name}:sparse_layers": [layer]})
        self.assert_faults(sparse, (name, f"sparse_layers is empty, but spec.sparsity is 0.8; "
                                    f"{AGAIN}"))
        self.assert_faults({**sparse, f"{name}:sparse_layers": [{**layer, "non_zeros": 201}]}, (
            name, "sparse_layers has 201 non-zeros in 1000 positions, but spec.sparsity 0.8 keeps "
            f"200; {AGAIN}"))
        self.assert_faults({f"{name}:spec.sparsity": 0.2, f"{name}:sparse_layers": [
            {**layer, "non_zeros": 1200}, {**layer, "non_zeros": 400}]}, (
                name, f"sparse_layers: conv has 1200 non-zeros in 1000 positions; {AGAIN}"))

    def test_timelines(self):
        name = "timeline/baseline.json"
        self.assert_faults({f"{name}:timeline.points.1.bytes.input": SPLIT["input"] - 1}, (
            name, f"timeline.points: the highest sums to {TOTAL - 1} (event 412), but "
            f"memory.peak_total_bytes is {TOTAL}; {AGAIN}"))
        self.assert_faults({f"{name}:timeline.points.2.event": 412}, (
            name, f"timeline.points: events do not increase; {AGAIN}"))
        self.assert_faults({f"{name}:timeline.events": 800}, (
            name, f"timeline.points ends with event 899 of 800; {AGAIN}"))
        self.assert_faults({f"{name}:timeline": ...}, (
            name, f"timeline is missing, and the command is timeline; {AGAIN}"))
        self.assert_faults({f"{name}:timeline.points.1.bytes.input": SPLIT["input"] + 1,
                            f"{name}:timeline.points.1.bytes.workspace": SPLIT["workspace"] - 1}, (
            name, f"timeline.points: no point has the split of memory.at_peak; {AGAIN}"), (
            name, "timeline.points: input reaches 3001, above memory.category_peak.input (3000); "
            f"{AGAIN}"))
        points = folder_of_a_machine()[name]["timeline"]["points"]
        many = [points[1]] + [{**points[2], "event": 413 + i} for i in range(1000)]
        self.assert_faults({f"{name}:timeline": {"events": 1413, "points": many}}, (
            name, "timeline.points has 1001 points, more than 1000, which is too many for a file; "
            f"{AGAIN}"))
        self.assert_faults({"measure/baseline.json:timeline": {"events": 412,
                                                               "points": [points[1]]}}, (
            "measure/baseline.json", "timeline belongs to command timeline, not to measure; take "
            "it out."))

    def test_checkpointing_changes_no_bit_of_the_quality(self):
        recomputed = training()
        recomputed["spec"]["checkpoint"] = "blocks"
        recomputed["flops"]["recompute"] = 7
        plain = ["train/short.json"]
        self.assert_faults({"train/blocks.json": recomputed}, beside=plain)
        recomputed["quality"]["curve"][0]["train_loss"] += 1e-15
        self.assert_faults({"train/blocks.json": recomputed}, (
            "train/blocks.json", "quality differs from that of train/short.json, though only the "
            "checkpoint does (blocks and none), which changes no bit; run both again, and if it "
            "stays, recomputation is wrong."), beside=plain)

    def test_another_seed_is_another_training(self):
        other = training()
        other["spec"]["seed"] = 2
        self.assert_faults({"train/two.json": other}, (
            "train/two.json", "quality.curve is that of train/short.json in every digit, but the "
            "seeds are 2 and 1; one is a copy, so run it again."), beside=["train/short.json"])
        other["quality"]["curve"][0]["train_loss"] = 2.1
        self.assert_faults({"train/two.json": other}, beside=["train/short.json"])

    def check(self, *arguments):
        done = subprocess.run([ROOT / "scripts" / "check_results", *arguments],
                              capture_output=True, text=True, check=False)
        if done.returncode == 77:
            self.skipTest(done.stdout.strip())
        return done

    def test_the_command_checks_folders(self):
        content = folder_of_a_machine()
        self.write(content)
        done = self.check(self.folder)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, f"check_results: {len(content)} files checked, no fault.\n", ""))
        # A file alone is checked against its machine as well; one given twice is no duplicate.
        path = self.folder / "measure" / "baseline.json"
        put(content, "measure/baseline.json:environment.cpu_count", 64)
        self.write(content)
        done = self.check(path, path)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", (
            f"{path}: environment.cpu_count is 64, but machine.json of this folder says 2; move "
            "the file to the folder of its own machine.\n"
            "check_results: 1 of 1 files have faults, listed above.\n")))

    def test_a_folder_without_results(self):
        self.folder.mkdir()
        done = self.check(self.folder)
        self.assertEqual((done.returncode, done.stderr), (1, (
            f"check_results: there is no result file in {self.folder}; give the folder of a "
            "machine, as memfloor suite run fills it.\n")))


if __name__ == "__main__":
    unittest.main()
