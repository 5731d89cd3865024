"""The results that tables and figures are made of, and how they are chosen among all.

Results lie in machine folders, MACHINE/KIND/*.json beside MACHINE/machine.json. What a result is
stands in the file (command and spec), never in its name.
"""

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import result_files
import spec_words
from environment import ROOT
from result_checks import form
from spec_words import TECHNIQUES

# What is trained and how much of it at once. Results whose workloads differ are not comparable.
WORKLOAD = ("model", "data", "device", "norm", "batch_size", "max_tokens", "sentence_length",
            "threads")


@dataclass(frozen=True, eq=False)
class Run:
    """One good result file."""
    path: Path
    result: dict = field(repr=False)
    machine: str  # the name in machine.json; two folders may be of one machine

    @property
    def folder(self):
        """Of the machine."""
        return self.path.parent.parent

    @property
    def label(self):
        """The file as a reader sees it: MACHINE_FOLDER/KIND/FILE."""
        return "/".join(self.path.parts[-3:])

    @property
    def spec(self):
        return self.result["spec"]

    @property
    def memory(self):
        return self.result["memory"]

    @property
    def peak(self):
        """Bytes of everything alive at the peak."""
        return self.memory["peak_total_bytes"]

    @property
    def paper_total(self):
        """Bytes in the paper's convention: model + optimizer + activation, each at its own peak."""
        return self.memory["paper"]["total_bytes"]


def techniques(spec):
    """The names of the techniques that are on, in the order of TECHNIQUES."""
    return tuple(spec_words.techniques(spec))


def _settings(spec):
    """Technique to all that its memory depends on; only of those that are on."""
    values = {
        "sparsity": (spec["sparsity"], spec.get("sparse_method") or "dsr",
                     spec.get("sparse_scope") or "layers", spec.get("sparse_index") or "bitmap"),
        "low precision": (spec["precision"], spec.get("rounding") or ""),
        "microbatching": spec_words.part(spec),
        "checkpointing": (str(spec["checkpoint"]), spec.get("conv_impl") or "band",
                          spec.get("loss_chunk") or 0),
    }
    return {name: values[name] for name in techniques(spec)}


def setting(spec):
    """The techniques and their settings, for comparing: equal where the same ones are on alike."""
    return tuple(sorted(_settings(spec).items()))


def workload(spec):
    """Equal for runs of the same work, whose memory and speed can be compared."""
    defaults = {"norm": "batch"} if spec_words.family_name(spec) == "wide_resnet" else {}
    return tuple(str(spec.get(key) or defaults.get(key)) for key in WORKLOAD)


def _order_of_models(model):
    return ["wrn28_2", "dynamic_conv", model].index(model), model


