"""The sixteen on/off combinations of the four techniques, and the presets."""

import spec_words
from paper import tables, wording
from paper.exhibit import Exhibit, Missing, slug
from spec_words import TECHNIQUES


def exhibits(collection):
    found = []
    for model in wording.models(collection):
        title = f"All combinations of the techniques: {wording.model_name(model)}"
        combinations, baseline = collection.combinations(model), collection.baseline(model)
        if not combinations or not baseline:
            found.append(Missing(title, wording.suite("memory", model)))
            continue
        runs = sorted(combinations.values(), key=lambda run: (-run.peak, run.label))
        found.append(_exhibit(f"combinations_{slug(model)}", title, runs, collection.presets(model),
                              baseline))
    return found


def _exhibit(name, title, runs, presets, baseline):
    table = tables.Table([
        *(tables.Column(technique.replace(" ", "_"), technique, number=False)
          for technique in TECHNIQUES), *wording.memory_columns(), *wording.work_columns(baseline),
        tables.Column("preset", "preset", number=False), tables.Column("made_by", "how", number=False)])
    leftover = [run for run in presets if run not in runs]
    for run in [*runs, *leftover]:
        words = spec_words.techniques(run.spec)
        table.add(*(tables.text(words.get(technique, "")) for technique in TECHNIQUES),
                  *wording.memory_cells(run, baseline, blanks=False),
                  *wording.work_cells(run, baseline),
                  tables.text(run.spec.get("preset") or ""), wording.made_by(run),
                  rule=leftover[:1] == [run])
    of_sixteen = "" if len(runs) == 16 else f" There are results for {len(runs)} of the sixteen."
    below = " Below the line: other presets." if leftover else ""
    caption = (f"{wording.workload(baseline)}, from the largest peak to the smallest. A technique's cell "
               "is blank where it is off. In brackets: how many times less than the baseline."
               f"{of_sixteen}{below} {wording.how([*runs, *leftover])}")
    notes = f"{wording.NOTES} An operation count is blank where it changes by less than 1 %."
    return Exhibit(name, title, caption, [*runs, *leftover], table=table, notes=notes)
