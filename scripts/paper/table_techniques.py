"""Techniques against memory components and operations: what each of them does alone, and together."""

import spec_words
from paper import published, tables, wording
from paper.exhibit import Exhibit, Missing, slug
from spec_words import TECHNIQUES


def exhibits(collection):
    found = []
    for model in wording.models(collection):
        name = wording.model_name(model)
        baseline = collection.baseline(model)
        overview = _overview(collection, model) if baseline else []
        settings = _every_setting(collection, model) if baseline else []
        for title, what, rows, about in [
                (f"{name}: what each technique does", "techniques", overview,
                 "Each technique alone, and all four together. "
                 f"The paper's row is from the {published.SOURCE}. "),
                (f"{name}: every setting of each technique alone", "settings", settings, "")]:
            if len(rows) < 2:
                found.append(Missing(title, wording.suite("memory", model)))
            else:
                found.append(_exhibit(f"{what}_{slug(model)}", title, about, rows, baseline))
                if what == "techniques" and model in published.RESULTS:
                    _add_paper(found[-1].table, model)
    return found


def _add_paper(table, model):
    unknown = tables.Cell(None, published.UNKNOWN)
    table.add(tables.text("the paper, all"), unknown, *wording.published_cells(model), unknown, unknown,
              tables.text("published"), rule=True, is_data=False)


def _overview(collection, model):
    """(technique, setting, run, rule above) from the combinations' settings."""
    combinations = collection.combinations(model)
    if not combinations:
        return []
    rows = [("baseline", "none", collection.baseline(model), False)]
    for number, technique in enumerate(TECHNIQUES):
        if (technique,) in combinations:
            run = combinations[technique,]
            rows.append((technique, spec_words.techniques(run.spec)[technique], run, number == 0))
    rows.append(("all four", spec_words.setting(combinations[TECHNIQUES].spec),
                 combinations[TECHNIQUES], True))
    return rows


def _every_setting(collection, model):
    rows = [("baseline", "none", collection.baseline(model), False)]
    of = {"sparsity": collection.sparsities, "low precision": collection.precisions,
          "microbatching": collection.microbatches, "checkpointing": collection.plans}
    for technique in TECHNIQUES:
        rows += [(technique, spec_words.techniques(run.spec)[technique], run, number == 0)
                 for number, run in enumerate(of[technique](model))]
    return rows


def _exhibit(name, title, about, rows, baseline):
    runs = [run for *_, run, _ in rows]
    table = tables.Table([
        tables.Column("technique", "technique", number=False),
        tables.Column("setting", "setting", number=False), *wording.memory_columns(),
        *wording.work_columns(baseline), wording.made_by_column(runs)])
    for number, (technique, setting, run, rule) in enumerate(rows):
        again = number > 0 and rows[number - 1][0] == technique
        table.add(tables.Cell(technique, "" if again else technique), tables.text(setting), *wording.memory_cells(run, baseline, blanks=True),
                  *wording.work_cells(run, baseline), wording.made_by(run), rule=rule)
    caption = (f"{about}{wording.workload(baseline)}. In brackets: how many times less than the "
               "baseline. A blank cell: no significant effect, less than 1 %. " + wording.how(runs))
    return Exhibit(name, title, caption, runs, table=table, notes=wording.NOTES)
