"""memfloor bench and memfloor step as a user runs them: bytes, JSON, what is skipped, what fails."""

import unittest

from memfloor_process import MemfloorTest, read_json, reproducible, strict_json

IMAGES = ["--model", "wrn10_1", "--batch-size", "6", "--threads", "1"]
TEXT = ["--model", "dynamic_conv1_1_16", "--max-tokens", "200", "--sentence-length", "25",
        "--threads", "1"]
# Cases of the registry, and the flags that say the same. The end of a name tells it from longer ones.
IMAGE_CASES = {"/batch_size=6": [],
               "/precision=bf16/sparsity=0.8/batch_size=6/microbatch=5/checkpoint=tapered:3":
                   ["--preset", "paper-best"],
               "/sparsity=0.8/sparse_index=csr16/batch_size=6":
                   ["--sparsity", "0.8", "--sparse-index", "csr16"],
               "/batch_size=6/checkpoint=recursive/normalization":
                   ["--checkpoint", "recursive/normalization"]}
TEXT_CASES = {"/max_tokens=200/microbatch_tokens=125/sentence_length=25":
                  ["--microbatch-tokens", "125"],
              "/max_tokens=200/sentence_length=25/conv_impl=direct": ["--conv-impl", "direct"]}
CATEGORIES = ["weight", "sparse_index", "gradient", "optimizer_state", "buffer", "activation",
              "transient", "workspace", "input"]


def name_of(kind, spec, case):
    return f"{kind}/model={spec[1]}/data=synthetic{case}"


def case_of(entry):
    return entry["name"].split("/iterations:")[0]


def filter_of(names):
    any_of = "|".join(name.replace(".", "[.]") for name in names)
    return f"--benchmark_filter=^({any_of})/iterations"


def byte_counters(entry):
    return {key: value for key, value in entry.items() if key.endswith("_bytes")}


def as_counters(memory):
    """A result file's bytes as bench reports them: a category without bytes is left out."""
    bytes_of = {"peak_total_bytes": memory["peak_total_bytes"],
                "paper_total_bytes": memory["paper"]["total_bytes"],
                "evaluation_peak_bytes": memory["evaluation_peak_bytes"]}
    bytes_of.update({f"{name}_bytes": memory["category_peak"][name] for name in CATEGORIES})
    return {key: value for key, value in bytes_of.items() if value}


