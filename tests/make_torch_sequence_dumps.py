#!/usr/bin/env python3
"""Known answers from PyTorch for ops on sentences: writes tests/data/sequence_ops.safetensors.

Run by hand as make_torch_dumps.py is, whose formulas and file format it shares;
tests/data/README.md describes every tensor. Sentences of different lengths lie in the rows of one
tensor, one after another; PyTorch is given them padded, or one by one.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from make_torch_dumps import Dump, Fill, hashes

LENGTHS = [1, 4, 9, 2, 20]  # of the sentences; of the source sentences that they attend to:
SOURCES = [3, 1, 12, 7, 17]
HEADS, CHANNELS = 2, 16


def run(fills, shapes, f):
    """(inputs by name, output) of f on the inputs, in float64 and float32, gradients done.

    fills has one more name, output_grad.
    """
    results = []
    for dtype in (torch.float64, torch.float32):
        t = {k: fills[k].array(s).to(dtype).requires_grad_() for k, s in shapes.items()}
        out = f(**t)
        out.backward(fills["output_grad"].array(out.shape).to(dtype))
        results.append((t, out))
    return results


def dump_case(d, prefix, seed, scales, shapes, f):
    fills = {k: Fill(1024 * seed + i, *scales.get(k, (0.0, 1.0)))
             for i, k in enumerate([*shapes, "output_grad"])}
    (a, a_out), (b, b_out) = run(fills, shapes, f)
    for k, shape in shapes.items():
        d.fill(prefix + k, fills[k], shape)
        d.pair(prefix + k + ".grad", a[k].grad, b[k].grad, keep_f32=False)
    d.fill(prefix + "output_grad", fills["output_grad"], a_out.shape)
    d.pair(prefix + "output", a_out, b_out, keep_f32=False)


def dynamic_convolution(kernel, left):
    """A sentence's windows (fairseq's unfolded form) times the kernels."""

    def f(input, kernels):
        out = []
        for x, w in zip(input.split(LENGTHS), kernels.split(LENGTHS)):
            windows = F.pad(x, (0, 0, left, kernel - 1 - left)).unfold(0, kernel, 1)
            windows = windows.reshape(len(x), HEADS, CHANNELS // HEADS, kernel)
            out.append((windows * w.unsqueeze(2)).sum(3).flatten(1))
        return torch.cat(out)

    return f


def attention(q, k, v):
    """nn.MultiheadAttention on padded sentences, without projections of its own."""
    m = nn.MultiheadAttention(CHANNELS, HEADS, bias=False, batch_first=True).to(q.dtype)
    one = torch.eye(CHANNELS, dtype=q.dtype)
    m.load_state_dict({"in_proj_weight": one.repeat(3, 1), "out_proj.weight": one})

    def padded(x, lengths):
        return nn.utils.rnn.pad_sequence(x.split(lengths), batch_first=True)

    beyond = torch.arange(max(SOURCES)) >= torch.tensor(SOURCES).unsqueeze(1)
    out = m(padded(q, LENGTHS), padded(k, SOURCES), padded(v, SOURCES), beyond)[0]
    return torch.cat([o[:n] for o, n in zip(out, LENGTHS)])


def dump_smoothed_loss(d, seed, classes, rows):
    fill, prefix = Fill(1024 * seed, 0.0, 6.0), f"smoothed_loss_c{classes}."
    labels = torch.from_numpy((hashes(1024 * seed + 1, rows) % np.uint32(classes)).astype(np.int64))
    d.fill(prefix + "logits", fill, (rows, classes))
    d.add(prefix + "labels", labels)
    grads = []
    for dtype in (torch.float64, torch.float32):
        x = fill.array((rows, classes)).to(dtype).requires_grad_()
        loss = F.cross_entropy(x, labels, label_smoothing=0.1, reduction="sum")
        loss.backward()
        grads.append(x.grad)
        if dtype == torch.float64:
            d.add(prefix + "loss", [loss.item()])
    d.pair(prefix + "logits.grad", *grads, keep_f32=False)


def main():
    torch.set_num_threads(1)
    d = Dump()
    d.meta["made_by"] = "tests/make_torch_sequence_dumps.py"
    rows = sum(LENGTHS)
    seed = 51
    for kernel in (3, 7, 15, 31):
        for where, left in (("centred", kernel // 2), ("causal", kernel - 1)):
            shapes = dict(input=(rows, CHANNELS), kernels=(rows, HEADS, kernel))
            dump_case(d, f"dynamic_convolution_k{kernel}_{where}.", seed, dict(kernels=(0.25, 0.25)),
                      shapes, dynamic_convolution(kernel, left))
            seed += 1
    sources = (sum(SOURCES), CHANNELS)
    dump_case(d, "attention.", seed, dict(q=(0.0, 2.0), k=(0.0, 2.0)),
              dict(q=(rows, CHANNELS), k=sources, v=sources), attention)
    for channels, n in ((24, 5), (512, 4)):
        seed += 1
        dump_case(d, f"layer_norm_c{channels}.", seed,
                  dict(input=(1.0, 2.0), weight=(1.0, 0.5), bias=(0.0, 0.5)),
                  dict(input=(n, channels), weight=(channels,), bias=(channels,)),
                  lambda input, weight, bias: F.layer_norm(input, weight.shape, weight, bias))
    for classes, n in ((40, 9), (6632, 3)):
        seed += 1
        dump_smoothed_loss(d, seed, classes, n)
    d.write("sequence_ops")


if __name__ == "__main__":
    main()
