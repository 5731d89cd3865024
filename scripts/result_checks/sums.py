"""Figures of one result that must agree with each other: bytes, operations, times."""

import statistics

CATEGORIES = ["weight", "sparse_index", "gradient", "optimizer_state", "buffer", "activation",
              "transient", "workspace", "input"]
COMPONENTS = {"model_bytes": ["weight", "sparse_index"],
              "optimizer_bytes": ["gradient", "optimizer_state"],
              "activation_bytes": ["activation"]}
AGAIN = "run the case again"
# Checkpoints that always compute something twice. Others may keep all, or repeat only what has no
# convolution and no matrix product.
RECOMPUTING = ("blocks", "sqrt", "recursive", "segments:", "tapered:")
MOST_POINTS = 1000  # of a timeline
# A training's two medians may come from different steps, by the noise of a machine.
RATE_NOISE = 1.5
RATE_STEPS = 20  # a training of fewer has no median worth checking


def _of_memory(memory):
    at_peak, peak, paper = memory["at_peak"], memory["category_peak"], memory["paper"]
    total = memory["peak_total_bytes"]
    if sum(at_peak.values()) != total:
        yield (f"memory.at_peak sums to {sum(at_peak.values())}, but peak_total_bytes is {total}; "
               f"{AGAIN}.")
    for category in CATEGORIES:
        if at_peak[category] > peak[category]:
            yield (f"memory.at_peak.{category} is {at_peak[category]}, above that category's own "
                   f"peak of {peak[category]}; {AGAIN}.")
        if peak[category] > total:
            yield (f"memory.category_peak.{category} is {peak[category]}, above peak_total_bytes "
                   f"({total}); {AGAIN}.")
    for name, categories in COMPONENTS.items():
        wanted = sum(peak[c] for c in categories)
        if paper[name] != wanted:
            yield (f"memory.paper.{name} is {paper[name]}, but the category peaks of "
                   f"{' and '.join(categories)} make {wanted}; {AGAIN}.")
    wanted = sum(paper[name] for name in COMPONENTS)
    if paper["total_bytes"] != wanted:
        yield (f"memory.paper.total_bytes is {paper['total_bytes']}, but its three components sum "
               f"to {wanted}; {AGAIN}.")
    for name in ["allocated_peak_bytes", "reserved_bytes"]:
        if memory[name] is not None and memory[name] < total:
            yield f"memory.{name} is {memory[name]}, below peak_total_bytes ({total}); {AGAIN}."


def _of_budget(result):
    budget, peak = result["spec"].get("memory_budget"), result["memory"]["peak_total_bytes"]
    if budget and peak > budget:
        yield (f"memory.peak_total_bytes is {peak}, above spec.memory_budget ({budget}), which no "
               f"run exceeds; {AGAIN}.")


def _of_flops(result):
    flops, checkpoint = result["flops"], result["spec"]["checkpoint"]
    forward, backward, recompute = (flops[key] for key in ("forward", "backward", "recompute"))
    # Each product has two gradients, the first layer only one; halves of a sample's operation may
    # have been rounded away.
    if forward is not None and backward is not None and \
            not forward <= backward <= 2 * forward + 1:
        yield (f"flops.backward is {backward}, which is not between once and twice forward "
               f"({forward}); {AGAIN}.")
    if checkpoint == "none" and recompute:
        yield (f"flops.recompute is {recompute}, but spec.checkpoint is none, which recomputes "
               f"nothing; {AGAIN}.")
    if recompute == 0 and str(checkpoint).startswith(RECOMPUTING):
        yield (f"flops.recompute is 0, but spec.checkpoint is {checkpoint}, which recomputes; "
               f"{AGAIN}.")


def _of_sparse_layers(result):
    spec, layers = result["spec"], result.get("sparse_layers")
    if not layers:
        if spec["sparsity"] and result["command"] == "train":
            yield f"sparse_layers is empty, but spec.sparsity is {spec['sparsity']}; {AGAIN}."
        return
    for layer in layers:
        if layer["non_zeros"] > layer["positions"]:
            yield (f"sparse_layers: {layer['name']} has {layer['non_zeros']} non-zeros in "
                   f"{layer['positions']} positions; {AGAIN}.")
    positions, non_zeros = (sum(layer[key] for layer in layers) for key in ("positions",
                                                                            "non_zeros"))
    wanted = (1 - spec["sparsity"]) * positions
    if abs(non_zeros - wanted) > 0.5001:  # it is rounded to a whole number
        yield (f"sparse_layers has {non_zeros} non-zeros in {positions} positions, but "
               f"spec.sparsity {spec['sparsity']} keeps {wanted:.0f}; {AGAIN}.")