class BenchTest(MemfloorTest):
    def entries(self, *flags, status=0):
        code, out, err = self.run_memfloor("bench", *flags, "--benchmark_format=json")
        self.assertEqual(code, status, err)
        return strict_json(out)["benchmarks"]

    def bench(self, *flags, names, status=0):
        """Runs the cases of these names, each once, and returns what is said of them in order."""
        entries = self.entries(*flags, filter_of(names), status=status)
        by_name = {case_of(entry): entry for entry in entries}
        self.assertEqual(len(entries), len(by_name))
        self.assertEqual(set(by_name), set(names))
        return [by_name[name] for name in names]

    def assert_same_bytes(self, spec, cases):
        """Of bench's memory and step cases, predict and measure; returns the bytes by name."""
        names = [name_of(kind, spec, case) for case in cases for kind in ["memory", "step"]]
        entries = dict(zip(names, self.bench(*spec, names=names)))
        for case, flags in cases.items():
            for kind, command in [("memory", "predict"), ("step", "measure")]:
                entry = entries[name_of(kind, spec, case)]
                memory = strict_json(self.run_well(command, *spec, *flags, "--json"))["memory"]
                self.assertEqual(byte_counters(entry), as_counters(memory), case)
                # What Google Benchmark's memory hook says.
                self.assertEqual(entry["max_bytes_used"], memory["peak_total_bytes"])
        return {name: byte_counters(entry) for name, entry in entries.items()}

    def test_bytes_of_text(self):
        self.assert_same_bytes(TEXT, TEXT_CASES)

    def test_bytes_of_images_in_any_order(self):
        bytes_of = self.assert_same_bytes(IMAGES, IMAGE_CASES)
        # Some cases, each twice and mixed; and one alone.
        names = list(bytes_of)[:4]
        mixed = [entry for entry in self.entries(
                     *IMAGES, filter_of(names), "--benchmark_enable_random_interleaving=true",
                     "--benchmark_repetitions=2") if entry["run_type"] == "iteration"]
        self.assertEqual(len(mixed), 2 * len(names))
        for entry in mixed + self.bench(*IMAGES, names=[list(bytes_of)[-1]]):
            self.assertEqual(byte_counters(entry), bytes_of[case_of(entry)])

    def test_repetitions(self):
        """The spread of a counter that is always zero would be no number."""
        names = [name_of("memory", IMAGES, "/batch_size=6"),
                 "op/batch_norm_relu.forward/precision=fp32/images=6/size=8/channels=128"]
        entries = self.entries(*IMAGES, filter_of(names), "--benchmark_repetitions=3")
        self.assertIn("cv", [entry.get("aggregate_name") for entry in entries])
        # Google Benchmark reads freed memory where its hook is asked more than once.
        self.assertFalse([entry for entry in entries if "max_bytes_used" in entry])

    def test_training_reports_quality(self):
        case = "/batch_size=6/recipe=paper/max_steps=2/test_images=40/seed=1"
        flags = [*IMAGES, "--max-steps", "2", "--test-images", "40"]
        [entry] = self.bench(*flags, names=[name_of("train", IMAGES, case)])
        result = strict_json(self.run_well("train", *flags, "--json"))
        self.assertEqual(entry["test_accuracy"], result["quality"]["test_accuracy"])
        self.assertEqual(byte_counters(entry), as_counters(result["memory"]))
        self.assertGreater(entry["images_per_second_median"], 0)

    def test_impossible_cases_are_listed_with_their_sentence(self):
        """They are no failures. Quotes in a sentence are data, not JSON."""
        entries = self.entries("--device", 'cu"da', "--benchmark_filter=^(memory|op)/")
        self.assertGreater(len(entries), 150)
        for entry in entries:
            text = entry.get("error_message", "") + entry.get("skip_message", "")
            self.assertIn("--device 'cu\"da' is not known", text, entry["name"])
        # A small model has no six segments; the rest of the registry runs.
        possible, impossible = self.bench(
            *IMAGES, names=[name_of("memory", IMAGES, f"/batch_size=6/checkpoint=segments:{count}")
                            for count in [2, 6]])
        self.assertGreater(possible["peak_total_bytes"], 0)
        self.assertNotIn("peak_total_bytes", impossible)
        self.assertIn("segments:6", impossible.get("error_message", "") +
                      impossible.get("skip_message", ""))

    def test_a_failing_case_is_reported_and_the_others_go_on(self):
        spec = [*IMAGES, "--data", "cifar10", "--data-dir", 'no "folder"', "--max-steps", "1"]
        names = [f"{kind}/model=wrn10_1/data=cifar10/batch_size=6{end}"
                 for kind, end in [("step", ""), ("train", "/recipe=paper/max_steps=1/seed=1"),
                                   ("memory", "")]]
        step, train, memory = self.bench(*spec, names=names, status=1)
        for failed in [step, train]:
            self.assertIn('no "folder"', failed["error_message"])
            self.assertNotIn("peak_total_bytes", failed)
        self.assertGreater(memory["peak_total_bytes"], 0)

    def test_both_workloads_are_listed(self):
        listed = self.run_well("bench", "--benchmark_list_tests").split()
        names = strict_json(self.run_well("list", "--json"))["benchmarks"]
        self.assertEqual([name.split("/iterations:")[0] for name in listed], names)
        for model in ["wrn28_2", "dynamic_conv"]:
            for kind in ["memory", "step", "train"]:
                self.assertTrue(any(name.startswith(f"{kind}/model={model}/") for name in names))
        one = strict_json(self.run_well("list", "--json", "--model", "dynamic_conv"))["benchmarks"]
        self.assertEqual(one, [name for name in names if "/model=dynamic_conv/" in name])


class StepTest(MemfloorTest):
    def check(self, spec, unit, other_unit):
        out = self.folder / "step.json"
        text = self.run_well("step", *spec, "--steps", "3", "--out", out)
        self.assertIn("3 steps: ", text)
        result = read_json(out)
        self.assertEqual(result["command"], "step")
        time = result["time"]
        self.assertEqual(len(time["step_seconds"]), 3)
        self.assertEqual(time["step_seconds_median"], sorted(time["step_seconds"])[1])
        self.assertGreater(min(time["step_seconds"]), 0)
        self.assertGreater(time[f"{unit}_per_second"], 0)
        self.assertIsNone(time.get(f"{other_unit}_per_second"))
        self.assertEqual(result["quality"], {"test_accuracy": None, "curve": []})
        self.assertRegex(result["environment"]["source_sha256"], "^[0-9a-f]{64}$")
        predicted = strict_json(self.run_well("predict", *spec, "--json"))
        self.assertEqual(reproducible(result["memory"]), reproducible(predicted["memory"]))
        self.assertEqual(result["environment"]["source_sha256"],
                         predicted["environment"]["source_sha256"])

    def test_images(self):
        self.check([*IMAGES, "--preset", "paper-best"], "images", "target_tokens")

    def test_text(self):
        """Of sentences that differ, too: the peak is the whole data set's."""
        self.check([flag for flag in TEXT if flag not in ("--sentence-length", "25")],
                   "target_tokens", "images")

    def test_refusals(self):
        self.assert_refused("step", "--steps", "0", words="--steps")
        self.assert_refused("measure", "--steps", "3", words="--steps does not go with measure")
        self.assert_refused("step", "--data", "cifar10", words="--data-dir")


if __name__ == "__main__":
    unittest.main()
