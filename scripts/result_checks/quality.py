"""The quality of a training: complete, plausible, and marked where it was cut short."""

from result_checks.sums import AGAIN

FULL_EPOCHS = 200  # of the images' recipe paper
FULL_UPDATES = 50000  # of translation's recipe paper, whose length is in max_steps
SHORT_EPOCHS = {True: 15, False: 12}  # of recipe short, for translation or images
FIGURES = ["test_accuracy", "bleu", "perplexity"]

# Plausible qualities on real data: (figure, models, data, which training, lowest, highest, why).
# The first row that fits counts. Published figures: shared/paper-facts.md, section 2d (WRN-28-2 on
# CIFAR-10, 200 epochs: dense 94.70 %; at sparsity 0.5 to 0.9, from 91.41 % by DeepR to 94.76 % by
# SET; chance is 10 %) and 3c (DynamicConv on IWSLT'14: BLEU 35.2). Multi30k is easier: about 40.
BANDS = [
    ("test_accuracy", "wrn28_2", "cifar10", "whole, plain", 0.90, 0.96, "published: 94.7 %"),
    # In parts, batch norm normalises over few images; pure 16 bits round weights.
    ("test_accuracy", "wrn28_2", "cifar10", "whole", 0.80, 0.96, "published, sparse: 91 to 95 %"),
    ("test_accuracy", "wrn28_2", "cifar10", "short", 0.15, 0.96, "chance is 10 %"),
    ("test_accuracy", "wrn28_2", "cifar10", "cut", 0, 0.96, "published at best: 94.8 %"),
    ("bleu", "dynamic_conv", "translation", "whole", 10, 45, "published on IWSLT'14: 35.2"),
    ("bleu", "dynamic_conv", "translation", "short", 0, 45, "published on IWSLT'14: 35.2"),
    ("bleu", "dynamic_conv", "translation", "cut", 0, 45, "published on IWSLT'14: 35.2"),
]


def is_translation(spec):
    return spec["model"].startswith("dynamic_conv")


def _says_shortened(result):
    return any("shortened" in note.lower() for note in result["notes"])


def is_shortened(result):
    """Whether training or evaluation were less than the recipe's full course."""
    spec, command = result["spec"], result["command"]
    if command not in ("train", "evaluate"):
        return False
    if spec.get("test_images") or spec.get("test_sentences"):
        return True
    if command == "evaluate":
        return False
    if spec["recipe"] == "short":
        return True
    steps, epochs = spec["max_steps"] or 0, spec["epochs"] or 0
    if not is_translation(spec):
        return steps > 0 or epochs < FULL_EPOCHS
    if 0 < steps < FULL_UPDATES:
        return True
    # How many updates these epochs are depends on the corpus; the run itself knew.
    return epochs > 0 and _says_shortened(result)


def _course(result):
    """Which row of BANDS fits: whole (the paper's recipe), short (the whole short recipe) or cut
    (less, or with settings of its own)."""
    spec = result["spec"]
    if spec.get("learning_rate") or spec.get("order") == "sequential" or \
            not is_translation(spec) and spec.get("augment") is False:
        return "cut"
    if spec["recipe"] == "short":
        whole = SHORT_EPOCHS[is_translation(spec)]
        limited = spec["max_steps"] or spec.get("test_images") or spec.get("test_sentences")
        return "cut" if limited or (spec["epochs"] or 0) < whole else "short"
    return "cut" if is_shortened(result) else "whole"


def _is_plain(spec):
    """Whether nothing changes what is learnt; checkpointing never does."""
    return (not spec["sparsity"] and spec["microbatch"] == spec["batch_size"] == 100 and
            spec.get("norm") in (None, "batch") and
            spec["precision"] in ("fp32", "fp16_mixed", "bf16_mixed", "fp16_master", "bf16_master"))


