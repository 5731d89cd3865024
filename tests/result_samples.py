"""Good results, made by hand, for the tests of the checker: each test spoils a copy."""

SPLIT = {"weight": 5870440, "sparse_index": 0, "gradient": 5870440, "optimizer_state": 5870440,
         "buffer": 14464, "activation": 381407264, "transient": 1000, "workspace": 2000,
         "input": 3000}
PEAKS = {**SPLIT, "transient": 9000, "workspace": 8000}
TOTAL = sum(SPLIT.values())
FINGERPRINT = "device=cpu instruction_set=avx2 onednn=2.6.3 own_kernels=none threads=2"


def _environment():
    return {"git_commit": "0" * 40, "source_sha256": "ab" * 32, "compiler": "GNU 12.2.0",
            "compiler_flags": "-O3", "build_type": "Release", "libraries": {"oneDNN": "2.6.3"},
            "cpu_model": "AMD EPYC", "cpu_count": 2, "gpu_model": None, "instruction_set": "avx2",
            "machine_memory_bytes": 25276063744, "operating_system": "Debian GNU/Linux 12",
            "fingerprint": FINGERPRINT, "data_sha256": {}}


def machine():
    """machine.json of the machine that made the results."""
    environment = _environment()
    for key in ("git_commit", "source_sha256", "data_sha256"):
        del environment[key]
    return {"schema_version": 1, "machine": "amd_epyc_avx2_2cores", **environment}


def training():
    """Of WRN-28-2: two epochs on synthetic images."""
    return {
        "schema_version": 1,
        "command": "train",
        "spec": {"model": "wrn28_2", "data": "synthetic", "data_dir": None,
                 "device": "cpu", "precision": "fp32", "sparsity": 0, "batch_size": 100,
                 "microbatch": 100, "checkpoint": "none", "recipe": "short", "epochs": 2,
                 "max_steps": None, "seed": 1, "threads": 2, "memory_budget": None},
        "memory": {"peak_total_bytes": TOTAL, "at_peak": dict(SPLIT),
                   "category_peak": dict(PEAKS),
                   "paper": {"model_bytes": 5870440, "optimizer_bytes": 11740880,
                             "activation_bytes": 381407264, "total_bytes": 399018584},
                   "allocated_peak_bytes": 399100000, "reserved_bytes": 399200000,
                   "evaluation_peak_bytes": 60000000, "library_bytes": None,
                   "rss_anon_delta_bytes": 400000000},
        "quality": {"test_accuracy": 0.5, "curve": [
            {"epoch": 1, "train_loss": 2.0, "test_accuracy": 0.4, "test_loss": 1.9,
             "learning_rate": 0.1},
            {"epoch": 2, "train_loss": 1.5, "test_accuracy": 0.5, "test_loss": 1.4,
             "learning_rate": 0.0}]},
        "time": {"step_seconds_median": 0.5, "images_per_second": 200.0},
        "flops": {"forward": 428706304, "backward": 856527872, "recompute": 0},
        "sparse_layers": None,
        "environment": _environment(),
        "notes": ["shortened training: 1000 updates; the paper recipe runs 200 epochs"],
    }


def whole_training():
    """Of the paper's recipe on CIFAR-10, to its end."""
    result = training()
    result["spec"].update(data="cifar10", recipe="paper", epochs=200)
    result["quality"]["test_accuracy"] = 0.947
    result["quality"]["curve"][-1].update(epoch=200, test_accuracy=0.947)
    result["environment"]["data_sha256"] = {"test_batch.bin": "cd" * 32}
    result["notes"] = []
    return result


def translation():
    """Of the paper's recipe for DynamicConv, whose length is in max_steps."""
    result = training()
    result["spec"].update(model="dynamic_conv", data="translation", batch_size=None,
                          microbatch=None, max_tokens=4000, microbatch_tokens=500,
                          conv_impl="direct", loss_chunk=250, sentence_length=None,
                          test_sentences=None, recipe="paper", epochs=0, max_steps=50000)
    result["quality"] = {
        "test_accuracy": None, "perplexity": 6.5, "bleu": 34.2, "bleu_signature": "BLEU+tok.none",
        "samples": [{"source": "ja .", "reference": "yes .", "translation": "yes ."}],
        "curve": [{"epoch": 1, "train_loss": 4.0, "test_accuracy": None, "test_loss": 3.9,
                   "perplexity": 49.4, "learning_rate": 0.0005}]}
    result["time"] = {"step_seconds_median": 1.5, "images_per_second": None,
                      "target_tokens_per_second": 2400.0}
    result["notes"] = []
    return result


def untrained(command):
    """predict, measure, step or timeline of the step that training() repeats."""
    result = training()
    result["command"] = command
    result["spec"].update(recipe="paper", epochs=200)
    result["quality"] = {"test_accuracy": None, "curve": []}
    result["time"] = {"step_seconds_median": None, "images_per_second": None}
    result["notes"] = []
    if command == "predict":
        result["memory"]["rss_anon_delta_bytes"] = None
    elif command == "step":
        result["time"] = {"step_seconds_median": 0.5, "images_per_second": 200.0,
                          "step_seconds": [0.52, 0.5, 0.49]}
    elif command == "timeline":
        start = {**dict.fromkeys(SPLIT, 0), "weight": SPLIT["weight"]}
        result["timeline"] = {"events": 900, "points": [
            {"event": 0, "phase": "forward", "bytes": start},
            {"event": 412, "phase": "backward", "bytes": dict(SPLIT)},
            {"event": 899, "phase": "update", "bytes": start}]}
    return result


def folder_of_a_machine():
    """Path to content of a whole machine folder that has no fault."""
    return {"machine.json": machine(), "train/short.json": training(),
            "train/paper.json": whole_training(), "train/translation.json": translation(),
            **{f"{command}/baseline.json": untrained(command)
               for command in ("predict", "measure", "step", "timeline")}}
