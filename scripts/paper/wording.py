"""Words and cells that several tables share."""

import spec_words
from paper import published, tables

MEMORY = [("model_bytes", "model"), ("optimizer_bytes", "optimizer"), ("activation_bytes", "activation"),
          ("total_bytes", "paper's total")]
NO_EFFECT = 0.01  # a change by less than this share is none


def models(collection):
    """The models a page has to show: the paper's, and what else there are memory results for."""
    return [*published.RESULTS, *(m for m in collection.models() if m not in published.RESULTS)]


def model_name(model):
    return spec_words.model({"model": model})


def suite(kind, model):
    """The command that makes the results of a kind for a model."""
    flags = " --full --data-dir data" if kind == "train" else ""
    return f"build/memfloor suite run{flags} --filter '^{kind}/model={model}/'"


def machine(run):
    """As in "AMD EPYC, avx2, 2 threads"."""
    environment = run.result["environment"]
    words = [environment["gpu_model"] or environment["cpu_model"] or "unknown processor",
             environment["instruction_set"]]
    threads = run.spec["threads"]
    return ", ".join([*filter(None, words), f"{threads} thread" + "s" * (threads != 1)])


def workload(run):
    """As in "WideResNet-28-2 at a batch of 100 images"."""
    return f"{spec_words.model(run.spec)} at a batch of {spec_words.batch(run.spec)}"


def how(runs):
    """Whether memory was measured, and where: one sentence."""
    predicted = sum(run.result["command"] == "predict" for run in runs)
    machines = "; ".join(sorted({machine(run) for run in runs}))
    if not predicted:
        return f"Measured on {machines}."
    if predicted == len(runs):
        return f"Predicted for {machines}."
    return (f"Measured, or predicted where the table says so ({predicted} of {len(runs)} rows), "
            f"on {machines}.")


def operations(run):
    """Forward and backward operations of a sample, without recomputation; None where not counted."""
    flops = run.result["flops"]
    if flops["forward"] is None or flops["backward"] is None:
        return None
    return flops["forward"] + flops["backward"]


def extra_work(run):
    """Recomputation as a share of forward and backward; None where not counted."""
    needed, again = operations(run), run.result["flops"]["recompute"]
    return None if again is None or not needed else again / needed


def percent(share):
    return f"{100 * share:.1f} %"


NOTES = ("MB are million bytes, as requested from the memory manager. Optimizer memory holds the gradients, "
         "as in the paper. The paper's total is model + optimizer + activation, each at its own peak. "
         "Everything at the peak holds workspace, input, transient values and buffers as well. Operations: "
         "of one training update, for each sample; a multiplication and an addition are two. Recomputed "
         "ones come on top of forward and backward, in brackets in % of them. What \"on\" means for a "
         "technique is our choice.")


def memory_columns():
    """Bytes and their ratio to the baseline's, of the paper's components and of the peak."""
    return [*(tables.Column(key, title, "MB") for key, title in MEMORY),
            tables.Column("peak_total_bytes", "everything at the peak", "MB")]


def memory_cells(run, baseline, blanks):
    """For memory_columns(). Where the change from the baseline is none, there is no ratio; with
    `blanks`, the cell is blank."""
    pairs = [(run.memory["paper"][key], baseline.memory["paper"][key]) for key, _ in MEMORY]
    cells = []
    for count, before in [*pairs, (run.peak, baseline.peak)]:
        if run is baseline or count == 0:
            cells.append(tables.megabytes(count))
        else:
            cell = tables.megabytes(count, tables.times(before / count))
            none = abs(count / before - 1) < NO_EFFECT
            cells.append(cell if not none else
                         tables.blank(cell) if blanks else tables.megabytes(count))
    return cells


def published_cells(model):
    """For memory_columns(): what is known of the paper's."""
    ratio = tables.times(published.RESULTS[model].memory_ratio)
    return [tables.Cell(None, f"{ratio} less" if key == "total_bytes" else published.UNKNOWN)
            for key, _ in [*MEMORY, ("peak_total_bytes", "")]]


def work_columns(run):
    sample = spec_words.family(run.spec)[3]
    return [tables.Column("forward_backward_operations", "forward and backward",
                          f"GFLOP {sample}"),
            tables.Column("recompute_operations", "recomputed", f"GFLOP {sample}")]


def work_cells(run, baseline):
    """For work_columns(): blank where the change is none."""
    needed, before = operations(run), operations(baseline)
    again, share = run.result["flops"]["recompute"], extra_work(run)
    if needed is None:
        first = tables.Cell(None, "not counted")
    else:
        first = tables.Cell(needed, f"{needed / 1e9:.3f}")
        if run is not baseline and before and abs(needed / before - 1) < NO_EFFECT:
            first = tables.blank(first)
    if share is None:
        return [first, tables.Cell(None, "not counted")]
    second = tables.Cell(again, f"{again / 1e9:.3f}", percent(share))
    return [first, tables.blank(second) if share < NO_EFFECT else second]


def made_by_column(runs):
    """Shown where runs differ in it; else the caption says it."""
    return tables.Column("made_by", "how", number=False,
                         shown=len({run.result["command"] for run in runs}) > 1)


def made_by(run):
    return tables.text({"predict": "predicted", "measure": "measured"}[run.result["command"]])


def short_commit(commit):
    """Twelve digits, and whether the tree had changes besides."""
    return commit[:12] + "-dirty" * commit.endswith("-dirty")
