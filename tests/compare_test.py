"""memfloor compare, on stored results of two runs on one machine and on changed copies of them.

tests/data/compare/first and second are what two runs of the same commands wrote on one machine with
two cores; tests/data/compare/README.md has the commands.
"""

import json
import shutil
import subprocess
import unittest

from memfloor_process import ROOT, MemfloorTest, read_json, strict_json

STORED = ROOT / "tests" / "data" / "compare"
IMAGES = "step/model=wrn10_1/data=synthetic/batch_size=20"
SPARSE = "step/model=wrn10_1/data=synthetic/precision=bf16/sparsity=0.8/batch_size=20/microbatch=5"
TEXT = "step/model=dynamic_conv1_1_16/data=synthetic/max_tokens=400/sentence_length=25"


def sections(markdown):
    """Heading to the lines of its list."""
    found, lines = {}, []
    for line in markdown.splitlines():
        if line.startswith("#"):
            lines = found.setdefault(line.lstrip("# "), [])
        elif line.startswith("- "):
            lines.append(line)
    return found


class StoredResultsTest(MemfloorTest):
    """Every test has its own copy of the stored results."""

    def setUp(self):
        super().setUp()
        for side in ("first", "second"):
            shutil.copytree(STORED / side, self.folder / side)

    def change(self, side, stem, changes, new_name=None):
        """Sets values at dotted places of a stored result; a function gets the old value."""
        path = self.folder / side / f"{stem}.json"
        result = read_json(path)
        for place, value in changes.items():
            *parents, last = place.split(".")
            target = result
            for name in parents:
                target = target[name]
            target[last] = value(target[last]) if callable(value) else value
        (path.with_name(new_name) if new_name else path).write_text(json.dumps(result))

    def slow_down(self, side, stem, factor):
        self.change(side, stem, {"time.step_seconds": lambda times: [factor * t for t in times]})

    def compare(self, *arguments, status=0):
        """Its Markdown; the exit status is as expected and nothing goes to standard error."""
        done, out, err = self.run_memfloor("compare", *(arguments or ("first", "second")))
        self.assertEqual((done, err), (status, ""), out)
        return out

    def compare_json(self, *arguments, status=0):
        return strict_json(self.compare(*(arguments or ("first", "second")), "--json",
                                        status=status))

    def row(self, comparison, name):
        return next(row for row in comparison["rows"] if row["name"] == name)


