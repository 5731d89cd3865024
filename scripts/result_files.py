"""Result files: finding, reading and checking them (results/schema.json and the sums)."""

import json
import math
from pathlib import Path

import jsonschema

from environment import ROOT

CATEGORIES = ["weight", "sparse_index", "gradient", "optimizer_state", "buffer", "activation",
              "transient", "workspace", "input"]
FULL_UPDATES = 50000  # of DynamicConv's recipe paper, whose length is in max_steps


def committed():
    """The result files of results/, sorted by name."""
    folder = ROOT / "results"
    return sorted(p for p in [*folder.glob("*.json"), *folder.glob("combinations/*/*.json")]
                  if p.name != "schema.json")


def read(path):
    """The parsed file. Raises ValueError with one sentence."""
    def refuse(constant):
        raise ValueError(f"holds {constant}, which is not JSON: what is unknown is null.")
    def pairs(items):
        keys = [key for key, _ in items]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ValueError(f"has the key '{twice[0]}' twice.")
        return dict(items)
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=refuse,
                          object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON (line {error.lineno}: {error.msg}).") from None
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text.") from None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}.") from None


_validators = []


def _validator():
    if not _validators:
        schema = json.loads((ROOT / "results" / "schema.json").read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator.check_schema(schema)
        # "integer" here means written as one: 5.0 bytes is a float that lost its way.
        checker = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
            "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool))
        cls = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=checker)
        _validators.append(cls(schema))
    return _validators[0]


def is_shortened(result):
    """Whether training or evaluation were less than the recipe's full course."""
    spec = result["spec"]
    whole = FULL_UPDATES if spec["model"].startswith("dynamic_conv") else math.inf
    return result["command"] == "train" and (
        spec["recipe"] == "short" or 0 < (spec["max_steps"] or 0) < whole or
        bool(spec.get("test_images")) or bool(spec.get("test_sentences")))


def _faults_of_memory(memory):
    at_peak, peak, paper = memory["at_peak"], memory["category_peak"], memory["paper"]
    total = memory["peak_total_bytes"]
    if sum(at_peak.values()) != total:
        yield (f"memory.at_peak sums to {sum(at_peak.values())}, "
               f"but peak_total_bytes is {total}.")
    for category in CATEGORIES:
        if at_peak[category] > peak[category]:
            yield (f"memory.at_peak.{category} is {at_peak[category]}, above that category's own "
                   f"peak of {peak[category]}.")
        if peak[category] > total:
            yield (f"memory.category_peak.{category} is {peak[category]}, above peak_total_bytes "
                   f"({total}).")
    components = {"model_bytes": ["weight", "sparse_index"],
                  "optimizer_bytes": ["gradient", "optimizer_state"],
                  "activation_bytes": ["activation"]}
    for name, categories in components.items():
        wanted = sum(peak[c] for c in categories)
        if paper[name] != wanted:
            yield (f"memory.paper.{name} is {paper[name]}, but the category peaks of "
                   f"{' and '.join(categories)} make {wanted}.")
    wanted = sum(paper[name] for name in components)
    if paper["total_bytes"] != wanted:
        yield (f"memory.paper.total_bytes is {paper['total_bytes']}, but its three components sum "
               f"to {wanted}.")
    for name in ["allocated_peak_bytes", "reserved_bytes"]:
        if memory[name] is not None and memory[name] < total:
            yield f"memory.{name} is {memory[name]}, below peak_total_bytes ({total})."


def _faults_of_quality(result):
    curve = result["quality"]["curve"]
    epochs = [point["epoch"] for point in curve]
    if epochs != sorted(set(epochs)):
        yield "quality.curve: epochs do not increase."
    accuracy = result["quality"]["test_accuracy"]
    if curve and curve[-1]["test_accuracy"] is not None and accuracy != curve[-1]["test_accuracy"]:
        yield (f"quality.test_accuracy is {accuracy}, but the curve ends at "
               f"{curve[-1]['test_accuracy']}.")
    if result["quality"].get("bleu") is not None and not result["quality"].get("bleu_signature"):
        yield "quality.bleu has no bleu_signature beside it, so no one knows which BLEU it is."


def faults(result):
    """All faults of a parsed result, each one sentence; empty for a good one."""
    found = []
    errors = sorted(_validator().iter_errors(result), key=lambda e: [str(p) for p in e.path])
    for error in errors:
        place = ".".join(str(p) for p in error.absolute_path) or "the file"
        message = error.message if len(error.message) < 200 else error.message[:200] + "..."
        found.append(f"{place}: {message}.")
    if found:
        return found  # the sums make sense only for a file of the right form
    found += _faults_of_memory(result["memory"])
    found += _faults_of_quality(result)
    if result["command"] == "predict" and result["memory"]["rss_anon_delta_bytes"] is not None:
        found.append("memory.rss_anon_delta_bytes: a prediction cannot know it; it must be null.")
    if is_shortened(result) and not any("shortened" in note.lower() for note in result["notes"]):
        found.append("notes: the run was cut short (recipe short, max_steps, test_images or test_sentences), and "
                     "no note says \"shortened\".")
    return found
