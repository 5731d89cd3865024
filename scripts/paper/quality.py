"""What a setting of the techniques does to accuracy or BLEU, from trainings that differ in nothing else."""

import json
from collections import defaultdict
from dataclasses import dataclass
from statistics import mean

import result_files
from paper.collection import setting, techniques
from result_checks.quality import FULL_UPDATES

# What else than the techniques and the seed a training's quality depends on.
COURSE = ("recipe", "epochs", "max_steps", "test_images", "test_sentences", "average_epochs",
          "learning_rate", "augment", "order", "norm", "batch_size", "max_tokens")


@dataclass(frozen=True, eq=False)
class Quality:
    """Means over seeds: test accuracy in per cent, or BLEU."""
    value: float
    baseline: float  # of the trainings without techniques; None where there are none
    shortening: str  # what was cut; empty for whole recipes
    sources: list

    @property
    def change(self):
        return None if self.baseline is None else self.value - self.baseline


def value(result):
    """Test accuracy in per cent, or BLEU; None where neither was measured."""
    quality = result["quality"]
    if quality["test_accuracy"] is not None:
        return 100 * quality["test_accuracy"]
    return quality.get("bleu")


def shortening(result):
    """What was cut of a training, as in "12 epochs"; empty for whole recipes."""
    spec = result["spec"]
    if not result_files.is_shortened(result):
        return ""
    cuts = []
    if 0 < (spec["max_steps"] or 0) < FULL_UPDATES:
        cuts.append(f"{spec['max_steps']} update" + "s" * (spec["max_steps"] != 1))
    elif spec["epochs"]:
        cuts.append(f"{spec['epochs']} epoch" + "s" * (spec["epochs"] != 1))
    if spec.get("test_images"):
        cuts.append(f"tested on {spec['test_images']} images")
    if spec.get("test_sentences"):
        cuts.append(f"tested on {spec['test_sentences']} sentences")
    return ", ".join(cuts) or f"recipe {spec['recipe']}"


def of(collection, run, data):
    """The quality of trainings on `data` with the run's techniques; None where there are none. Of
    several courses of training: one that was run without techniques too, whole rather than shortened,
    with many seeds."""
    courses = defaultdict(lambda: ([], []))
    for training in collection.trainings(run.spec["model"]):
        if training.spec["data"] != data or value(training.result) is None:
            continue
        if setting(training.spec) == setting(run.spec):
            courses[course(training)][0].append(training)
        if not techniques(training.spec):
            courses[course(training)][1].append(training)
    found = [(ours, baselines) for _, (ours, baselines) in sorted(courses.items()) if ours]
    if not found:
        return None
    ours, baselines = max(found, key=lambda pair: (
        bool(pair[1]), not result_files.is_shortened(pair[0][0].result), len(pair[0])))
    average = lambda trainings: mean(value(t.result) for t in trainings) if trainings else None
    sources = [*ours, *(t for t in baselines if t not in ours)]
    return Quality(average(ours), average(baselines), shortening(ours[0].result), sources)


def course(training):
    return json.dumps([training.result["environment"]["data_sha256"],
                       *(training.spec.get(key) or None for key in COURSE)], sort_keys=True)
