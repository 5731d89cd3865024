"""Every training: what was trained how, for how long, and how well."""

from dataclasses import replace
from pathlib import PurePath

import spec_words
from paper import quality, tables, wording
from paper.collection import speed
from paper.exhibit import Exhibit, Missing

COLUMNS = [
    tables.Column("model", "model", number=False), tables.Column("data", "data", number=False),
    tables.Column("techniques", "techniques", number=False),
    tables.Column("recipe", "recipe", number=False),
    tables.Column("shortened_to", "SHORTENED to", number=False),
    tables.Column("epochs", "epochs"), tables.Column("max_steps", "updates, at most"),
    tables.Column("seed", "seed"), tables.Column("test_accuracy", "test accuracy", "%"),
    tables.Column("bleu", "BLEU"), tables.Column("perplexity", "validation perplexity"),
    tables.Column("peak_total_bytes", "everything at the peak", "MB"),
    tables.Column("step_seconds_median", "an update, median", "s"),
    tables.Column("samples_per_second", "speed", "images or tokens/s"),
    tables.Column("machine", "machine", number=False),
    tables.Column("commit", "commit", number=False),
    tables.Column("bleu_signature", "BLEU's signature", number=False)]


def exhibits(collection):
    trainings = collection.trainings()
    found = [_exhibit(trainings)] if trainings else []
    trained = {run.spec["model"] for run in trainings}
    found += [Missing(f"{wording.model_name(model)}: trainings", wording.suite("train", model))
              for model in wording.models(collection) if model not in trained]
    return found


def _exhibit(trainings):
    rows = [_cells(run) for run in trainings]
    table = tables.Table([replace(column, shown=any(cell.text for cell in cells))
                          for column, *cells in zip(COLUMNS, *rows)])
    for number, (run, cells) in enumerate(zip(trainings, rows)):
        table.add(*cells, rule=number > 0 and run.spec["model"] != trainings[number - 1].spec["model"])
    caption = ("Every training, of all machines. Results of shortened trainings are not comparable "
               "with published ones; speeds of different machines are not comparable.")
    return Exhibit("trainings", "All trainings", caption, trainings, table=table)


def _cells(run):
    """For COLUMNS; blank where there is nothing to say."""
    spec, found, environment = run.spec, run.result["quality"], run.result["environment"]
    seconds, accuracy = run.result["time"]["step_seconds_median"], found["test_accuracy"]
    return [
        tables.Cell(spec["model"], spec_words.model(spec)), tables.text(_data(spec)),
        tables.text(spec_words.setting(spec)), tables.text(spec["recipe"]),
        tables.text(quality.shortening(run.result)), _number(len(found["curve"]) or None),
        _number(spec["max_steps"] or None, ","), _number(spec["seed"]),
        tables.Cell(accuracy, "" if accuracy is None else f"{100 * accuracy:.2f}"),
        _number(found.get("bleu"), ".2f"), _number(found.get("perplexity"), ".2f"),
        tables.megabytes(run.peak), tables.Cell(seconds, "" if seconds is None else tables.significant(seconds)),
        _number(speed(run), ",.0f"), tables.text(wording.machine(run)),
        tables.Cell(environment["git_commit"], wording.short_commit(environment["git_commit"])),
        tables.text(found.get("bleu_signature") or "")]


def _data(spec):
    """The data set; of prepared text the folder too, since it may be any."""
    if spec["data"] != "translation" or not spec["data_dir"]:
        return spec["data"]
    return f"translation ({PurePath(spec['data_dir']).name or spec['data_dir']})"


def _number(number, form=""):
    return tables.Cell(number, "" if number is None else f"{number:{form}}")
