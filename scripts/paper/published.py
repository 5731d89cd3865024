"""What is known of the paper's own results, arXiv:1904.10631. The only place that holds its numbers.

Its abstract says: WideResNet-28-2 on CIFAR-10 in up to 60.7 times less memory at an accuracy loss of
0.4 %; DynamicConv on IWSLT'14 German-English in up to 8.7 times less at a BLEU loss of 0.15. The tables
behind them were not available to us.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    benchmark: str
    memory_ratio: float  # memory without techniques over memory with them, in the paper's convention
    quality_change: float  # in `quality_unit`, against training without techniques
    quality: str  # what is measured
    quality_unit: str
    data: str  # the spec's, which our trainings must have to be set beside it


RESULTS = {
    "wrn28_2": Published("WideResNet-28-2 on CIFAR-10", 60.7, -0.4, "test accuracy", "points", "cifar10"),
    "dynamic_conv": Published("DynamicConv on IWSLT'14 De-En", 8.7, -0.15, "BLEU", "BLEU",
                              "translation"),
}
UNKNOWN = "not available"
SOURCE = "abstract of arXiv:1904.10631"
CONVENTION = "model + optimizer + activation, each at its own peak"