def _out_of_band(result):
    spec = result["spec"]
    if result["command"] != "train":
        return
    course = _course(result)
    for figure, model, data, of, lowest, highest, why in BANDS:
        value = result["quality"].get(figure)
        if value is None or (spec["model"], spec["data"]) != (model, data):
            continue
        if of not in (course, f"{course}, plain") or of.endswith("plain") and not _is_plain(spec):
            continue
        if not lowest <= value <= highest:
            words = {"whole": "the whole paper recipe", "short": "the short recipe",
                     "cut": "a training of its own length or settings"}[course]
            yield (f"quality.{figure} is {value}, which is not plausible for {model} on {data} "
                   f"after {words}: it should lie between {lowest} and {highest} ({why}); check "
                   f"data and settings, and {AGAIN}.")
        return


def _of_curve(result):
    """The curve against the figures beside it."""
    spec, quality = result["spec"], result["quality"]
    curve = quality["curve"]
    epochs = [point["epoch"] for point in curve]
    if any(a >= b for a, b in zip(epochs, epochs[1:])):
        yield f"quality.curve: epochs do not increase; {AGAIN}."
    # Perplexity is of the averaged weights, which are in no epoch's entry.
    last, value = curve[-1]["test_accuracy"], quality["test_accuracy"]
    if last is not None and value != last:
        yield f"quality.test_accuracy is {value}, but the curve ends at {last}; {AGAIN}."
    # An updates' limit may end a run before its epochs do.
    if not spec["max_steps"] and spec["epochs"] and epochs[-1] != spec["epochs"]:
        yield (f"quality.curve ends after epoch {epochs[-1]}, but spec.epochs is {spec['epochs']}; "
               f"{AGAIN}.")
    for point in curve:
        lost = [key for key in ("train_loss", "test_loss") if point[key] is None]
        if lost:
            yield (f"quality.curve: {lost[0]} is null after epoch {point['epoch']}, so the "
                   "training diverged or every gradient overflowed; train with a smaller learning "
                   "rate or another loss scale, and keep this file out of results/.")
            return


def _of_completeness(result):
    spec, quality, command = result["spec"], result["quality"], result["command"]
    wanted = ["bleu"] if is_translation(spec) else ["test_accuracy"]
    if command != "train" and quality["curve"]:
        yield (f"quality.curve has entries, but command {command} trains nothing; it must be "
               f"empty, so {AGAIN}.")
    if command not in ("train", "evaluate"):
        for figure in FIGURES:
            if quality.get(figure) is not None:
                yield (f"quality.{figure} is {quality[figure]}, but command {command} trains "
                       f"nothing; it must be null, so {AGAIN}.")
        return
    if command == "train":
        if not quality["curve"]:
            yield f"quality.curve is empty after a training; {AGAIN}."
        if is_translation(spec):
            wanted.append("perplexity")
    for figure in wanted:
        if quality.get(figure) is None:
            yield f"quality.{figure} is null after command {command}; {AGAIN}."
    if quality.get("bleu") is not None and not quality.get("bleu_signature"):
        yield ("quality.bleu has no bleu_signature beside it, so no one knows which BLEU it is; "
               f"{AGAIN}.")


def _of_marks(result):
    shortened, says = is_shortened(result), _says_shortened(result)
    if shortened and not says:
        yield ("notes: the run was cut short (recipe short, epochs, max_steps, test_images or "
               f"test_sentences), and no note says \"shortened\"; {AGAIN}.")
    if says and not shortened:
        yield (f"notes: a note says \"shortened\", but the run was not cut short; {AGAIN}.")


def faults(result):
    has_curve = result["command"] == "train" and result["quality"]["curve"]
    curve_faults = list(_of_curve(result)) if has_curve else []
    diverged = any("diverged" in sentence for sentence in curve_faults)
    yield from curve_faults
    if not diverged:  # what else is null or low follows from it
        yield from _of_completeness(result)
        yield from _out_of_band(result)
    yield from _of_marks(result)
