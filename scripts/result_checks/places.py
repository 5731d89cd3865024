"""Where a result lies: the folder of its machine and of its command."""

from pathlib import Path

from result_checks import form
from result_checks.reading import COMMAND_FOLDERS, MACHINE, read

IDENTITY = ["cpu_model", "cpu_count", "instruction_set", "gpu_model"]


def machine_folder(path):
    """The nearest folder above the file that holds machine.json; None: there is none."""
    for folder in Path(path).resolve().parents:
        if (folder / MACHINE).exists():
            return folder
    return None


def _parts(fingerprint):
    """Its keys and values. Threads are a choice of the run, not of the machine."""
    parts = dict(part.split("=", 1) for part in (fingerprint or "").split() if "=" in part)
    parts.pop("threads", None)
    return parts


def _of_machine(environment, machine):
    for key in IDENTITY:
        if environment.get(key) != machine[key]:
            yield (f"environment.{key} is {environment.get(key)}, but {MACHINE} of this folder "
                   f"says {machine[key]}; move the file to the folder of its own machine.")
    mine, folders = (_parts(value["fingerprint"]) for value in (environment, machine))
    for key in sorted(mine.keys() & folders.keys()):  # later versions add keys
        if mine[key] != folders[key]:
            yield (f"environment.fingerprint has {key}={mine[key]}, but {MACHINE} of this folder "
                   f"has {key}={folders[key]}; move the file to the folder of its own machine.")


def faults(path, result):
    """Of a parsed result of the right form; a file that lies in no machine's folder has none."""
    folder = machine_folder(path)
    if folder is None:
        return
    command = result["command"]
    if command not in COMMAND_FOLDERS:
        yield (f"command {command} has no place in a machine's folder; keep the file elsewhere.")
    elif Path(path).resolve().parent != folder / command:
        yield (f"lies in {Path(path).resolve().parent.name}/, but its command is {command}; move "
               f"it to {folder.name}/{command}/.")
    try:
        machine = read(folder / MACHINE)
    except ValueError:
        return  # has its own line when the folder is checked
    if not any(form.faults(machine, "machine")):
        yield from _of_machine(result["environment"], machine)


def faults_of_folder(folder):
    """A folder with folders of commands needs a machine.json; yields (path, sentence)."""
    for child in sorted(p for p in Path(folder).rglob("*") if p.is_dir()):
        if child.name in COMMAND_FOLDERS and any(child.glob("*.json")) and \
                machine_folder(child / "x") is None:
            yield (child.parent / MACHINE, f"is missing beside {child.name}/; memfloor suite run "
                   "writes it, or write the keys of a result's environment as results/schema.json "
                   "says.")