def _samples_of_step(spec):
    """The fewest and the most images or target tokens that a whole minibatch may have."""
    if spec.get("batch_size"):
        return spec["batch_size"], spec["batch_size"]
    if spec.get("sentence_length"):  # equal sentences fill a batch up to one multiple of 8
        return spec["max_tokens"] / 2, spec["max_tokens"]
    return 0, spec["max_tokens"]


def _of_time(result):
    spec, time, command = result["spec"], result["time"], result["command"]
    median, steps = time["step_seconds_median"], time.get("step_seconds")
    key = "images_per_second" if spec.get("batch_size") else "target_tokens_per_second"
    rate = time.get(key)
    if command == "predict" and (median or rate):
        yield "time: a prediction times nothing, so its figures must be null; predict again."
    if command == "step" and not (steps and median and rate):
        yield (f"time: command step needs step_seconds, their median and {key}; {AGAIN}.")
        return
    if command != "step" and steps:
        yield (f"time.step_seconds belongs to command step, not to {command}; take it out, or "
               f"{AGAIN}.")
        return
    if not (median and rate):
        return
    lowest = highest = median
    if steps:
        lowest, highest = statistics.median_low(steps), statistics.median_high(steps)
        if not lowest * (1 - 1e-9) <= median <= highest * (1 + 1e-9):
            yield (f"time.step_seconds_median is {median}, but the median of time.step_seconds is "
                   f"{statistics.median(steps)}; {AGAIN}.")
            return
    elif 0 < (spec["max_steps"] or 0) < RATE_STEPS:
        return
    fewest, most = _samples_of_step(spec)
    noise = 1.01 if steps else RATE_NOISE
    if not fewest / highest / 1.01 <= rate <= most / lowest * noise:
        yield (f"time.{key} is {rate:.6g}, which does not fit {most} a step and a median of "
               f"{median:.6g} seconds ({most / median:.6g} a second); {AGAIN}.")


def _of_timeline(result):
    timeline, memory = result.get("timeline"), result["memory"]
    if not timeline:
        if result["command"] == "timeline":
            yield f"timeline is missing, and the command is timeline; {AGAIN}."
        return
    if result["command"] != "timeline":
        yield f"timeline belongs to command timeline, not to {result['command']}; take it out."
    points = timeline["points"]
    events = [point["event"] for point in points]
    if any(a >= b for a, b in zip(events, events[1:])):
        yield f"timeline.points: events do not increase; {AGAIN}."
    if events[-1] > timeline["events"]:
        yield (f"timeline.points ends with event {events[-1]} of {timeline['events']}; {AGAIN}.")
    if len(points) > MOST_POINTS:
        yield (f"timeline.points has {len(points)} points, more than {MOST_POINTS}, which is too "
               f"many for a file; {AGAIN}.")
    highest = max(points, key=lambda point: sum(point["bytes"].values()))
    top, total = sum(highest["bytes"].values()), memory["peak_total_bytes"]
    if top != total:
        yield (f"timeline.points: the highest sums to {top} (event {highest['event']}), but "
               f"memory.peak_total_bytes is {total}; {AGAIN}.")
    elif not any(point["bytes"] == memory["at_peak"] for point in points):
        yield (f"timeline.points: no point has the split of memory.at_peak; {AGAIN}.")
    for category in CATEGORIES:
        most = max(point["bytes"][category] for point in points)
        if most > memory["category_peak"][category]:
            yield (f"timeline.points: {category} reaches {most}, above "
                   f"memory.category_peak.{category} ({memory['category_peak'][category]}); "
                   f"{AGAIN}.")


def _of_environment(result):
    """The fingerprint repeats what other keys say."""
    environment = result["environment"]
    parts = dict(part.split("=", 1) for part in (environment["fingerprint"] or "").split()
                 if "=" in part)
    told = {"device": ("spec.device", result["spec"]["device"]),
            "threads": ("spec.threads", result["spec"]["threads"]),
            "instruction_set": ("environment.instruction_set", environment["instruction_set"]),
            "onednn": ("environment.libraries.oneDNN", environment["libraries"].get("oneDNN"))}
    for key, (place, value) in told.items():
        if key in parts and value is not None and parts[key] != str(value):
            yield (f"environment.fingerprint has {key}={parts[key]}, but {place} is {value}; "
                   f"{AGAIN}.")


def faults(result):
    yield from _of_memory(result["memory"])
    yield from _of_budget(result)
    if result["command"] == "predict" and result["memory"]["rss_anon_delta_bytes"] is not None:
        yield ("memory.rss_anon_delta_bytes: a prediction cannot know it, so it must be null; "
               "predict again.")
    yield from _of_flops(result)
    yield from _of_sparse_layers(result)
    yield from _of_time(result)
    yield from _of_timeline(result)
    yield from _of_environment(result)
