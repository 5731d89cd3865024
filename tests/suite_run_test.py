"""memfloor suite run: what it writes, skips and refuses, and what kills cannot do to it."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from memfloor_process import (BINARY, LONGEST_SECONDS, MemfloorTest, limit_file_size, read_json,
                              reproducible, strict_json)

# Small enough that a run takes seconds. Of the predictions only the baseline's.
MODEL = ["--model", "wrn10_1", "--batch-size", "10", "--threads", "1"]
TRAINING = ["--test-images", "205", "--max-steps", "12"]
BASELINE = "model=wrn10_1/data=synthetic/batch_size=10"
FILTER = f"^(timeline|measure|step|train)/|^predict/{BASELINE}$"
RUN = ["suite", "run", *MODEL, *TRAINING]
ALL = [*RUN, "--filter", FILTER]
TRAINED = "train/model=wrn10_1"


def setUpModule():
    """One uninterrupted run, which most tests compare with."""
    global base, base_out, base_err
    temporary = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(temporary.cleanup)
    base = Path(temporary.name) / "r"
    done = subprocess.run([BINARY, *ALL, "--results", base, "--json"], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    base_out, base_err = strict_json(done.stdout), done.stderr


def results_in(folder):
    return {str(path.relative_to(folder)): read_json(path)
            for path in Path(folder).rglob("*.json") if path.name != "machine.json"}


def without_times(summary):
    """A summary without the folder's name and what a clock says."""
    rows = [{key: value for key, value in row.items()
             if key not in ("step_seconds_median", "relative_speed")}
            for workload in summary["workloads"] for row in workload["rows"]]
    return {**summary, "folder": "", "workloads": rows}


def processes_with(text):
    """Of all the machine's processes, those with the text in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text in path.read_bytes().decode(errors="replace"):
                found.append(int(path.parent.name))
        except OSError:
            pass
    return found


class SuiteTest(MemfloorTest):

    def setUp(self):
        super().setUp()
        self.results = self.folder / "r"

    def run_suite(self, *extra, expected=0, arguments=None):
        """Runs it with --json; returns what it printed, and its standard error."""
        status, out, err = self.run_memfloor(*(arguments or ALL), "--results", self.results,
                                             "--json", *extra)
        self.assertEqual(status, expected, err)
        return strict_json(out) if out else None, err

    def dry_run(self, *extra, arguments=None):
        return self.run_suite("--dry-run", *extra, arguments=arguments)[0]

    def summary(self, folder=None):
        return strict_json(self.run_well("suite", "summary", "--results", folder or self.results,
                                         "--json"))

    def assert_whole(self):
        """The results are the base's, nothing else lies beside them, and the summary agrees."""
        self.assertEqual({str(path.relative_to(self.results)) for path in self.results.rglob("*")},
                         {str(path.relative_to(base)) for path in base.rglob("*")})
        wanted = results_in(base)
        for name, result in results_in(self.results).items():
            for key in ["command", "spec", "quality", "flops", "notes"]:
                self.assertEqual(result[key], wanted[name][key], name)
            self.assertEqual(reproducible(result["memory"]), reproducible(wanted[name]["memory"]))
        self.assertEqual(without_times(self.summary()), without_times(base_out["summary"]))

    def stamps(self):
        """Of every result file: what changes when it is written anew."""
        return {str(path.relative_to(self.results)): (path.stat().st_mtime_ns, path.stat().st_ino)
                for path in self.results.rglob("*.json")}


