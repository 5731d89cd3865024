"""Result files: finding, reading and checking them. The checks stand in result_checks/."""

from result_checks import across, form, places, quality, sums
from result_checks.quality import FULL_UPDATES, is_shortened
from result_checks.reading import MACHINE, committed, found_in, read
from result_checks.sums import CATEGORIES

__all__ = ["CATEGORIES", "FULL_UPDATES", "committed", "faults", "faults_of_all", "found_in",
           "is_shortened", "read"]


def _faults_of_figures(result):
    return [*sums.faults(result), *quality.faults(result)]


def faults(result):
    """All faults of a parsed result, each one sentence; empty for a good one."""
    # The figures make sense only in a file of the right form.
    return list(form.faults(result)) or _faults_of_figures(result)


def faults_of_all(paths):
    """The faults of result files and machine.json's, of each and of all together: (path, sentence).
    """
    results = []
    for path in paths:
        try:
            value = read(path)
        except ValueError as error:
            yield path, str(error)
            continue
        is_machine = path.name == MACHINE
        found = list(form.faults(value, "machine" if is_machine else None))
        if not found and not is_machine:
            found = [*_faults_of_figures(value), *places.faults(path, value)]
            results.append((path, value))
        for sentence in found:
            yield path, sentence
    yield from across.faults(results)
