"""Every training: what was trained how, for how long, and how well."""

import spec_words
from paper import quality, tables, wording
from paper.collection import speed
from paper.exhibit import Exhibit, Missing


def exhibits(collection):
    trainings = collection.trainings()
    found = [_exhibit(trainings)] if trainings else []
    trained = {run.spec["model"] for run in trainings}
    found += [Missing(f"Trainings: {wording.model_name(model)}", wording.suite("train", model))
              for model in wording.models(collection) if model not in trained]
    return found


def _exhibit(trainings):
    table = tables.Table([
        tables.Column("model", "model", number=False), tables.Column("data", "data", number=False),
        tables.Column("techniques", "techniques", number=False),
        tables.Column("recipe", "recipe", number=False), tables.Column("epochs", "epochs"),
        tables.Column("max_steps", "updates, at most"), tables.Column("seed", "seed"),
        tables.Column("test_accuracy", "test accuracy", "%"), tables.Column("bleu", "BLEU"),
        tables.Column("bleu_signature", "BLEU's signature", number=False),
        tables.Column("perplexity", "validation perplexity"),
        tables.Column("peak_total_bytes", "everything at the peak", "MB"),
        tables.Column("step_seconds_median", "an update, median", "s"),
        tables.Column("samples_per_second", "speed", "images or tokens/s"),
        tables.Column("machine", "machine", number=False), tables.Column("commit", "commit", number=False)])
    for number, run in enumerate(trainings):
        table.add(*_cells(run),
                  rule=number > 0 and run.spec["model"] != trainings[number - 1].spec["model"])
    caption = ("Every training, of all machines. Results of shortened trainings are not comparable "
               "with published ones. Speeds of different machines are not comparable.")
    return Exhibit("trainings", "Trainings", caption, trainings, table=table)


def _cells(run):
    spec, found, time = run.spec, run.result["quality"], run.result["time"]
    cut = quality.shortening(run.result)
    epochs = len(found["curve"]) or None
    commit = run.result["environment"]["git_commit"]
    return [
        tables.Cell(spec["model"], spec_words.model(spec)), tables.text(spec["data"]),
        tables.text(spec_words.setting(spec)),
        tables.text(f"{spec['recipe']}, SHORTENED: {cut}" if cut else spec["recipe"]),
        number_cell(epochs, ""), number_cell(spec["max_steps"] or None, ","), number_cell(spec["seed"], ""),
        number_cell(found["test_accuracy"], ".2f", 100), number_cell(found.get("bleu"), ".2f"),
        tables.text(found.get("bleu_signature") or ""), number_cell(found.get("perplexity"), ".2f"),
        tables.megabytes(run.peak), number_cell(time["step_seconds_median"], ".3g"),
        number_cell(speed(run), ",.0f"), tables.text(wording.machine(run)),
        tables.Cell(commit, wording.short_commit(commit))]


def number_cell(number, format_spec, factor=1):
    return tables.Cell(number, "" if number is None else f"{factor * number:{format_spec}}")