class WholeRuns(SuiteTest):

    def test_what_a_run_leaves(self):
        wanted = self.dry_run()
        self.assertFalse(self.results.exists())
        self.assertEqual(wanted["already_there"], [])
        self.assertEqual(set(results_in(base)), {task["file"] for task in wanted["to_run"]})
        self.assertEqual({path.name for path in base.iterdir()},
                         {"machine.json", "predict", "timeline", "measure", "step", "train"})
        self.assertEqual((base_out["ran"], base_out["already_there"], base_out["failed"]),
                         (len(wanted["to_run"]), 0, []))
        self.assertEqual({kind: len(list((base / kind).iterdir()))
                          for kind in ["predict", "timeline", "measure", "step", "train"]},
                         {"predict": 1, "timeline": 2, "measure": 3, "step": 7, "train": 2})

    def test_bytes_are_those_of_the_commands_alone(self):
        for name, result in results_in(base).items():
            command = name.split("/")[0]
            if command not in ("predict", "measure"):
                continue
            spec = self.write("spec.json", json.dumps(result["spec"]))
            alone = strict_json(self.run_well(command, "--spec", spec, "--json"))
            self.assertEqual(reproducible(alone["memory"]), reproducible(result["memory"]), name)
            self.assertEqual(alone["spec"], result["spec"])

    def test_the_machine(self):
        machine = read_json(base / "machine.json")
        environment = read_json(next((base / "measure").iterdir()))["environment"]
        self.assertEqual(machine.pop("schema_version"), 1)
        self.assertRegex(machine.pop("machine"), r"\A[a-z0-9_]+_[0-9]+cores\Z")
        for key, value in machine.items():
            self.assertEqual(value, environment[key], key)
        self.assertLessEqual({"cpu_model", "cpu_count", "instruction_set", "fingerprint",
                              "compiler_flags", "libraries", "machine_memory_bytes"}, set(machine))

    def test_the_summary(self):
        summary = base_out["summary"]
        self.assertEqual(summary["unreadable"], [])
        self.assertEqual((summary["predicted_and_measured"], summary["of_them_equal"]), (1, 1))
        [workload] = summary["workloads"]
        rows = {row["preset"] or row["techniques"]: row for row in workload["rows"]}
        self.assertEqual(workload["rows"][0]["techniques"], "")
        baseline, best = rows[""], rows["paper-best"]
        results = [read_json(base / "measure" / f"{name}.json") for name in
                   [BASELINE.replace("/", ","),
                    "model=wrn10_1,data=synthetic,precision=bf16,sparsity=0.8,batch_size=10,"
                    "microbatch=5,checkpoint=tapered+3"]]
        fat, lean = (result["memory"] for result in results)
        work = results[1]["flops"]
        self.assertEqual(baseline["peak_total_bytes"], fat["peak_total_bytes"])
        self.assertEqual(best["paper_total_bytes"], lean["paper"]["total_bytes"])
        self.assertAlmostEqual(best["peak_times_less"],
                               fat["peak_total_bytes"] / lean["peak_total_bytes"])
        self.assertAlmostEqual(best["paper_times_less"],
                               fat["paper"]["total_bytes"] / lean["paper"]["total_bytes"])
        self.assertEqual(baseline["recompute_share"], 0)
        self.assertGreater(work["recompute"], 0)
        self.assertAlmostEqual(best["recompute_share"],
                               work["recompute"] / (work["forward"] + work["backward"]))
        self.assertEqual(baseline["relative_speed"], 1)
        [training] = best["trainings"]
        result = next(r for n, r in results_in(base / "train").items() if "bf16" in n)
        self.assertEqual(training["test_accuracy"], result["quality"]["test_accuracy"])
        text = self.run_well("suite", "summary", "--results", base)
        self.assertIn("paper-best", text)
        self.assertIn("predicted and measured bytes are equal in 1 of 1 cases", text)

    def test_a_summary_names_the_file_that_no_number_can_be_read_from(self):
        shutil.copytree(base, self.results)
        path = self.results / "measure" / f"{BASELINE.replace('/', ',')}.json"
        whole = read_json(path)
        for bytes_ in ["many", None, -5, 0, 1e300, 0.5]:
            whole["memory"]["peak_total_bytes"] = bytes_
            path.write_text(json.dumps(whole))
            status, out, _ = self.run_memfloor("suite", "summary", "--results", self.results, "--json")
            self.assertEqual(status, 1)
            [unreadable] = strict_json(out)["unreadable"]
            self.assertEqual(unreadable["file"], str(path))
            self.assertIn("its bytes are not whole numbers above 0", unreadable["reason"])

    def test_again_there_is_nothing_to_do(self):
        self.run_suite()
        before = self.stamps()
        self.assertEqual(len(self.dry_run()["already_there"]), len(before) - 1)  # machine.json
        out, _ = self.run_suite()
        self.assertEqual((out["ran"], out["already_there"]), (0, len(before) - 1))
        self.assertEqual(self.stamps(), before)
        self.assert_whole()

    def test_side_by_side_and_in_another_order(self):
        self.run_suite("--filter", "^step/", "--jobs", "3", arguments=RUN)
        self.run_suite("--filter", "^(train|measure)/", "--jobs", "3", arguments=RUN)
        out, _ = self.run_suite("--jobs", "4")
        self.assertEqual((out["ran"], out["already_there"]), (3, 12))
        self.assert_whole()

    def test_shards_are_all_of_it_and_disjoint(self):
        names = [task["name"] for task in self.dry_run()["to_run"]]
        shards = [[task["name"] for task in self.dry_run("--shard", f"{i}/3")["to_run"]]
                  for i in (1, 2, 3)]
        self.assertEqual(sorted(sum(shards, [])), sorted(names))
        self.assertEqual(self.dry_run("--shard", "2/3")["to_run"][0]["name"], shards[1][0])
        # Nine long tasks and more short ones: no shard has all of either.
        for shard in shards:
            self.assertLess(2, len(shard))
        for i in (3, 1):
            self.run_suite("--shard", f"{i}/3")
        self.assertEqual(self.run_suite("--shard", "2/3")[0]["ran"], len(shards[1]))
        self.assert_whole()

    def test_the_whole_suite_of_both_models_is_planned(self):
        both = ["suite", "run", "--threads", "1"]
        quick, headline, full = (
            [task["name"] for task in self.dry_run(level, arguments=both)["to_run"]]
            for level in ("--quick", "--headline", "--full"))
        self.assertEqual(quick, [task["name"] for task in self.dry_run(arguments=both)["to_run"]])
        self.assertEqual(quick, headline)  # without data nothing is trained whole
        self.assertLess(2 * len(quick), 3 * len(full))
        for name in ["predict/model=wrn28_2/data=synthetic",
                     "measure/model=dynamic_conv/data=synthetic/sentence_length=25",
                     "step/model=wrn28_2/data=synthetic/checkpoint=tapered:3"]:
            self.assertIn(name, quick)
            self.assertIn(name, full)
        whole = self.dry_run("--headline", "--data", "synthetic", "--recipe", "paper", "--model",
                             "wrn28_2", "--filter", "^train", arguments=["suite", "run"])
        self.assertIn("train/model=wrn28_2/data=synthetic/recipe=paper/seed=1",
                      [task["name"] for task in whole["to_run"]])


