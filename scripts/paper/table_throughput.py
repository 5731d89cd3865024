"""Speed of timed steps, and of each setting against the baseline's."""

from statistics import median, quantiles

import spec_words
from paper import tables, wording
from paper.collection import speed, techniques, workload
from paper.exhibit import Exhibit, Missing, slug


def exhibits(collection):
    found = []
    for model in wording.models(collection):
        title = f"{wording.model_name(model)}: speed in numbers"
        steps = [run for run in collection.steps(model) if speed(run)]
        found.append(_exhibit(f"throughput_{slug(model)}", title, steps) if steps else
                     Missing(title, wording.suite("step", model)))
    return found


def _exhibit(name, title, steps):
    baselines = {workload(run.spec): speed(run) for run in steps if not techniques(run.spec)}
    units = spec_words.family(steps[0].spec)[4]
    table = tables.Table([
        tables.Column("setting", "setting", number=False), tables.Column("data", "data", number=False),
        tables.Column("threads", "threads"), tables.Column("samples_per_second", "speed", f"{units}/s"),
        tables.Column("speed_over_baseline", "times the baseline's"),
        tables.Column("step_seconds_median", "a step, median", "s"),
        tables.Column("step_seconds_quartiles", "middle half of steps", "s"),
        tables.Column("timed_steps", "timed steps"),
        tables.Column("peak_total_bytes", "everything at the peak", "MB")])
    for run in steps:
        seconds = run.result["time"].get("step_seconds") or []
        middle = run.result["time"]["step_seconds_median"] or (median(seconds) if seconds else None)
        baseline = baselines.get(workload(run.spec))
        table.add(tables.text(spec_words.setting(run.spec)), tables.text(run.spec["data"]),
                  tables.Cell(run.spec["threads"], str(run.spec["threads"])),
                  tables.Cell(speed(run), f"{speed(run):,.0f}"),
                  tables.Cell(None, "") if baseline is None else
                  tables.Cell(round(speed(run) / baseline, 4), f"{speed(run) / baseline:.2f}"),
                  tables.Cell(middle, "" if middle is None else tables.significant(middle)), _quartiles(seconds),
                  tables.Cell(len(seconds), str(len(seconds) or "")), tables.megabytes(run.peak))
    machines = "; ".join(sorted({wording.machine(run) for run in steps}))
    caption = (f"Training steps of {wording.workload(steps[0])}, fastest first, measured on {machines}. "
               "Machines are shared and noisy: differences within the middle half of the steps mean "
               "nothing.")
    return Exhibit(name, title, caption, steps, table=table)


def _quartiles(seconds):
    if len(seconds) < 4:
        return tables.Cell(None, "")
    low, _, high = quantiles(seconds, n=4, method="inclusive")
    return tables.text(f"{tables.significant(low)}–{tables.significant(high)}")
