"""scripts/make_paper makes tables, figures and the page from result files, and shows what they say."""

import copy
import csv
import html.parser
import importlib.util
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from urllib.parse import unquote

import result_samples
from memfloor_process import ROOT, strict_json

SCRIPTS = ROOT / "scripts"
MISSING = [name for name in ("jsonschema", "matplotlib") if importlib.util.find_spec(name) is None]
sys.path.insert(0, str(SCRIPTS))

ON = {"sparsity": {"sparsity": 0.8, "sparse_method": "dsr"}, "low precision": {"precision": "bf16"},
      "microbatching": {"microbatch": 5}, "checkpointing": {"checkpoint": "blocks"}}


def result(command, activation=None, **spec):
    """A good result without training; `activation` changes its bytes."""
    made = copy.deepcopy(result_samples.untrained(command))
    made["spec"].update(spec)
    if made["spec"]["checkpoint"] != "none":
        made["flops"]["recompute"] = 198180864
    if activation is not None:
        set_activation(made["memory"], activation)
    return made


def set_activation(memory, count):
    more = count - memory["at_peak"]["activation"]
    for split in (memory["at_peak"], memory["category_peak"]):
        split["activation"] += more
    for total in ("activation_bytes", "total_bytes"):
        memory["paper"][total] += more
    for total in ("peak_total_bytes", "allocated_peak_bytes", "reserved_bytes"):
        memory[total] += more


def sixteen():
    """Measured, each with bytes of its own."""
    made = []
    for number, on in enumerate(itertools.product([False, True], repeat=4)):
        spec = {}
        for technique, is_on in zip(ON, on):
            spec |= ON[technique] if is_on else {}
        made.append(result("measure", 381407264 - 25000000 * number, **spec))
    return made


def training(accuracy, **spec):
    """Of the short recipe on CIFAR-10."""
    made = copy.deepcopy(result_samples.training())
    made["spec"].update(data="cifar10", epochs=12, **spec)
    made["quality"]["test_accuracy"] = accuracy
    made["quality"]["curve"][-1].update(epoch=12, test_accuracy=accuracy)
    made["environment"]["data_sha256"] = {"test_batch.bin": "cd" * 32}
    if made["spec"]["sparsity"]:
        made["sparse_layers"] = [{"name": "all", "positions": 1451520, "non_zeros": 290304}]
    if made["spec"]["checkpoint"] != "none":
        made["flops"]["recompute"] = 198180864
    return made


def write_machine(folder, results, name="amd_epyc_avx2_2cores"):
    """Files are named by numbers: what a result is stands inside."""
    folder.mkdir(parents=True)
    (folder / "machine.json").write_text(json.dumps({**result_samples.machine(), "machine": name}))
    for number, one in enumerate(results):
        path = folder / one["command"] / f"{number}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(one), encoding="utf-8")