class ChangedRuns(SuiteTest):

    def test_broken_and_changed_results_are_made_again(self):
        filter_ = ["--filter", f"^(predict|measure)/{BASELINE}$"]
        self.run_suite(*filter_, arguments=RUN)
        predicted, measured = (self.results / kind / (BASELINE.replace("/", ",") + ".json")
                               for kind in ("predict", "measure"))
        whole = predicted.read_text()
        result = json.loads(whole)
        other_code = {**result, "environment": {**result["environment"],
                                                "source_sha256": "0" * 64}}
        other_libraries = {**result, "environment": {**result["environment"], "fingerprint": "?"}}
        other_spec = {**result, "spec": {**result["spec"], "seed": 2}}
        other_sum = {**result, "memory": {**result["memory"],
                                          "peak_total_bytes":
                                          result["memory"]["peak_total_bytes"] + 1}}
        before = measured.stat().st_mtime_ns
        for content, words in [
                (whole[:len(whole) // 2], "no JSON, or was cut off"), ("", "no JSON"),
                ("[]", "lacks what a result has"), (json.dumps(other_code), "other code"),
                (json.dumps(other_libraries), "other libraries"),
                (json.dumps(other_spec), "its seed is 2, not 1"),
                (json.dumps(other_sum), "do not sum"),
                (whole.replace('"predict"', '"train"'), 'of command "train"')]:
            with self.subTest(words=words):
                predicted.write_text(content)
                (predicted.parent / (predicted.name + ".4000000.0.tmp")).write_text("half a result")
                out, err = self.run_suite(*filter_, arguments=RUN)
                self.assertEqual((out["ran"], out["already_there"]), (1, 1))
                self.assertIn(f"{predicted.name} is made again: it", err)
                self.assertIn(words, err)
                self.assertEqual(reproducible(read_json(predicted)["memory"]),
                                 reproducible(result["memory"]))
                self.assertEqual(len(list(predicted.parent.iterdir())), 1)
        self.assertEqual(measured.stat().st_mtime_ns, before)
        self.assertEqual(self.run_suite(*filter_, "--seed", "2", arguments=RUN)[0]["ran"], 2)
        self.assertEqual(read_json(measured)["spec"]["seed"], 2)
        predicted.write_text("{}")
        status, out, _ = self.run_memfloor("suite", "summary", "--results", self.results)
        self.assertEqual(status, 1)
        self.assertRegex(out, rf"(?m)^not read: .*{predicted.name}: it lacks what a result has$")

    def test_another_machine_is_refused(self):
        filter_ = ["--filter", f"^predict/{BASELINE}$"]
        self.run_suite(*filter_, arguments=RUN)
        machine = self.results / "machine.json"
        whole = read_json(machine)
        for change, word in [({"cpu_model": "Another CPU"}, "cpu_model"),
                             ({"cpu_count": 999}, "999"),
                             ({"fingerprint": "device=cpu threads=1"}, "fingerprint")]:
            machine.write_text(json.dumps({**whole, **change}))
            self.assert_refused(*RUN, *filter_, "--results", self.results,
                                words=[str(self.results), word, "--results"])
        machine.write_text("{")
        self.assert_refused(*RUN, *filter_, "--results", self.results, words="damaged")
        # A new compiler or kernel of the system is no other machine.
        machine.write_text(json.dumps({**whole, "operating_system": "older"}))
        self.run_suite(*filter_, arguments=RUN)
        self.assertEqual(read_json(machine), whole)

    def test_impossible_cases_are_listed(self):
        arguments = ["suite", "run", "--model", "wrn10_1", "--batch-size", "4", "--threads", "1",
                     "--filter", "^measure/"]
        out, _ = self.run_suite(arguments=arguments)
        [impossible] = out["impossible"]
        self.assertIn("microbatch=5", impossible["name"])
        self.assertIn("between 1 and the batch size (4), not 5", impossible["reason"])
        self.assertEqual((out["ran"], out["failed"]), (2, []))
        self.assertEqual(len(self.dry_run(arguments=arguments)["impossible"]), 1)

    def test_one_that_fails_costs_only_itself(self):
        (self.results / "measure" / (BASELINE.replace("/", ",") + ".json")).mkdir(parents=True)
        out, err = self.run_suite("--filter", "^measure/", expected=1, arguments=RUN)
        [failed] = out["failed"]
        self.assertEqual(failed["name"], f"measure/{BASELINE}")
        self.assertIn("it is a folder", failed["reason"])
        self.assertEqual(out["ran"], 2)
        self.assertRegex(err, r"(?m)^\[\d of 3\] measure/\S+ failed: ")

    def test_what_each_model_trains_on(self):
        cifar = self.folder / "data" / "cifar-10-batches-bin"
        cifar.mkdir(parents=True)
        for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
            os.truncate(self.write(cifar / name, b""), 30_730_000)
        _, err = self.run_suite("--dry-run", "--data-dir", "data")
        self.assertIn(f"wrn10_1 trains on CIFAR-10 in 'data/cifar-10-batches-bin'\n", err)
        out = self.dry_run("--data-dir", "data", "--filter", "^train", arguments=RUN)
        self.assertIn("data=cifar10", out["to_run"][0]["name"])
        _, err = self.run_suite("--dry-run", "--data-dir", cifar.parent.parent / "data" /
                                "cifar-10-batches-bin")
        self.assertIn("trains on CIFAR-10", err)
        (self.folder / "empty").mkdir()
        _, err = self.run_suite("--dry-run", "--data-dir", "empty")
        self.assertIn("wrn10_1 trains on the built-in images", err)
        self.assertIn("'empty' has no cifar-10-batches-bin", err)
        self.assert_refused(*RUN, "--data-dir", "absent", words=["'absent'", "no folder"])


class RefusedFlags(SuiteTest):

    def test_flags(self):
        for flags, *words in [
                (["--filter", "["], "'['", "no regular expression"),
                (["--filter", "zzz"], "'zzz'", "matches nothing", "--dry-run"),
                (["--filter", ""], "--filter", "without a value"),
                (["--shard", "0/3"], "--shard", "at least 1"),
                (["--shard", "4/3"], "--shard", "'4/3'", "2/5"),
                (["--shard", "2"], "--shard", "'2'"), (["--shard", "a/b"], "--shard", "'a'"),
                (["--jobs", "0"], "--jobs", "at least 1"), (["--jobs", "x"], "--jobs", "'x'"),
                (["--quick", "--full"], "--quick and --full", "give one"),
                (["--precision", "bf16"], "--precision", "--filter"),
                (["--preset", "leanest"], "--filter"), (["--out", "x"], "--out", "suite run"),
                (["--model", "vgg"], "'vgg'"), (["--results", "file"], "file")]:
            self.write("file", "no folder")
            self.assert_refused("suite", "run", *flags, words=words)
        self.assert_refused("suite", words=["'suite' is not a command", "suite run"])
        self.assert_refused("suite", "walk", words="'suite walk' is not a command")
        self.assert_refused("measure", "--jobs", "2", words="--jobs does not go with measure")
        self.assert_refused("suite", "summary", "--results", "absent", words="'absent'")

    def test_a_full_disk(self):
        filter_ = ["--filter", f"^(predict|measure)/{BASELINE}$"]
        self.run_suite("--filter", f"^predict/{BASELINE}$", arguments=RUN)
        before = self.stamps()
        status, out, err = self.run_memfloor(*RUN, *filter_, "--results", self.results,
                                             preexec_fn=limit_file_size(1000))
        self.assert_one_sentence(status, err, "cannot write", "File too large")
        self.assertEqual((out, self.stamps()), ("", before))
        out, _ = self.run_suite(*filter_, arguments=RUN)
        self.assertEqual((out["ran"], out["already_there"]), (1, 1))


class StoppedRuns(SuiteTest):

    def stop(self, condition, send):
        """Starts a run, sends it the signal when the condition holds, and waits for its end."""
        process = self.start(*ALL, "--results", self.results, start_new_session=True)
        self.assertTrue(self.wait_until(condition, process), "the run ended early")
        send(process)
        process.communicate(timeout=LONGEST_SECONDS)
        self.wait_until_gone()
        return process.returncode

    def wait_until_gone(self):
        """No process of the suite is left; the system may take a moment to end them."""
        deadline = time.monotonic() + 20
        while processes_with(str(self.results)) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(processes_with(str(self.results)), [])

    def has(self, pattern, count=1):
        return lambda: len(list(self.results.glob(pattern))) >= count

    def test_killed_and_continued(self):
        kill_parent = lambda process: os.kill(process.pid, signal.SIGKILL)
        kill_group = lambda process: os.killpg(process.pid, signal.SIGKILL)
        moments = [(self.has("measure/*.json"), kill_parent),
                   (self.has("step/*.json", 2), kill_group),
                   (self.has("train/*.snapshot"), kill_parent),
                   (self.has("train/*.json"), kill_group)]
        for condition, send in moments:
            done = {name: stamp for name, stamp in self.stamps().items()} \
                if self.results.exists() else {}
            status = self.stop(condition, send)
            self.assertEqual(status, -signal.SIGKILL)
            for name, stamp in done.items():
                self.assertEqual(self.stamps()[name], stamp, name)
            results_in(self.results)  # each of them is whole
        done = self.stamps()
        out, err = self.run_suite()
        self.assertEqual(out["already_there"], len(done) - 1)
        for name, stamp in done.items():
            self.assertEqual(self.stamps()[name], stamp, name)
        self.assert_whole()

    def test_no_process_outlives_a_killed_run(self):
        endless = ["suite", "run", *MODEL, "--max-steps", "1000000", "--filter", "^train/"]
        process = self.start(*endless, "--results", self.results)
        started = lambda: len(processes_with(str(self.results))) == 2
        self.assertTrue(self.wait_until(started, process))
        process.kill()
        process.communicate()
        self.wait_until_gone()

    def test_interrupted_in_a_training_and_continued(self):
        process = self.start(*ALL, "--results", self.results)
        self.assertTrue(self.wait_until(self.has("train/*.snapshot"), process))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LONGEST_SECONDS)
        self.assertEqual(process.returncode, 130, err)
        self.assertRegex(err, r"memfloor: interrupted after \d+ of 15; the same command goes on "
                              r"from there\n\Z")
        self.assertEqual(processes_with(str(self.results)), [])
        done = self.stamps()
        _, err = self.run_suite()
        if list(done) and len(done) < 15:  # the signal may have come at a training's very end
            self.assertRegex(err, r"(?m)^train/\S+: goes on where it was stopped$")
        self.assert_whole()

    def test_a_killed_child_costs_only_itself(self):
        process = self.start(*ALL, "--results", self.results, "--json")
        self.assertTrue(self.wait_until(self.has("train/*.snapshot"), process))
        child = [pid for pid in processes_with(str(self.results)) if pid != process.pid]
        if child:
            os.kill(child[0], signal.SIGKILL)
        out, err = process.communicate(timeout=LONGEST_SECONDS)
        failed = strict_json(out)["failed"]
        if failed:  # it may have ended just before
            self.assertEqual(process.returncode, 1)
            self.assertIn("signal 9", failed[0]["reason"])
        self.run_suite()
        self.assert_whole()

    def test_a_snapshot_of_another_training_is_not_continued(self):
        self.assertEqual(self.stop(self.has("train/*.snapshot"),
                                   lambda process: process.send_signal(signal.SIGKILL)),
                         -signal.SIGKILL)
        [snapshot] = self.results.glob("train/*.snapshot")
        snapshot.write_bytes(snapshot.read_bytes().replace(b'seed\\":1', b'seed\\":2'))
        _, err = self.run_suite()
        self.assertNotIn("goes on where", err)
        self.assert_whole()

    def test_two_runs_do_not_share_a_folder(self):
        first = self.start(*ALL, "--results", self.results)
        self.assertTrue(self.wait_until(self.has("predict/*.json"), first))
        status, _, err = self.run_memfloor(*ALL, "--results", self.results)
        self.assert_one_sentence(status, err, "another run of the suite is at work", "--results")
        first.kill()
        first.communicate()
        self.wait_until_gone()


if __name__ == "__main__":
    unittest.main()
