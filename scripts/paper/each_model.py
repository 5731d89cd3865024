"""One figure for each model, or the command that makes the results it lacks."""

from paper import wording
from paper.exhibit import Exhibit, Missing, slug


def figures(collection, name, what, kind, chosen, title, caption, draw):
    """Exhibits "NAME_MODEL" of the runs that chosen(collection, model) gives; where it gives none, what
    is missing: `what`, made by the suite's cases of the kind."""
    shown = []
    for model in wording.models(collection):
        runs = chosen(collection, model)
        if runs:
            shown.append(Exhibit(f"{name}_{slug(model)}", title(runs[0]), caption(runs), runs,
                                 figure=draw(runs)))
        else:
            shown.append(Missing(f"{wording.model_name(model)}: {what}", wording.suite(kind, model)))
    return shown
