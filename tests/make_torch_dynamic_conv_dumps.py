#!/usr/bin/env python3
"""Known answers from PyTorch for DynamicConv: writes tests/data/dynamic_conv.safetensors.

Run by hand as make_torch_dumps.py is, whose formula and file format it uses:
`/usr/bin/python3 tests/make_torch_dynamic_conv_dumps.py`. tests/data/README.md describes every
tensor. The model is fairseq's lightconv_iwslt_de_en (post-norm, no gated units, separate
embeddings), computed as fairseq does, on padded sentences with masks; what is padded further
changes nothing, which is asserted. Dropout is off.
"""
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from make_torch_dumps import Dump, Fill, hashes

PAD = 1  # fairseq's index of the padding symbol; positions count from the one behind it
SEED = 51
SMALL = dict(channels=16, heads=2, ffn=24, source=29, target=523, enc=[3, 7], dec=[3, 4])
FULL = dict(channels=512, heads=4, ffn=1024, source=8848, target=6632,
            enc=[3, 7, 15, 31, 31, 31, 31], dec=[3, 7, 15, 31, 31, 31])
SOURCE_LENGTHS, TARGET_LENGTHS = [5, 1, 9, 3], [4, 2, 7, 6]  # some shorter than the kernels
STEPS, RATE, BETAS, EPSILON, DECAY = 10, 0.01, (0.9, 0.98), 1e-8, 1e-4
SMOOTHING = 0.1

# ---- the network ---------------------------------------------------------------------------------