class Page(html.parser.HTMLParser):
    """Checks that elements nest; collects links, ids and text."""
    VOID = {"meta", "img", "br", "wbr"}

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.ids, self.tags, self.words, self.alts = [], [], [], set(), [], []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.add(tag)
        self.links += [attributes[key] for key in ("href", "src") if key in attributes]
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.alts += [attributes.get("alt")] if tag == "img" else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> within {self.open}"
        self.open.pop()

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@unittest.skipIf(MISSING, f"the Python packages {', '.join(MISSING)} are missing; run scripts/setup.")
class MakePaperTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.results, self.out = self.folder / "results", self.folder / "out"

    def run_script(self, *arguments, **options):
        done = subprocess.run([SCRIPTS / "make_paper", "--results", self.results, "--out-dir", self.out,
                               *arguments], capture_output=True, text=True, check=False, **options)
        self.assertNotIn("Traceback", done.stderr)
        return done

    def make(self, *arguments):
        done = self.run_script(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def rows(self, name):
        with open(self.out / f"{name}.csv", newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def page(self):
        return Page((self.out / "index.html").read_text(encoding="utf-8"))

    def contents(self):
        return {path.name: path.read_bytes() for path in self.out.iterdir()}

    def assert_refused(self, done, *words):
        """One sentence."""
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"\Amake_paper: [^\n]+\n\Z")
        for word in words:
            self.assertIn(word, done.stderr)

    def test_everything_from_results_alone_twice_the_same_bytes(self):
        combinations = sixteen()
        combinations[-1]["spec"]["preset"] = "paper-best"
        steps = [result("step"), result("step", microbatch=5)]
        all_on = {key: value for on in ON.values() for key, value in on.items()}
        trainings = [training(0.90), training(0.88, **all_on)]
        predictions = [result("predict", 1000, microbatch=5),  # measured as well, with other bytes
                       result("predict", 2000, microbatch=2)]
        write_machine(self.results / "one", combinations + steps + predictions)
        write_machine(self.results / "two", trainings, "two")
        self.make()
        first = self.contents()
        self.make()
        self.assertEqual(first, self.contents())
        self.assertFalse([name for name in first if name.endswith(".tmp")])

        with self.subTest("numbers are the files'"):
            rows = self.rows("combinations_wrn28_2")
            self.assertEqual(
                sorted((row["peak_total_bytes"], row["activation_bytes"]) for row in rows),
                sorted((str(r["memory"]["peak_total_bytes"]), str(r["memory"]["category_peak"]["activation"]))
                       for r in combinations))
            self.assertEqual(rows[0]["name"], "baseline")
            self.assertEqual(rows[-1]["name"], "paper-best")
            markdown = (self.out / "combinations_wrn28_2.md").read_text(encoding="utf-8")
            self.assertIn(f"{combinations[0]['memory']['peak_total_bytes'] / 1e6:.2f} |", markdown)
        with self.subTest("one technique alone, blank without effect"):
            rows = {row["technique"]: row for row in self.rows("techniques_wrn28_2")}
            self.assertEqual([*rows], ["baseline", *ON, "all four"])
            self.assertEqual(rows["checkpointing"]["recompute_operations"], "198180864")
            self.assertEqual(rows["sparsity"]["model_bytes"], "5870440")  # blank to readers only
            line = next(line for line in (self.out / "techniques_wrn28_2.md").read_text().splitlines()
                        if line.startswith("| sparsity"))
            self.assertEqual([cell.strip() for cell in line.split("|")][3:5], ["", ""])
        with self.subTest("measured wins over predicted"):
            made = {row["setting"]: row for row in self.rows("settings_wrn28_2")}
            self.assertEqual(made["parts of 5 images"]["made_by"], "measured")
            self.assertEqual(made["parts of 5 images"]["activation_bytes"], str(381407264 - 50000000))
            self.assertEqual(made["parts of 2 images"]["made_by"], "predicted")
            self.assertEqual(made["parts of 2 images"]["activation_bytes"], "2000")
        with self.subTest("the paper and ours"):
            rows = {row["quantity"]: row for row in self.rows("paper_vs_ours_wrn28_2")}
            change = rows["change in test accuracy"]
            self.assertEqual((change["paper"], change["ours_all_four_techniques"]), ("-0.4", "-2.0"))
            before, after = (combinations[i]["memory"]["paper"]["total_bytes"] for i in (0, -1))
            self.assertAlmostEqual(
                float(rows["times less memory, in the paper's convention"]["ours_all_four_techniques"]),
                before / after, places=3)
        with self.subTest("trainings of every machine"):
            self.assertEqual([(row["shortened_to"], row["test_accuracy"]) for row in self.rows("trainings")],
                             [("12 epochs", "0.9"), ("12 epochs", "0.88")])
        with self.subTest("the page"):
            page = self.page()
            for link in page.links:
                if link.startswith("#"):
                    self.assertIn(link[1:], page.ids)
                elif link != "https://arxiv.org/abs/1904.10631":
                    self.assertTrue((self.out / unquote(link)).is_file(), link)
            self.assertEqual(len(page.ids), len(set(page.ids)))
            self.assertTrue(page.alts and all(page.alts))
            self.assertNotIn("script", page.tags)
            for words in ["60.7×", "8.7×", "not available", "−2.00 points, shortened", "not measured yet",
                          "one/measure/0.json", "two/train/0.json", "abababababab", "000000000000",
                          "build/memfloor suite run --filter '^memory/model=dynamic_conv/'"]:
                self.assertIn(words, page.text)
        with self.subTest("the list of its own files"):
            listed = strict_json((self.out / "make_paper.json").read_text())["files"]
            self.assertEqual(sorted([*listed, "make_paper.json"]), sorted(first))

    def test_what_it_no_longer_makes_is_removed_and_nothing_else(self):
        write_machine(self.results / "one", [result("measure"), result("step")])
        self.out.mkdir()
        (self.out / "mine.csv").write_text("1\n")
        self.make()
        self.assertTrue((self.out / "throughput_wrn28_2.csv").exists())
        (self.results / "one" / "step" / "1.json").unlink()
        self.assertIn("throughput_wrn28_2.csv is removed", self.make().stdout)
        self.assertFalse((self.out / "throughput_wrn28_2.csv").exists())
        self.assertTrue((self.out / "mine.csv").exists())

    def test_a_list_of_own_files_that_was_tampered_with_is_not_followed(self):
        from paper import files
        self.out.mkdir()
        self.assertEqual(files.made_before(self.out), [])
        files.write_manifest(self.out, ["b.csv", "a.csv"])
        self.assertEqual(files.made_before(self.out), ["a.csv", "b.csv"])
        for text in ['{"files": ["../outside"]}', '{"files": ["/etc/passwd"]}', "{", "[]", '{"files": 3}', "{}"]:
            with self.subTest(text=text), self.assertRaises(ValueError):
                (self.out / files.MANIFEST).write_text(text)
                files.made_before(self.out)

    def test_faulty_files_are_left_out_with_a_sentence(self):
        bad = result("measure")
        bad["memory"]["peak_total_bytes"] += 1
        write_machine(self.results / "one", [result("measure"), bad])
        (self.results / "one" / "measure" / "2.json").write_text("{")
        write_machine(self.results / "two", [training(0.9)])
        (self.results / "two" / "machine.json").write_text("{}")
        done = self.make("--headline")
        self.assertEqual(len(done.stderr.splitlines()), 3, done.stderr)
        for words in ["measure/1.json is left out: memory.at_peak sums to", "measure/2.json is left out: it is not JSON",
                      "two/machine.json, and the results beside it, are left out: "]:
            self.assertIn(words, done.stderr)

    def test_headline_on_a_terminal(self):
        write_machine(self.results / "one", sixteen())
        done = self.make("--headline")
        self.assertEqual(done.stderr, "")
        self.assertFalse(self.out.exists())
        lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
        self.assertIn("WideResNet-28-2 on CIFAR-10", lines)
        self.assertIn("times less memory, in the paper's convention 60.7× 16.6× 16.6×", lines)
        self.assertIn("change in BLEU −0.15 BLEU not measured yet not measured yet", lines)
        self.assertIn(str(self.out / "index.html"), lines[-1])

    def test_a_reader_that_has_seen_enough_is_no_error(self):
        write_machine(self.results / "one", sixteen())
        for script, *arguments in [("make_paper", "--headline", "--results", self.results),
                                   ("check_results", self.results)]:
            with self.subTest(script=script, arguments=arguments):
                read, write = os.pipe()
                os.close(read)
                with os.fdopen(write, "w") as closed:
                    done = subprocess.run([sys.executable, "-B", SCRIPTS / script, *arguments], text=True,
                                          stdout=closed, stderr=subprocess.PIPE, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_of_several_settings_of_all_four_the_preset_is_the_headline(self):
        others = copy.deepcopy([r for r in sixteen() if r["spec"]["precision"] == "bf16"])
        for one in others:
            one["spec"]["precision"] = "bf16_master"
            set_activation(one["memory"], one["memory"]["at_peak"]["activation"] + 64)
        preset = sixteen()
        preset[-1]["spec"]["preset"] = "paper-best"
        for results in (preset + others, others + preset):
            write_machine(self.results / "one", results)
            self.assertIn("all four techniques: DSR 0.8 + BF16 + parts of 5", self.run_script("--headline").stdout)
            shutil.rmtree(self.results)

    def test_the_readme_says_what_the_results_say(self):
        write_machine(self.results / "one", sixteen())
        readme = self.folder / "README.md"
        readme.write_text("Before.\n<!-- made by scripts/make_paper --readme: begin -->\nold\n<!-- end -->\nAfter.\n")
        self.make("--readme", readme)
        text = readme.read_text()
        self.assertTrue(text.startswith("Before.\n") and text.endswith("\nAfter.\n"))
        self.assertNotIn("old", text)
        baseline, lean = sixteen()[0]["memory"], sixteen()[-1]["memory"]
        self.assertIn(f"{baseline['peak_total_bytes'] / 1e6:,.2f} MB", text)
        self.assertIn(f"**{baseline['peak_total_bytes'] / lean['peak_total_bytes']:.1f}×**", text)
        self.assertFalse(self.out.exists())
        readme.write_text("No place.\n")
        done = self.run_script("--readme", readme)
        self.assertEqual(done.returncode, 1)
        self.assertIn("has no place for the table", done.stderr)

    def test_the_committed_readme_is_up_to_date(self):
        readme = self.folder / "README.md"
        shutil.copy(ROOT / "README.md", readme)
        machines = [path.parent for path in (ROOT / "results").glob("*/machine.json") if path.parent.name != "local"]
        done = subprocess.run([SCRIPTS / "make_paper", "--results", *machines, "--readme", readme],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(readme.read_text(), (ROOT / "README.md").read_text(),
                         "run scripts/make_paper --results MACHINES --readme README.md")

    def test_refuses_what_it_cannot_do_in_one_sentence(self):
        self.assert_refused(self.run_script(), "there are no results in", "suite run")
        write_machine(self.results / "one", [])
        self.assert_refused(self.run_script(), "there are no results in", "suite run")
        write_machine(self.results / "two", [result("measure")])
        self.assert_refused(self.run_script("--machine", self.results / "none"), "none' holds no results")
        self.out.write_text("a file in the folder's place")
        self.assert_refused(self.run_script(), "cannot be written")
        self.out.unlink()
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # as on a full disk
        self.assert_refused(self.run_script(preexec_fn=limit), "cannot be written")
        self.assertEqual(list(self.out.iterdir()), [])

    def test_hostile_text_is_only_text(self):
        hostile = '<script>alert("1")</script> & | 50% $x_1$ \\evil{#~^} "q"'
        evil = training(0.9)
        evil["environment"]["cpu_model"] = hostile
        evil["spec"]["data"] = hostile
        baseline = result("measure")
        baseline["environment"]["cpu_model"] = hostile
        write_machine(self.results / "one", [baseline, result("predict", 5000, microbatch=5), evil])
        self.make()
        page = self.page()
        self.assertNotIn("script", page.tags)
        self.assertIn(hostile, page.text)
        self.assertIn(hostile, self.rows("trainings")[0]["machine"])
        escaped = (r'\textless{}script\textgreater{}alert(\textquotedbl{}1\textquotedbl{})\textless{}/script'
                   r'\textgreater{} \& \textbar{} 50\% \$x\_1\$ \textbackslash{}evil\{\#\textasciitilde{}'
                   r'\textasciicircum{}\} \textquotedbl{}q\textquotedbl{}')
        latex = (self.out / "trainings.tex").read_text(encoding="utf-8")
        self.assertIn(escaped, latex.replace(r" \\ ", " "))  # a long cell has several lines
        line = (self.out / "trainings.md").read_text(encoding="utf-8").splitlines()[-1]
        self.assertIn(r"\<script\>", line)
        self.assertIn(r"\| 50%", line)

    def test_every_module_is_in_a_section(self):
        text = (SCRIPTS / "make_paper").read_text(encoding="utf-8")
        for path in sorted(SCRIPTS.glob("paper/*.py")):
            if path.stem.startswith(("table_", "figure_")):
                self.assertIn(f'"{path.stem}"', text)


if __name__ == "__main__":
    unittest.main()
