"""What results must fulfil together: no run twice, and what must be equal is equal."""

import collections
import json
from pathlib import Path

from result_checks.places import machine_folder
from result_checks.quality import is_translation

# A preset only names settings that the spec has anyway; a path says nothing of the data in it.
NAMES_ONLY = {"preset", "data_dir"}
# What a training adds to the spec of its step; none of it changes a byte.
TRAINING_ONLY = {"recipe", "epochs", "max_steps", "test_images", "test_sentences",
                 "average_epochs", "learning_rate", "rewire_stop", "loss_scale",
                 "loss_scale_window", "bn_recalibrate", "augment", "order", "memory_budget"}
EQUAL_BYTES = ["peak_total_bytes", "at_peak", "category_peak", "paper", "allocated_peak_bytes",
               "reserved_bytes"]
STEP_COMMANDS = ("predict", "measure", "step", "timeline")
OTHER_THREADS = "continued with another number of threads"  # begins such a training's note


def _spec(result, without=frozenset()):
    """The spec as something that can be compared, the data by their hashes."""
    kept = {key: value for key, value in result["spec"].items()
            if value is not None and key not in NAMES_ONLY and key not in without}
    return json.dumps([kept, result["environment"]["data_sha256"]], sort_keys=True)


def _code(result):
    """What says that two results have the same code; None: nothing does."""
    environment = result["environment"]
    if environment.get("source_sha256"):
        return environment["source_sha256"]
    commit = environment["git_commit"]
    return None if commit == "unknown" or commit.endswith("-dirty") else commit


def _machine(result):
    """What decides bytes and bits beside spec and code; None: unknown."""
    environment = result["environment"]
    if environment["fingerprint"] is None:
        return None
    return environment["fingerprint"], environment["cpu_model"], environment["gpu_model"]


def _groups(results, key):
    """The results that have a key in common, which must not hold None; each as [(path, result)]."""
    groups = collections.defaultdict(list)
    for path, result in results:
        found = key(path, result)
        if found is not None and None not in found:
            groups[found].append((path, result))
    return [group for group in groups.values() if len(group) > 1]


def _twice(results):
    def key(path, result):
        folder = machine_folder(path) or Path(path).resolve().parent
        machine = "" if machine_folder(path) else json.dumps(_machine(result))
        return str(folder), machine, result["command"], _spec(result)
    for (first, _), *others in _groups(results, key):
        for path, _ in others:
            yield path, (f"is the same run as {first}: same command, spec and machine; keep one of "
                         "the two.")


def _first_difference(first, second, keys):
    """(dotted place, its value in the first, in the second), or None where all are equal."""
    for key in keys:
        a, b = first[key], second[key]
        if isinstance(a, dict):
            for name in a:
                if a[name] != b.get(name):
                    return f"{key}.{name}", a[name], b.get(name)
        elif a != b:
            return key, a, b
    return None


def _other_bytes(first_path, first, path, result):
    place = _first_difference(first["memory"], result["memory"], EQUAL_BYTES)
    evaluations = [r["memory"]["evaluation_peak_bytes"] for r in (first, result)]
    if place is None and result["command"] in STEP_COMMANDS and \
            all(evaluations) and evaluations[0] != evaluations[1]:  # 0: nothing was evaluated
        place = ("evaluation_peak_bytes", *evaluations)
    part = "memory"
    if place is None:
        part, place = "flops", _first_difference(first["flops"], result["flops"], first["flops"])
    if place is None:
        return
    name, one, other = place
    yield path, (f"{part}.{name} is {other} by command {result['command']}, but {one} by command "
                 f"{first['command']} in {first_path}, for the same spec, code and machine; run "
                 "both again, and if it stays, the accounting is wrong.")


def _of_steps(results):
    """Those whose bytes are of one step, predictions first."""
    return sorted(((path, r) for path, r in results if r["command"] in STEP_COMMANDS),
                  key=lambda pair: STEP_COMMANDS.index(pair[1]["command"]))


def _predicted_and_measured(results):
    """Bytes of one spec are the same by every command that runs or predicts its step."""
    def key(_, result):
        return _machine(result), _code(result), _spec(result)
    for (first_path, first), *others in _groups(_of_steps(results), key):
        for path, result in others:
            yield from _other_bytes(first_path, first, path, result)


def _covers(training):
    """Whether a training met every minibatch's shape, so that its peak is the prediction's."""
    spec = training["spec"]
    if any(note.startswith(OTHER_THREADS) for note in training["notes"]):
        return False
    alike = not is_translation(spec) or spec.get("sentence_length")
    return bool(alike or not spec["max_steps"])


def _trained(results):
    """A training's peak is that of its step."""
    trainings = [(path, r) for path, r in results if r["command"] == "train" and _covers(r)]
    def key(_, result):
        spec = result["spec"]
        # Of synthetic sentences that differ, the seed decides the lengths.
        alike = not is_translation(spec) or spec.get("sentence_length")
        return (_machine(result), _code(result),
                _spec(result, TRAINING_ONLY | ({"seed"} if alike else set())))
    steps = {}
    for path, result in _of_steps(results):
        steps.setdefault(key(path, result), (path, result))
    for path, result in trainings:
        found = key(path, result)
        if None not in found and found in steps:
            yield from _other_bytes(*steps[found], path, result)


def _learnt(result):
    quality = result["quality"]
    return {key: quality.get(key) for key in ("curve", "test_accuracy", "bleu", "perplexity")}


def _recomputed(results):
    """Checkpointing alone changes no bit of what is learnt."""
    trainings = [(path, r) for path, r in results if r["command"] == "train"]
    def key(_, result):
        return _machine(result), _code(result), _spec(result, {"checkpoint", "memory_budget"})
    for group in _groups(trainings, key):
        (first_path, first), *others = sorted(
            group, key=lambda pair: pair[1]["spec"]["checkpoint"] != "none")
        for path, result in others:
            if result["spec"]["checkpoint"] != first["spec"]["checkpoint"] and \
                    _learnt(result) != _learnt(first):
                yield path, (f"quality differs from that of {first_path}, though only the "
                             f"checkpoint does ({result['spec']['checkpoint']} and "
                             f"{first['spec']['checkpoint']}), which changes no bit; run both "
                             "again, and if it stays, recomputation is wrong.")


def _seeds(results):
    """Another seed is another training."""
    trainings = [(path, r) for path, r in results
                 if r["command"] == "train" and r["quality"]["curve"]]
    def key(_, result):
        return (_spec(result, {"seed", "threads"}),
                json.dumps(result["quality"]["curve"], sort_keys=True))
    for (first_path, first), *others in _groups(trainings, key):
        for path, result in others:
            if result["spec"]["seed"] != first["spec"]["seed"]:
                yield path, (f"quality.curve is that of {first_path} in every digit, but the seeds "
                             f"are {result['spec']['seed']} and {first['spec']['seed']}; one is a "
                             "copy, so run it again.")


def faults(results):
    """Of (path, parsed result of the right form); yields (path, sentence)."""
    for check in (_twice, _predicted_and_measured, _trained, _recomputed, _seeds):
        yield from check(results)
