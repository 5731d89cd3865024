"""The sixteen on/off combinations of the four techniques, and the presets."""

import spec_words
from paper import tables, wording
from paper.exhibit import Exhibit, Missing, slug
from spec_words import TECHNIQUES


def exhibits(collection):
    found = []
    for model in wording.models(collection):
        title = f"{wording.model_name(model)}: the combinations in numbers"
        combinations, baseline = collection.combinations(model), collection.baseline(model)
        if not combinations or not baseline:
            found.append(Missing(title, wording.suite("memory", model)))
            continue
        presets = [run for run in collection.presets(model) if run not in combinations.values()]
        found.append(_exhibit(f"combinations_{slug(model)}", title, combinations, presets, baseline))
    return found


def _exhibit(name, title, combinations, presets, baseline):
    on = spec_words.techniques(combinations[TECHNIQUES].spec)  # what a dot means
    runs = sorted(combinations.values(), key=lambda run: (-run.peak, run.label)) + presets
    table = tables.Table([
        tables.Column("name", "", number=False),
        *(tables.Column(technique.replace(" ", "_"), technique, on[technique], number=False)
          for technique in TECHNIQUES), *wording.memory_columns(),
        tables.Column("recompute_share", "recomputed", "% of the rest"),
        wording.made_by_column(runs)])
    for run in runs:
        words = spec_words.techniques(run.spec)
        dot = lambda technique: "" if technique not in words else \
            "●" if words[technique] == on[technique] else words[technique]
        share = wording.extra_work(run)
        table.add(tables.text("baseline" if run is baseline else run.spec.get("preset") or ""),
                  *(tables.Cell(words.get(t, "off"), dot(t)) for t in TECHNIQUES),
                  *wording.memory_cells(run, baseline, blanks=False),
                  tables.Cell(None, "not counted") if share is None else
                  tables.Cell(round(share, 6), f"{100 * share:.1f}" if share else ""),
                  wording.made_by(run), rule=presets[:1] == [run])
    few = "" if len(combinations) == 16 else f" There are results for {len(combinations)} of the sixteen."
    below = " Below the line: other settings." if presets else ""
    caption = (f"{wording.workload(baseline)}, from the largest peak to the smallest. A dot: the technique "
               "is on, in the setting at the head of its column. In brackets: how many times less than "
               f"the baseline.{few}{below} {wording.how(runs)}")
    return Exhibit(name, title, caption, runs, table=table, notes=wording.NOTES)