class CompareTest(StoredResultsTest):

    def test_two_runs_of_one_machine_show_no_regression(self):
        text = self.compare()
        self.assertIn("no regression in 4 runs", text)
        self.assertNotIn("Regressions", sections(text))
        self.assertIn("Bytes are equal in 4 runs of 4.", text)
        self.assertIn("no significant change", text)
        counts = self.compare_json()["counts"]
        self.assertEqual((counts["regression"], counts["improvement"], counts["explained"]),
                         (0, 0, 0))
        self.assertIn("no regression in 4 runs", self.compare("second", "first"))
        # A sure difference that is too small to matter.
        self.assertIn("significant, but below 5 %", text)

    def test_identical_results(self):
        comparison = self.compare_json("first", "first")
        self.assertEqual(comparison["counts"]["unchanged"], sum(comparison["counts"].values()))
        time = self.row(comparison, IMAGES)["time"]
        self.assertEqual((time["slower_by"], time["p_value"]), (0, 1))
        self.compare(self.folder / "first" / "step_wrn10_1.json",
                     self.folder / "first" / "step_wrn10_1.json")

    def test_a_planted_slowdown_and_a_planted_byte_are_all_it_reports(self):
        self.slow_down("second", "step_wrn10_1", 1.1)
        self.change("second", "step_dynamic_conv",
                    {"memory.category_peak.weight": lambda count: count + 1})
        text = self.compare(status=1)
        found = sections(text)
        self.assertIn("2 regressions in 4 runs", text)
        self.assertEqual(len(found["Regressions"]), 2)
        byte, slow = sorted(found["Regressions"])
        self.assertRegex(byte, rf"\A- `{TEXT}`: category_peak.weight is \d+ bytes, 1 more than")
        self.assertIn("the fingerprint of the machine is the same", byte)
        self.assertRegex(slow, rf"\A- `{IMAGES}`: \d+\.\d % slower: .* p [=<] 0\.0")
        self.assertNotIn("Improvements", found)
        self.assertLess(text.index("## Regressions"), text.index("## Unchanged"))
        comparison = self.compare_json(status=1)
        self.assertEqual([(f["verdict"], f["row"]) for f in comparison["findings"]],
                         [("regression", TEXT), ("regression", IMAGES)])
        self.assertEqual(self.row(comparison, TEXT)["bytes"]["differences"][0]["b"] -
                         self.row(comparison, TEXT)["bytes"]["differences"][0]["a"], 1)

    def test_a_byte_less_of_the_same_code_is_no_improvement(self):
        self.change("second", "step_wrn10_1", {"memory.reserved_bytes": lambda count: count - 1})
        self.assertIn("reserved_bytes", sections(self.compare(status=1))["Regressions"][0])

    def test_other_code_may_need_less_but_not_more(self):
        changes = {"environment.source_sha256": "0" * 64,
                   "memory.category_peak.activation": lambda count: count - 64}
        self.change("second", "step_wrn10_1", changes)
        self.assertIn("activation", sections(self.compare())["Improvements"][0])
        self.change("second", "step_wrn10_1",
                    {"memory.category_peak.activation": lambda count: count + 65})
        self.assertIn("activation", sections(self.compare(status=1))["Regressions"][0])

    def other_machine(self):
        """Makes the second run one of another machine; workspace and what includes it differ."""
        more = lambda count: count + 4096
        for path in (self.folder / "second").glob("*.json"):
            self.change("second", path.stem, {
                "environment.fingerprint": lambda text: text.replace("avx2", "avx512_core_amx"),
                "memory.category_peak.workspace": more, "memory.at_peak.workspace": more,
                "memory.peak_total_bytes": more, "memory.allocated_peak_bytes": more})

    def test_workspace_of_another_machine_is_explained(self):
        self.other_machine()
        text = self.compare()
        self.assertIn("no regression", text)
        self.assertIn("instruction_set: avx2 and avx512_core_amx", text)
        self.assertIn("Bytes that differ as machines may", sections(text))
        self.assertEqual(self.compare_json()["counts"]["explained"], 4)
        self.change("second", "predict_wrn28_2", {"memory.paper.model_bytes": lambda n: n + 1})
        lines = sections(self.compare(status=1))["Regressions"]
        self.assertEqual(len(lines), 1)
        self.assertIn("must be equal on every machine", lines[0])

    def test_faster_is_an_improvement(self):
        self.slow_down("first", "step_wrn10_1", 1.3)
        lines = sections(self.compare())["Improvements"]
        self.assertEqual(len(lines), 1)
        self.assertIn(IMAGES, lines[0])

    def test_noise_is_no_regression(self):
        for side, times in (("first", [1, 2, 3, 4, 5]), ("second", [1.1, 2.1, 3.6, 4.1, 5.1])):
            self.change(side, "step_wrn10_1", {"time.step_seconds": times})
        comparison = self.compare_json()
        time = self.row(comparison, IMAGES)["time"]
        self.assertAlmostEqual(time["slower_by"], 0.2)
        self.assertEqual(time["verdict"], "unchanged")

    def test_few_samples_decide_nothing(self):
        for side in ("first", "second"):
            self.change(side, "step_wrn10_1", {"time.step_seconds": lambda times: times[:3]})
        self.slow_down("second", "step_wrn10_1", 2)
        text = self.compare()
        found = sections(text)
        self.assertIn("; 1 difference is not decided, for want of samples**", text)
        self.assertIn(IMAGES, found["Too few samples to decide"][0])
        self.assertNotIn("Regressions", found)

    def test_repetitions_are_pooled_and_copies_are_not(self):
        steps = len(read_json(self.folder / "first" / "step_wrn10_1.json")["time"]["step_seconds"])
        self.change("first", "step_wrn10_1",
                    {"time.step_seconds": lambda times: [t + 1e-6 for t in times]}, "again.json")
        shutil.copy(self.folder / "second" / "step_wrn10_1.json", self.folder / "second" / "z.json")
        comparison = self.compare_json()
        time = self.row(comparison, IMAGES)["time"]
        self.assertEqual((time["a"]["count"], time["b"]["count"]), (2 * steps, steps))
        self.assertEqual(len(comparison["notes"]), 1)
        self.assertIn("z.json' is a copy", comparison["notes"][0])

    def test_other_numbers_of_threads_are_compared_and_said(self):
        self.change("second", "step_wrn10_1",
                    {"spec.threads": 8,
                     "environment.fingerprint": lambda t: t.replace("threads=1", "threads=8")})
        comparison = self.compare_json()
        self.assertEqual(self.row(comparison, IMAGES)["threads"], {"a": 1, "b": 8})
        self.assertIn("threads: 1 in A, 8 in B", self.compare())

    def test_runs_without_a_partner_are_listed(self):
        (self.folder / "first" / "step_dynamic_conv.json").unlink()
        (self.folder / "second" / "step_wrn10_1.json").unlink()
        found = sections(self.compare())
        self.assertEqual(found["Only B has"], [f"- `{TEXT}`"])
        self.assertEqual(found["Only A has"], [f"- `{IMAGES}`"])

    def test_other_data_is_not_compared(self):
        for side, digit in (("first", "1"), ("second", "2")):
            self.change(side, "step_wrn10_1",
                        {"environment.data_sha256": {"data_batch_1.bin": digit * 64}})
        comparison = self.compare_json()
        self.assertEqual(len(comparison["rows"]), 3)
        self.assertIn("data_batch_1.bin", comparison["notes"][0])

    # ---- quality

    def trainings(self, side, accuracies):
        for seed, accuracy in enumerate(accuracies, 1):
            self.change(side, "step_wrn10_1",
                        {"command": "train", "spec.seed": seed, "quality.test_accuracy": accuracy},
                        f"train{seed}.json")

    def quality_of(self, first, second, status=0):
        self.trainings("first", first)
        self.trainings("second", second)
        comparison = self.compare_json(status=status)
        row = next(row for row in comparison["rows"] if row["command"] == "train")
        self.assertEqual(row["quality"][0]["key"], "test_accuracy")
        return row["quality"][0]["verdict"]

    def test_quality_within_the_spread_of_seeds(self):
        self.assertEqual(self.quality_of([0.91, 0.92, 0.93], [0.905, 0.915, 0.925]), "unchanged")

    def test_quality_beyond_the_spread_of_seeds(self):
        self.assertEqual(self.quality_of([0.91, 0.92, 0.93], [0.89, 0.895, 0.90], status=1),
                         "regression")
        self.assertIn("test accuracy is 89.50 % (median of 3 seeds, 89.00 % to 90.00 %)",
                      sections(self.compare(status=1))["Regressions"][0])

    def test_quality_of_one_seed(self):
        self.assertEqual(self.quality_of([0.92], [0.85]), "undecided")
        self.assertIn("one seed says nothing of significance", self.compare())

    # ---- what it writes

    def test_files(self):
        self.slow_down("second", "step_wrn10_1", 1.5)
        text = self.compare(status=1)
        self.assertEqual(self.compare("first", "second", "--out", "c.md", status=1), text)
        self.assertEqual((self.folder / "c.md").read_text(), text)
        comparison = self.compare_json("first", "second", "--out", "c.json", status=1)
        self.assertEqual(read_json(self.folder / "c.json"), comparison)
        self.assertEqual(self.names() - {"c.md", "c.json"}, self.names_of_stored())

    def names_of_stored(self):
        return {f"{side}{tail}" for side in ("first", "second")
                for tail in ["", *(f"/{p.name}" for p in (STORED / side).iterdir())]}

    # ---- bad input

    def test_bad_paths(self):
        (self.folder / "empty").mkdir()
        for arguments, words in [
                (["first"], "not 1"), (["first", "second", "first"], "not 3"),
                (["first", "absent"], "there is no 'absent'"),
                (["empty", "first"], "no result file in 'empty'"),
                (["first/step_wrn10_1.json", "second/step_dynamic_conv.json"], "no run in common"),
                (["first", "second", "--model", "wrn10_1"], "no flags of a spec"),
                (["first", "second", "--out", "c.txt"], "'c.txt'"),
                (["first", "second", "--out", "absent/c.md"], "absent")]:
            self.assert_refused("compare", *arguments, words=words)

    def test_bad_files(self):
        good = (self.folder / "first" / "step_wrn10_1.json").read_text()
        for text, *words in [
                ("", "bad.json", "empty"), ("{", "bad.json", "not JSON at byte"),
                (good.replace('"test_accuracy": null', '"test_accuracy": NaN'), "never NaN"),
                (good.replace('"command"', '"command": "step",\n"command"', 1), '"command" twice'),
                (good.replace('"schema_version": 1', '"schema_version": 2'), "schema_version"),
                (good.replace('"workspace"', '"workplace"'), "memory.at_peak.workspace"),
                (good.replace('"precision"', '"decision"'), "unknown key 'decision'"),
                (good.replace('"step_seconds": [', '"step_seconds": [0,'), "positive numbers")]:
            self.assertNotEqual(text, good)
            self.write("first/bad.json", text)
            self.assert_refused("compare", "first", "second", words=["bad.json", *words])

    def test_what_is_no_result(self):
        self.write("machine.json", '{"machine": "mine"}')
        self.assert_refused("compare", "machine.json", "second", words="not a result")
        self.write("first/machine.json", '{"machine": "mine"}')
        self.compare()

    def test_results_of_one_side_that_do_not_agree(self):
        self.change("first", "step_wrn10_1", {"memory.at_peak.input": lambda n: n + 1}, "x.json")
        self.assert_refused("compare", "first", "second", words=["x.json", "at_peak.input"])
        self.change("first", "step_wrn10_1",
                    {"environment.fingerprint": lambda t: t.replace("avx2", "sse41")}, "x.json")
        self.assert_refused("compare", "first", "second",
                            words=["x.json", "two machines", "instruction_set: avx2 and sse41"])


class FigureTest(StoredResultsTest):

    def draw(self, *arguments):
        done = subprocess.run([ROOT / "scripts" / "compare_figure", *map(str, arguments)],
                              cwd=self.folder, capture_output=True, text=True, check=False)
        if "run scripts/setup" in done.stderr:
            self.skipTest(done.stderr.strip())
        return done

    def test_figures_have_the_same_bytes_every_time(self):
        self.slow_down("second", "step_wrn10_1", 1.1)
        for kind in ("png", "pdf"):
            for name in ("one", "two"):
                done = self.draw("first", "second", "--out", f"{name}.{kind}")
                self.assertEqual(done.returncode, 0, done.stderr)
            one = (self.folder / f"one.{kind}").read_bytes()
            self.assertGreater(len(one), 5000)
            self.assertEqual(one, (self.folder / f"two.{kind}").read_bytes())

    def test_refusals_are_one_sentence(self):
        for arguments, words in [(["first", "absent", "--out", "f.png"], "there is no 'absent'"),
                                 (["first", "second", "--out", "f.svg"], ".png or .pdf"),
                                 (["first", "second", "--out", "absent/f.png"], "absent/f.png")]:
            done = self.draw(*arguments)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"\Acompare_figure: [^\n]+\n\Z")
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