class DynConv(nn.Module):
    """Expands the kernels to a band matrix, as fairseq does in training."""

    def __init__(self, dim, heads, k, causal):
        super().__init__()
        self.heads, self.k, self.left = heads, k, (k - 1 if causal else k // 2)
        self.weight = nn.Linear(dim, heads * k, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        h, k = self.heads, self.k
        w = self.weight(x).view(b, t, h, k).softmax(-1).transpose(1, 2).reshape(b * h, t, k)
        v = x.view(b, t, h, c // h).transpose(1, 2).reshape(b * h, t, c // h)
        # Row i moved right by i makes a T x (T + K - 1) band; cut out the columns inside 0..T-1.
        m = F.pad(w, (0, t)).view(b * h, t * (k + t))[:, : t * (k + t - 1)]
        y = torch.bmm(m.view(b * h, t, k + t - 1)[:, :, self.left:self.left + t], v)
        return y.view(b, h, t, c // h).transpose(1, 2).reshape(b, t, c)


class Layer(nn.Module):
    def __init__(self, size, k, decoder):
        super().__init__()
        dim, ffn, self.heads = size["channels"], size["ffn"], size["heads"]
        self.lin1, self.lin2 = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.conv = DynConv(dim, self.heads, k, decoder)
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.fc1, self.fc2 = nn.Linear(dim, ffn), nn.Linear(ffn, dim)
        if decoder:
            self.q, self.kk, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
            self.ln3 = nn.LayerNorm(dim)

    def attend(self, x, enc, enc_pad):
        b, t, c = x.shape
        s, h, r = enc.shape[1], self.heads, c // self.heads
        q = (self.q(x) * r ** -0.5).view(b, t, h, r).transpose(1, 2).reshape(b * h, t, r)
        k = self.kk(enc).view(b, s, h, r).transpose(1, 2).reshape(b * h, s, r)
        v = self.v(enc).view(b, s, h, r).transpose(1, 2).reshape(b * h, s, r)
        a = torch.bmm(q, k.transpose(1, 2))
        if enc_pad is not None:
            a = a.view(b, h, t, s).masked_fill(enc_pad[:, None, None], -math.inf).view(b * h, t, s)
        y = torch.bmm(a.softmax(-1), v).view(b, h, t, r).transpose(1, 2).reshape(b, t, c)
        return self.o(y)

    def forward(self, x, pad, enc=None, enc_pad=None):
        v = self.lin1(x)
        if pad is not None:
            v = v.masked_fill(pad[:, :, None], 0)
        x = self.ln1(x + self.lin2(self.conv(v)))
        if enc is not None:
            x = self.ln3(x + self.attend(x, enc, enc_pad))
        return self.ln2(x + self.fc2(F.relu(self.fc1(x), inplace=True)))


class Net(nn.Module):
    def __init__(self, size):
        super().__init__()
        dim = size["channels"]
        self.src = nn.Embedding(size["source"], dim, PAD)
        self.tgt = nn.Embedding(size["target"], dim, PAD)
        self.enc = nn.ModuleList(Layer(size, k, False) for k in size["enc"])
        self.dec = nn.ModuleList(Layer(size, k, True) for k in size["dec"])
        self.out = nn.Linear(dim, size["target"], bias=False)

    def embed(self, table, tokens):
        dim = table.embedding_dim
        frequencies = torch.exp(torch.arange(dim // 2) * -(math.log(10000) / (dim // 2 - 1)))
        p = torch.arange(tokens.shape[1])[:, None] + (PAD + 1)
        sinusoid = torch.cat([(p * frequencies).sin(), (p * frequencies).cos()], 1)
        return table(tokens) * dim ** 0.5 + sinusoid.to(table.weight.dtype)

    def forward(self, source, target, source_pad=None):
        """What the decoder makes of every position, before the output matrix."""
        x = self.embed(self.src, source)
        for layer in self.enc:
            x = layer(x, source_pad)
        enc, x = x, self.embed(self.tgt, target)
        for layer in self.dec:
            x = layer(x, None, enc, source_pad)
        return x


# ---- sentences -----------------------------------------------------------------------------------


def tokens(stream, n, vocabulary):
    """Entries of a vocabulary without its four special ones."""
    return (4 + hashes(1024 * SEED + stream, n) % np.uint32(vocabulary - 4)).astype(np.int64)


def padded(flat, lengths, further=0):
    rows = np.full((len(lengths), max(lengths) + further), PAD, np.int64)
    at = 0
    for row, n in zip(rows, lengths):
        row[:n] = flat[at:at + n]
        at += n
    return torch.from_numpy(rows)


def unpadded(x, lengths):
    return torch.cat([row[:n] for row, n in zip(x, lengths)])


def run(net, source, target, labels, further=0):
    """(decoder's output, summed smoothed loss, summed loss), of the real positions."""
    s, t = padded(source, SOURCE_LENGTHS, further), padded(target, TARGET_LENGTHS, further)
    x = unpadded(net(s, t, s == PAD), TARGET_LENGTHS)
    labels, logits = torch.from_numpy(labels), net.out(x)
    loss = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=SMOOTHING)
    return x, loss, F.cross_entropy(logits, labels, reduction="sum")


def rows_of(stream):
    n, m = sum(SOURCE_LENGTHS), sum(TARGET_LENGTHS)
    return (tokens(stream, n, SMALL["source"]), tokens(stream + 1, m, SMALL["target"]),
            tokens(stream + 2, m, SMALL["target"]))


# ---- files ---------------------------------------------------------------------------------------


def state_fills(net):
    fills = {}
    for i, (k, p) in enumerate(net.state_dict().items()):
        if k in ("src.weight", "tgt.weight", "out.weight"):
            rule = (0.0, float(np.float32(np.sqrt(3 / p.shape[1]))))
        elif p.dim() == 2:
            rule = (0.0, float(np.float32(np.sqrt(3 / p.shape[1]))))
        else:
            rule = (0.0 if k.endswith("bias") else 1.0, 0.125)
        fills[k] = Fill(1024 * SEED + i, *rule)
    return fills


def loaded(fills, dtype):
    net = Net(SMALL)
    net.load_state_dict({k: f.array(net.state_dict()[k].shape) for k, f in fills.items()})
    return net.to(dtype)


class Signs:
    """The inputs of the ReLUs, copied: the ReLU works in place."""

    def __init__(self, net):
        self.z = []
        for layer in [*net.enc, *net.dec]:
            layer.fc1.register_forward_hook(
                lambda m, i, z: self.z.append(z.detach().double().clone()))


def gradients(fills, dtype):
    net = loaded(fills, dtype)
    signs = Signs(net)
    x, loss, plain = run(net, *rows_of(900))
    (loss / sum(TARGET_LENGTHS)).backward()
    grads = {k: p.grad.clone() for k, p in net.named_parameters()}
    # The padding entry is no token of the sentences, so its row has no gradient anyway.
    return dict(x=x, loss=loss, plain=plain, grads=grads, z=signs.z)


def adam(net, state, step):
    """fairseq's: decoupled decay, the bias corrections in the step size."""
    size = RATE * math.sqrt(1 - BETAS[1] ** step) / (1 - BETAS[0] ** step)
    with torch.no_grad():
        for k, p in net.named_parameters():
            m, v = state.setdefault(k, (torch.zeros_like(p), torch.zeros_like(p)))
            m.mul_(BETAS[0]).add_(p.grad, alpha=1 - BETAS[0])
            v.mul_(BETAS[1]).addcmul_(p.grad, p.grad, value=1 - BETAS[1])
            p.mul_(1 - RATE * DECAY).addcdiv_(m, v.sqrt().add_(EPSILON), value=-size)


def losses(fills, dtype):
    net, state, found = loaded(fills, dtype), {}, []
    for step in range(STEPS):
        net.zero_grad()
        loss = run(net, *rows_of(910 + 3 * step))[1] / sum(TARGET_LENGTHS)
        loss.backward()
        found.append(loss.detach())
        adam(net, state, step + 1)
    return torch.stack(found)


def saved_elements(sentences, length):
    """Of the full-size model: floats that autograd keeps, distinct storages, without parameters."""
    net, held = Net(FULL), {}
    skip = {p.data_ptr() for p in net.parameters()}

    def pack(t):
        s = t.storage()
        if s.data_ptr() not in skip and t.dtype == torch.float32 and t.dim() > 0:
            held[s.data_ptr()] = s.nbytes()
        return t

    s, t = (torch.full((sentences, length), 5) for _ in range(2))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        logits = net.out(net(s, t))
        loss = F.cross_entropy(logits.flatten(0, 1), t.flatten(), label_smoothing=SMOOTHING)
    assert loss.requires_grad  # kept, so that no storage's address is used again
    return sum(held.values()) // 4, sum(p.numel() for p in net.parameters())


def main():
    torch.set_num_threads(1)
    fills = state_fills(Net(SMALL))
    a, b = gradients(fills, torch.float64), gradients(fills, torch.float32)
    assert all(torch.equal(u > 0, v > 0) for u, v in zip(a["z"], b["z"])), "a ReLU flips"
    least = min(z.abs().min() for z in a["z"]).item()
    d = Dump(made_by="tests/make_torch_dynamic_conv_dumps.py", seed=SEED,
             least_relu_input="%.3g" % least)
    net = loaded(fills, torch.float64)
    for further in (1, 40):
        x, loss, _ = run(net, *rows_of(900), further)
        assert (x - a["x"]).abs().max() < 1e-12 and abs(loss - a["loss"]) < 1e-10

    d.state("", net, fills)
    for name, lengths in (("source", SOURCE_LENGTHS), ("target", TARGET_LENGTHS)):
        d.add(name + ".lengths", lengths, np.int64)
    steps = [rows_of(900)] + [rows_of(910 + 3 * step) for step in range(STEPS)]
    for name, rows in zip(("source", "target", "labels"), zip(*steps)):
        d.add(name, np.stack(rows), np.int64)
    d.pair("output", a["x"], b["x"], keep_f32=False)
    d.add("loss", [a["loss"].item()])
    d.add("plain_loss", [a["plain"].item()])
    for k in a["grads"]:
        d.pair(k + ".grad", a["grads"][k], b["grads"][k], keep_f32=False)
    l64, l32 = losses(fills, torch.float64), losses(fills, torch.float32)
    d.pair("losses", l64, l32)
    print("losses", l64.tolist(), "f32 - f64", (l32.double() - l64).abs().max().item())
    elements, parameters = saved_elements(2, 25)
    d.add("saved_elements", [elements], np.int64)
    d.add("parameters", [parameters], np.int64)
    print("saved floats a position pair", elements / 50, "parameters", parameters)
    d.write("dynamic_conv")


if __name__ == "__main__":
    main()
