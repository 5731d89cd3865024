"""The techniques of a run spec in words, for titles and tables."""

MODELS = {  # name, the keys of a batch and of a part, what operations are counted for, units
    "wide_resnet": ("WideResNet", "batch_size", "microbatch", "an image", "images"),
    "dynamic_conv": ("DynamicConv", "max_tokens", "microbatch_tokens", "a target token", "tokens"),
}


def family_name(spec):
    return "dynamic_conv" if spec["model"].startswith("dynamic_conv") else "wide_resnet"


def family(spec):
    return MODELS[family_name(spec)]


def model(spec):
    """As in "WideResNet-28-2"."""
    name = family(spec)[0]
    sizes = spec["model"].removeprefix("wrn").removeprefix("dynamic_conv").replace("_", "-")
    return f"{name}-{sizes}" if sizes else name


def batch(spec):
    """As in "100 images"."""
    _, whole, _, _, units = family(spec)
    length = spec.get("sentence_length")
    return f"{spec[whole]} {units}" + (f" in pairs of {length}" if length else "")


def sparsity(spec):
    """As in "dsr 0.8 of all"; empty for dense training."""
    if not spec["sparsity"]:
        return ""
    of = " of all" if spec.get("sparse_scope") == "all" else ""
    return f"{spec.get('sparse_method') or 'sparsity'} {spec['sparsity']:g}{of}"


def part(spec):
    """The size of a part; empty for whole batches."""
    _, whole, key, _, _ = family(spec)
    return str(spec[key]) if spec[key] not in (None, spec[whole]) else ""


def recomputation(spec):
    """What is made again in backward, as in "blocks, logits in chunks of 250"; empty for nothing."""
    words = [str(spec["checkpoint"])] if spec["checkpoint"] != "none" else []
    if spec.get("conv_impl") == "direct":
        words.append("direct convolution")
    if spec.get("loss_chunk"):
        words.append(f"logits in chunks of {spec['loss_chunk']}")
    return ", ".join(words)


TECHNIQUES = ("sparsity", "low precision", "microbatching", "checkpointing")


def techniques(spec):
    """Technique to its setting in words, of those that are on, in the order of TECHNIQUES."""
    size = part(spec)
    kind, *way = spec["precision"].split("_")
    words = (sparsity(spec).replace("dsr", "DSR"),
             "" if spec["precision"] == "fp32" else " ".join([kind.upper(), *way]),
             size and f"parts of {size} {family(spec)[4]}",
             recomputation(spec))
    return {name: word for name, word in zip(TECHNIQUES, words) if word}


def setting(spec):
    """As in "DSR 0.8 + BF16 + parts of 5 images + checkpoint blocks"."""
    words = techniques(spec)
    if spec["checkpoint"] != "none":
        words["checkpointing"] = f"checkpoint {words['checkpointing']}"
    return " + ".join(words.values()) or "no technique"


def is_off(spec):
    """Whether no technique is on."""
    return spec["precision"] == "fp32" and not (sparsity(spec) or part(spec) or recomputation(spec))