class Collection:
    """Good results of any number of machines. Memory, steps and timelines are those of one machine, the
    main one; trainings are everyone's. Every list is in an order that only the results decide."""

    def __init__(self, runs, main):
        """`main` is the main machine's folder."""
        self.runs = sorted(runs, key=lambda run: (run.label, run.path))
        self.main = main
        self._memory = {}
        for model in {r.spec["model"] for r in self.runs}:
            self._memory[model] = self._choose_memory(model)

    def _of(self, model, commands):
        return [r for r in self.runs if r.folder == self.main and r.spec["model"] == model and
                r.result["command"] in commands]

    def _choose_memory(self, model):
        found = self._of(model, ("measure", "predict"))
        sizes = Counter(workload(r.spec) for r in found)
        if not sizes:
            return []
        largest = min(sizes, key=lambda w: (-sizes[w], w))
        chosen = {}
        # Later ones win: a measurement over a prediction, one that names a preset over one that
        # does not.
        for run in sorted(found, key=lambda r: (r.result["command"] == "measure",
                                                bool(r.spec.get("preset")))):
            if workload(run.spec) == largest:
                chosen[setting(run.spec)] = run
        return sorted(chosen.values(), key=lambda r: (-r.peak, r.label))

    def models(self):
        """Names of the models with a baseline, the paper's two first."""
        return sorted((m for m in self._memory if self.baseline(m)), key=_order_of_models)

    def memory(self, model):
        """One run a setting of the techniques, largest peak first, all of one workload: that with the
        most results. A measured one wins over a predicted one."""
        return self._memory.get(model, [])

    def baseline(self, model):
        """The run without techniques, or None."""
        return next((r for r in self.memory(model) if not techniques(r.spec)), None)

    def alone(self, model, technique):
        """Runs with this technique on and no other, in all its settings, largest peak first."""
        return [r for r in self.memory(model) if techniques(r.spec) == (technique,)]

    def sparsities(self, model):
        """Sparsity alone, from little to much."""
        return sorted(self.alone(model, "sparsity"), key=lambda r: r.spec["sparsity"])

    def precisions(self, model):
        """Low precision alone, by name."""
        return sorted(self.alone(model, "low precision"), key=lambda r: r.spec["precision"])

    def microbatches(self, model):
        """Microbatching alone, from large parts to small."""
        return sorted(self.alone(model, "microbatching"),
                      key=lambda r: -int(spec_words.part(r.spec)))

    def plans(self, model):
        """Checkpointing alone, largest peak first."""
        return self.alone(model, "checkpointing")

    def combinations(self, model):
        """The sixteen: techniques that are on, as a tuple -> run, as far as there are results.

        What "on" means is one setting of all four; of the settings for which there are results it is
        the one that the most combinations have results for, and of several such a preset.
        """
        by_setting = {setting(r.spec): r for r in self.memory(model)}

        def parts_of(run):
            settings = _settings(run.spec)
            subsets = [tuple(t for i, t in enumerate(TECHNIQUES) if number >> i & 1)
                       for number in range(2 ** len(TECHNIQUES))]
            found = {on: by_setting.get(tuple(sorted((t, settings[t]) for t in on)))
                     for on in subsets}
            return {on: r for on, r in found.items() if r}

        all_on = [parts_of(r) for r in self.memory(model) if techniques(r.spec) == TECHNIQUES]
        return max(all_on, key=lambda found: (len(found), bool(found[TECHNIQUES].spec.get("preset"))),
                   default={})

    def presets(self, model):
        """Runs of the suite's own choices of settings, largest peak first."""
        return [r for r in self.memory(model) if r.spec.get("preset")]

    def steps(self, model):
        """Timed steps, as many images or tokens a second as possible first."""
        return sorted(self._of(model, ("step",)), key=lambda r: (
            -(speed(r) or 0), r.label))

    def timelines(self, model):
        """Runs with a timeline, largest peak first: the baseline, then the leanest."""
        return sorted((r for r in self._of(model, ("timeline",)) if r.result.get("timeline")),
                      key=lambda r: (-r.peak, r.label))

    def trainings(self, model=None):
        """Trainings of every machine; of all models where none is named."""
        found = [r for r in self.runs if r.result["command"] == "train" and
                 model in (None, r.spec["model"])]
        return sorted(found, key=lambda r: (_order_of_models(r.spec["model"]), r.spec["data"],
                                            result_files.is_shortened(r.result), r.label))


def speed(run):
    """Images or target tokens a second; None where nothing was timed."""
    time = run.result["time"]
    return time.get("images_per_second") or time.get("target_tokens_per_second")


def machine_folders(folders):
    """The machine folders among and in these: those that hold machine.json."""
    found = {}
    for folder in folders:
        for one in [folder, *sorted(folder.glob("*/"))]:
            if (one / "machine.json").is_file():
                found.setdefault(one.resolve(), one)
    return sorted(found.values())


def load(folders, main=None):
    """Reads the machine folders among and in `folders`. Returns (collection, complaints): a sentence
    for each file that is left out. `main` is the main machine's folder; by default results/local if
    that is among them, else the one with the most results. Raises ValueError with one sentence where
    there is nothing to show."""
    found = machine_folders(folders if main is None else [*folders, main])
    complaints, runs = [], []
    for folder in found:
        try:
            machine = _name_of_machine(folder)
        except ValueError as error:
            complaints.append(f"{folder / 'machine.json'}, and the results beside it, are left out: {error}")
            continue
        for path in sorted(folder.glob("*/*.json")):
            try:
                result = result_files.read(path)
                faults = result_files.faults(result)
            except ValueError as error:
                faults = [f"it {error}"]
            if faults:
                complaints.append(f"{path} is left out: {faults[0]}")
            else:
                runs.append(Run(path, result, machine))
    if not runs:
        faults = f" The first fault: {complaints[0]}" if complaints else ""
        raise ValueError("there are no results in " + ", ".join(f"'{f}'" for f in folders) +
                         f" to show; build/memfloor suite run --quick makes some.{faults}")
    return Collection(runs, _main_folder(runs, main)), complaints


def _name_of_machine(folder):
    machine = result_files.read(folder / "machine.json")
    for fault in form.faults(machine, "machine"):
        raise ValueError(fault)
    return machine["machine"]


def _main_folder(runs, main):
    sizes = Counter(run.folder for run in runs)
    local = ROOT / "results" / "local"
    for folder in sizes:
        if os.path.realpath(folder) == os.path.realpath(main or local):
            return folder
    if main is not None:
        raise ValueError(f"'{main}' holds no results beside a machine.json; build/memfloor suite run "
                         f"--results {main} makes some.")
    return min(sizes, key=lambda folder: (-sizes[folder], folder))
