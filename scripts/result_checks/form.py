"""The form of a file: results/schema.json."""

import functools
import json

import jsonschema

from environment import ROOT

LONGEST = 200  # characters of a message


@functools.cache
def _validator(part):
    schema = json.loads((ROOT / "results" / "schema.json").read_text(encoding="utf-8"))
    # "integer" here means written as one: 5.0 bytes is a float that lost its way.
    checker = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool))
    cls = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=checker)
    cls.check_schema(schema)
    return cls({"$ref": f"#/$defs/{part}", "$defs": schema["$defs"]} if part else schema)


def faults(value, part=None):
    """Where a parsed file differs from the schema, or from one of its $defs."""
    errors = sorted(_validator(part).iter_errors(value), key=lambda e: [str(p) for p in e.path])
    for error in errors:
        place = ".".join(map(str, error.absolute_path)) or "the file"
        message = error.message
        if len(message) > LONGEST:
            message = message[:LONGEST] + "..."
        yield f"{place}: {message}; results/schema.json says what belongs there."
