#!/usr/bin/env python3
"""Known answers from PyTorch for the C++ tests: writes tests/data/*.safetensors.

Run by hand with Debian's python3-torch 1.13.1 (it calls itself 1.13.0a0):
`/usr/bin/python3 tests/make_torch_dumps.py`; the C++ tests read the files and need no
torch. tests/data/README.md describes every tensor.

  wrn28_2.safetensors  WideResNet-28-2, one training step and one evaluation, sampled gradients
  wrn10_1.safetensors  depth 10, width 1, 16x16 images, batch 4: every gradient in full
  wrn16_1.safetensors  depth 16, width 1, 16x16 images, batch 2: every gradient in full
  blocks.safetensors   each kind of residual block of WRN-28-2 alone, forward and backward
  group_norm.safetensors  group norm + ReLU alone, forward and backward, four shapes
  adam.safetensors     twenty updates of Adam with fairseq's formula, gradients of three sizes
  losses.safetensors   ten steps of Nesterov SGD: losses, and the small net's final state
  numbers.safetensors  f32 -> bf16, f32 -> f16 and f16 -> f32 conversions, as bit patterns
  memory.safetensors   parameter count and bytes that autograd saves, WRN-28-2 at batch 100

Weights and inputs are not stored: both sides compute them from `Fill` (tests/torch_reference.h
says the same in C++). Every quantity is computed in float64 and in float32 from the same float32
weights, so a test can ask for an error no larger than a few times PyTorch's own. One ReLU input
whose sign rounding flips would move a gradient by far more than that, so in the first four files
the batch norms' biases are moved until no ReLU input is near 0: see `settle`.
"""
import json
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
SAMPLE, WHOLE = 2048, 4096  # tensors of more than WHOLE elements are sampled at SAMPLE positions

# ---- formula: the same as tests/torch_reference.h -----------------------------------------------


def mix(h):
    """MurmurHash3's 32-bit finaliser, on uint32 arrays (products wrap)."""
    h = np.asarray(h, np.uint32)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def hashes(stream, n):
    base = np.uint32(stream * 0x9E3779B9 % 2**32)
    return mix(base + np.arange(n, dtype=np.uint32))


@dataclass
class Fill:
    """Element i of a tensor is offset + scale * u, u = ((hash >> 8) - 2^23) * 2^-23 in [-1, 1).

    All float32. Where offset is not 0, scale is a power of two, so the product is exact and a
    fused multiply-add gives the same bits as two operations.
    """
    stream: int
    offset: float
    scale: float

    def array(self, shape):
        n = int(np.prod(shape))
        k = (hashes(self.stream, n) >> np.uint32(8)).astype(np.int32) - 2**23
        u = k.astype(np.float32) * np.float32(2.0**-23)
        v = np.float32(self.offset) + np.float32(self.scale) * u
        return torch.from_numpy(v.reshape(shape))

    def row(self):
        return np.array([self.stream, self.offset, self.scale], np.float64)


# Streams of one seed: 1024 * seed + the tensor's place in the state dict, or one of these.
IMAGES, LABELS, OUTPUT_GRAD = 1000, 1001, 1002


def image_fill(seed):
    return Fill(1024 * seed + IMAGES, 0.0, 2.0)


def labels(seed, n):
    return torch.from_numpy((hashes(1024 * seed + LABELS, n) % np.uint32(10)).astype(np.int64))


def state_fills(module, seed):
    """{name: Fill} of every parameter and running statistic; buffers that count batches are out."""
    fills, state = {}, module.state_dict()
    names = [k for k in state if not k.endswith("num_batches_tracked")]
    for i, k in enumerate(names):
        s = state[k].shape
        if len(s) == 4:  # O, I, H, W: uniform with standard deviation sqrt(2 / (k k out))
            rule = (0.0, float(np.float32(np.sqrt(6.0 / (s[2] * s[3] * s[0])))))
        elif len(s) == 2:  # fc
            rule = (0.0, float(np.float32(1 / np.sqrt(s[1]))))
        else:  # batch norm's weight and variance lie around 1, every bias and mean around 0
            rule = (0.0 if k.endswith(("bias", "mean")) else 1.0, 0.125)
        fills[k] = Fill(1024 * seed + i, *rule)
    return fills


def load(module, fills, dtype, biases=()):
    start = {k: f.array(module.state_dict()[k].shape) for k, f in fills.items()}
    module.load_state_dict({**module.state_dict(), **start, **dict(biases)})
    return module.to(dtype).train()


def settle(module, fills, x):
    """Batch-norm biases {name: float32} with which no ReLU input is near 0 when `module` sees x.

    One float64 forward pass; each channel's bias moves by at most 1/8, so that 0 falls in the
    middle of the widest gap between its values there.
    """
    load(module, fills, torch.float64)

    def hook(bn, _, z):
        shift = torch.empty_like(bn.bias)
        for c in range(z.shape[1]):
            v = z[:, c].flatten()
            v = torch.cat([v[v.abs() < 0.125], torch.tensor([-0.125, 0.125]).double()]).sort()[0]
            i = v.diff().argmax()
            shift[c] = -(v[i] + v[i + 1]) / 2
        bias = (bn.bias + shift).float().double()
        z = z + (bias - bn.bias).reshape(1, -1, 1, 1)
        bn.bias.copy_(bias)
        return z

    norms = {k: m for k, m in module.named_modules() if isinstance(m, nn.BatchNorm2d)}
    hooks = [m.register_forward_hook(hook) for m in norms.values()]
    with torch.no_grad():
        module(x.double())
    for h in hooks:
        h.remove()
    return {k + ".bias": m.bias.detach().float() for k, m in norms.items()}


def sample_positions(n):
    """SAMPLE increasing positions in [0, n): one in each of SAMPLE equal cells."""
    i = np.arange(SAMPLE, dtype=np.uint64)
    return (i * n // SAMPLE + mix(i.astype(np.uint32)) % np.uint32(n // SAMPLE)).astype(np.int64)


# ---- the network: names, shapes and order as in the peer program ---------------------------------


class Block(nn.Module):
    """Pre-activation block; where the shape changes, BN-ReLU is shared with the shortcut."""

    def __init__(self, cin, cout, stride):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.short = None
        if cin != cout or stride != 1:
            self.short = nn.Conv2d(cin, cout, 1, stride, 0, bias=False)

    def forward(self, x):
        a = F.relu(self.bn1(x), inplace=True)
        s = x if self.short is None else self.short(a)
        a = F.relu(self.bn2(self.conv1(a)), inplace=True)
        return self.conv2(a) + s


class WRN(nn.Module):
    def __init__(self, depth, k):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        blocks, cin = [], 16
        for g, w in enumerate([16 * k, 32 * k, 64 * k]):
            for i in range((depth - 4) // 6):
                blocks.append(Block(cin, w, 2 if g > 0 and i == 0 else 1))
                cin = w
        self.blocks = nn.ModuleList(blocks)
        self.bn = nn.BatchNorm2d(cin)
        self.fc = nn.Linear(cin, 10)

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = b(x)
        x = F.relu(self.bn(x), inplace=True)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Signs:
    """Copies every batch norm's output, the input of a ReLU, during a forward pass."""

    def __init__(self, module):
        self.z = []
        for m in module.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.register_forward_hook(self.keep)

    def keep(self, _, inputs, z):  # in a copy: the ReLU works in place
        self.z.append(z.detach().to(torch.float64, copy=True))


def margins(z64, z32):
    """Least |ReLU input|, and the largest float32 error of one; fails where a sign differs."""
    assert all(torch.equal(a > 0, b > 0) for a, b in zip(z64, z32)), "a ReLU flips"
    return dict(least_relu_input="%.3g" % min(z.abs().min() for z in z64),
                largest_f32_error="%.3g" % max((a - b).abs().max() for a, b in zip(z64, z32)))


# ---- files ---------------------------------------------------------------------------------------


class Dump:
    """One safetensors file: 8-byte header length, JSON header, data (8-byte types first)."""

    TYPES = {"float64": "F64", "int64": "I64", "float32": "F32"}

    def __init__(self, **meta):
        self.t = {}
        self.meta = dict(made_by="tests/make_torch_dumps.py", torch=torch.__version__)
        self.meta.update({k: str(v) for k, v in meta.items()})

    def add(self, name, value, dtype=None):
        a = value.detach().numpy() if torch.is_tensor(value) else np.asarray(value)
        assert name not in self.t
        self.t[name] = np.atleast_1d(np.ascontiguousarray(a, dtype))

    def pair(self, name, v64, v32, whole=False, keep_f32=True):
        """name (F64), name_f32, and name.distance: |v64|, |v32-v64|/|v64| of all, of the sample."""
        a, b = v64.detach(), v32.detach()
        assert a.dtype == torch.float64 and b.dtype == torch.float32 and a.shape == b.shape
        norm, far = a.norm().item(), (b.double() - a).norm().item()
        if not whole and a.numel() > WHOLE:
            at = torch.from_numpy(sample_positions(a.numel()))
            a, b = a.flatten()[at], b.flatten()[at]
        self.add(name, a)
        if keep_f32:
            self.add(name + "_f32", b)
        sampled = ((b.double() - a).norm() / a.norm()).item()
        self.add(name + ".distance", [norm, far / norm, sampled])

    def fill(self, name, fill, shape):
        self.add(name + ".fill", fill.row())
        self.add(name + ".shape", list(shape), np.int64)

    def state(self, prefix, module, fills, biases=()):
        """What the module starts from: .shape and either .fill or, for settled biases, .values."""
        for k, f in fills.items():
            if k in biases:
                self.add(prefix + k + ".values", biases[k])
                self.add(prefix + k + ".shape", list(biases[k].shape), np.int64)
            else:
                self.fill(prefix + k, f, module.state_dict()[k].shape)

    def write(self, name):
        order = sorted(self.t, key=lambda k: -self.t[k].itemsize)
        head, at = {"__metadata__": self.meta}, 0
        for k in order:
            a = self.t[k]
            head[k] = dict(dtype=self.TYPES[a.dtype.name], shape=list(a.shape),
                           data_offsets=[at, at + a.nbytes])
            at += a.nbytes
        text = json.dumps(head, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        os.makedirs(DATA, exist_ok=True)
        with open(os.path.join(DATA, name + ".safetensors"), "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text)
            for k in order:
                f.write(self.t[k].astype(self.t[k].dtype.newbyteorder("<")).tobytes())
        print(f"{name}: {8 + len(text) + at} bytes, {len(order)} tensors, {self.meta}", flush=True)


# ---- networks ------------------------------------------------------------------------------------

# depth, width, batch, pixels, seed
NETS = {"wrn28_2": (28, 2, 4, 32, 1), "wrn10_1": (10, 1, 4, 16, 2), "wrn16_1": (16, 1, 2, 16, 3)}


def net_run(m, fills, biases, x, y):
    """One training forward and backward; then an evaluation with the initial running statistics."""
    load(m, fills, x.dtype, biases)
    signs = Signs(m)
    logits = m(x)
    z = list(signs.z)
    loss = F.cross_entropy(logits, y)
    m.zero_grad()
    loss.backward()
    after = {k: v.clone() for k, v in m.named_buffers()}
    grads = {k: p.grad.clone() for k, p in m.named_parameters()}
    load(m, fills, x.dtype, biases).eval()
    with torch.no_grad():
        eval_logits = m(x)
    return dict(loss=loss, logits=logits, eval_logits=eval_logits, z=z, after=after, grads=grads)


def dump_net(name):
    depth, k, batch, px, seed = NETS[name]
    m = WRN(depth, k)
    x, y = image_fill(seed).array((batch, 3, px, px)), labels(seed, batch)
    fills = state_fills(m, seed)
    biases = settle(m, fills, x)
    a, b = (net_run(WRN(depth, k), fills, biases, x.to(t), y)
            for t in (torch.float64, torch.float32))
    d = Dump(seed=seed, **margins(a["z"], b["z"]))
    d.state("", m, fills, biases)
    d.fill("images", image_fill(seed), x.shape)
    d.add("images", x)
    d.add("labels", y)
    for k in ("loss", "logits", "eval_logits"):
        d.pair(k, a[k], b[k])
    full = dict(whole=True, keep_f32=False) if name != "wrn28_2" else {}
    for k, g in a["grads"].items():
        d.pair(k + ".grad", g, b["grads"][k], **full)
    for k, v in a["after"].items():
        if k in fills:
            d.pair(k + ".after", v, b["after"][k])
    d.write(name)


# ---- blocks --------------------------------------------------------------------------------------

# channels in, channels out, stride, pixels of the input; batch 2
BLOCKS = [(16, 32, 1, 32), (32, 32, 1, 32), (32, 64, 2, 32), (64, 64, 1, 16), (64, 128, 2, 16),
          (128, 128, 1, 8)]


def block_name(cin, cout, stride, px):
    return f"c{cin}_c{cout}_s{stride}_{px}px"


def block_run(kind, fills, biases, x, out_fill):
    m = load(Block(*kind[:3]), fills, x.dtype, biases)
    signs = Signs(m)
    x = x.clone().requires_grad_()
    out = m(x)
    out.backward(out_fill.array(out.shape).to(x.dtype))
    return dict(m=m, x=x, out=out, z=signs.z)


def dump_blocks():
    d = Dump()
    for seed, kind in enumerate(BLOCKS, 11):
        p, m = block_name(*kind) + ".", Block(*kind[:3])
        fills, x = state_fills(m, seed), image_fill(seed).array((2, kind[0], kind[3], kind[3]))
        biases = settle(m, fills, x)
        out_fill = Fill(1024 * seed + OUTPUT_GRAD, 0.0, 1.0)
        a, b = (block_run(kind, fills, biases, x.to(t), out_fill)
                for t in (torch.float64, torch.float32))
        d.meta[p[:-1]] = ", ".join(
            f"{k} {v}" for k, v in dict(seed=seed, **margins(a["z"], b["z"])).items())
        d.state(p, m, fills, biases)
        d.fill(p + "input", image_fill(seed), x.shape)
        d.fill(p + "output_grad", out_fill, a["out"].shape)
        d.pair(p + "output", a["out"], b["out"])
        d.pair(p + "input.grad", a["x"].grad, b["x"].grad)
        for (k, u), v in zip(a["m"].named_parameters(), b["m"].parameters()):
            d.pair(p + k + ".grad", u.grad, v.grad)
        for (k, u), v in zip(a["m"].named_buffers(), b["m"].buffers()):
            if k in fills:
                d.pair(p + k + ".after", u, v)
    d.write("blocks")


# ---- group norm ----------------------------------------------------------------------------------

# images, channels, height, width, groups
GROUP_NORMS = [(2, 16, 5, 3, 2), (3, 32, 4, 4, 4), (2, 24, 5, 6, 3), (1, 64, 4, 4, 1)]


def group_norm_run(case, fills, dtype):
    n, c, h, w, groups = case
    shapes = dict(input=(n, c, h, w), weight=(c,), bias=(c,))
    t = {k: fills[k].array(s).to(dtype).requires_grad_() for k, s in shapes.items()}
    z = F.group_norm(t["input"], groups, t["weight"], t["bias"], eps=1e-5)
    out = F.relu(z)
    out.backward(fills["output_grad"].array(out.shape).to(dtype))
    return t, z.detach().double(), out


def dump_group_norm():
    d = Dump()
    for seed, case in enumerate(GROUP_NORMS, 31):
        p = "n%d_c%d_%dx%d_g%d." % case
        fills = dict(input=Fill(1024 * seed + IMAGES, 1.0, 2.0), weight=Fill(1024 * seed, 1.0, 0.5),
                     bias=Fill(1024 * seed + 1, 0.0, 0.5),
                     output_grad=Fill(1024 * seed + OUTPUT_GRAD, 0.0, 1.0))
        (a, z64, out64), (b, z32, out32) = (group_norm_run(case, fills, t)
                                            for t in (torch.float64, torch.float32))
        found = margins([z64], [z32])
        assert float(found["least_relu_input"]) > 1e-5, "a ReLU input is too near 0"
        d.meta[p[:-1]] = ", ".join(f"{k} {v}" for k, v in dict(seed=seed, **found).items())
        for k in ("input", "weight", "bias"):
            d.fill(p + k, fills[k], a[k].shape)
        d.fill(p + "output_grad", fills["output_grad"], out64.shape)
        d.pair(p + "output", out64, out32, keep_f32=False)
        for k in ("input", "weight", "bias"):
            d.pair(p + k + ".grad", a[k].grad, b[k].grad, keep_f32=False)
    d.write("group_norm")


# ---- Adam ----------------------------------------------------------------------------------------

ADAM_COUNT, ADAM_UPDATES = 1100, 20
ADAM = dict(lr=1e-3, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.1)
ADAM_GRADIENTS = {"large": 1.0, "small": 1e-4, "tiny": 1e-7}  # beside the last, epsilon is large


def adam_run(fills, dtype):
    w = fills["weight"].array((ADAM_COUNT,)).to(dtype).requires_grad_()
    gradients = fills["gradients"].array((ADAM_UPDATES, ADAM_COUNT)).to(dtype)
    opt = torch.optim.AdamW([w], **ADAM)
    for t, g in enumerate(gradients, 1):
        # fairseq adds epsilon to sqrt(v), AdamW to sqrt(v / (1 - beta2^t)).
        opt.param_groups[0]["eps"] = ADAM["eps"] / (1 - ADAM["betas"][1] ** t) ** 0.5
        w.grad = g
        opt.step()
    return w, opt.state[w]["exp_avg"], opt.state[w]["exp_avg_sq"]


def dump_adam():
    d = Dump(**ADAM)
    for seed, (size, scale) in enumerate(ADAM_GRADIENTS.items(), 41):
        fills = dict(weight=Fill(1024 * seed, 0.0, 1.0),
                     gradients=Fill(1024 * seed + OUTPUT_GRAD, 0.0, scale))
        d.fill(size + ".weight", fills["weight"], (ADAM_COUNT,))
        d.fill(size + ".gradients", fills["gradients"], (ADAM_UPDATES, ADAM_COUNT))
        runs = [adam_run(fills, t) for t in (torch.float64, torch.float32)]
        for k, a, b in zip(("weight.after", "m", "v"), *runs):
            d.pair(size + "." + k, a, b, keep_f32=False)
    d.write("adam")


# ---- training ------------------------------------------------------------------------------------

STEPS, STEP_BATCH = 10, 8


def train(name, lr, dtype):
    depth, k, _, px, seed = NETS[name]
    m = WRN(depth, k)
    fills = state_fills(m, seed)
    load(m, fills, dtype)
    opt = torch.optim.SGD(m.parameters(), lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
    xs = image_fill(seed).array((STEPS, STEP_BATCH, 3, px, px)).to(dtype)
    ys = labels(seed, STEPS * STEP_BATCH).reshape(STEPS, STEP_BATCH)
    losses = []
    for x, y in zip(xs, ys):
        opt.zero_grad()
        loss = F.cross_entropy(m(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.detach())
    return m, fills, torch.stack(losses), ys


def dump_losses():
    d = Dump()
    for name, lr in (("wrn28_2", 0.001), ("wrn10_1", 0.01)):
        (a, fills, l64, ys), (b, _, l32, _) = (train(name, lr, t)
                                               for t in (torch.float64, torch.float32))
        px, seed = NETS[name][3:]
        d.state(name + ".", a, fills)
        d.fill(name + ".images", image_fill(seed), (STEPS, STEP_BATCH, 3, px, px))
        d.add(name + ".labels", ys)
        d.add(name + ".lr", [lr])
        d.pair(name + ".losses", l64, l32)
        for (k, u), v in zip(a.state_dict().items(), b.state_dict().values()):
            if name == "wrn10_1" and k in fills:
                if "running" in k:
                    d.pair(f"{name}.{k}.after", u, v)
                else:
                    u, v = u.detach(), v.detach()
                    d.add(f"{name}.{k}.final_norm", [u.norm().item(), v.double().norm().item(),
                                                     ((v.double() - u).norm() / u.norm()).item()])
        print(name, "losses", l64.tolist(), "f32-f64", (l32.double() - l64).abs().max().item())
    d.write("losses")


# ---- conversions ---------------------------------------------------------------------------------


def dump_numbers():
    """Values of each 16-bit type, ties between neighbours, and one f32 ulp either side of both."""
    near = set()
    f16s = [0, 1, 2, 3, 0x3FE, 0x3FF, 0x400, 0x401, 0x3BFF, 0x3C00, 0x3C01, 0x7BFE, 0x7BFF]
    f16s += [int(h % 0x7C00) for h in hashes(1, 60)]
    for h in f16s:
        lo, up = np.array([h, h + 1], np.uint16).view(np.float16).astype(np.float64)
        up = min(up, 65536.0)  # the neighbour of 65504, were the exponent wider
        near |= {int(np.float32(v).view(np.uint32)) for v in (lo, (lo + up) / 2)}
    bf16s = [0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0x81, 0x3F7F, 0x3F80, 0x3F81, 0x7F7E, 0x7F7F]
    for h in bf16s + [int(h % 0x7F80) for h in hashes(2, 60)]:
        near |= {h << 16, h << 16 | 0x8000}  # a value and the tie above it
    bits = {v + e for v in near for e in (-1, 0, 1) if 0 <= v + e < 0x7F800000}
    bits |= {1, 2, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF}
    bits |= {int(h) & 0x7FFFFFFF for h in hashes(3, 300)}
    bits |= {0x38000000 + int(h) % 0x10000000 for h in hashes(4, 200)}  # around f16's range
    b = np.array(sorted(bits | {v | 0x80000000 for v in bits}), np.uint32)
    x = torch.from_numpy(b.view(np.float32).copy())
    bf16 = x.bfloat16().view(torch.int16).numpy().view(np.uint16)
    f16 = x.half().view(torch.int16).numpy().view(np.uint16)
    with np.errstate(over="ignore", invalid="ignore"):
        same = x.numpy().astype(np.float16).view(np.uint16) == f16
    assert np.all(same | np.isnan(x.numpy())), "numpy and torch differ"
    d = Dump()
    for k, v in (("f32_bits", b), ("bf16_bits", bf16), ("f16_bits", f16)):
        d.add(k, v, np.int64)
    d.add("f16_to_f32", torch.arange(65536).to(torch.int16).view(torch.half).float())
    d.write("numbers")


# ---- memory --------------------------------------------------------------------------------------


class Saved:
    """Peak bytes that autograd holds, by distinct storage; parameters and buffers are left out."""

    def __init__(self, model):
        self.skip = {t.data_ptr() for t in [*model.parameters(), *model.buffers()]}
        self.held = {}  # storage address: bytes. Nothing is freed before the backward pass.
        self.loss_own = {}

    def pack(self, t):
        s = t.storage()
        if s.data_ptr() not in self.skip:
            self.held[s.data_ptr()] = s.nbytes()
            if t.dtype == torch.int64 or t.dim() == 0:
                self.loss_own[s.data_ptr()] = s.nbytes()
        return t


def dump_memory():
    m, n = WRN(28, 2), 100
    load(m, state_fills(m, 1), torch.float32)
    s = Saved(m)
    x, y = image_fill(1).array((n, 3, 32, 32)), labels(1, n)
    with torch.autograd.graph.saved_tensors_hooks(s.pack, lambda t: t):
        loss = F.cross_entropy(m(x), y)  # kept, so that no storage's address is used again
    own = sum(s.loss_own.values())
    d = Dump(loss=loss.item())
    d.add("batch", [n], np.int64)
    d.add("parameters", [sum(p.numel() for p in m.parameters())], np.int64)
    d.add("parameter_bytes", [sum(p.numel() * 4 for p in m.parameters())], np.int64)
    d.add("running_statistics", [2 * sum(b.num_features for b in m.modules()
                                         if isinstance(b, nn.BatchNorm2d))], np.int64)
    d.add("saved_bytes", [sum(s.held.values()) - own], np.int64)
    d.add("saved_label_bytes", [own], np.int64)
    print("memory", {k: v.tolist() for k, v in d.t.items()})
    d.write("memory")


def main():
    torch.set_num_threads(1)
    for name in NETS:
        dump_net(name)
    dump_blocks()
    dump_group_norm()
    dump_adam()
    dump_losses()
    dump_numbers()
    dump_memory()


if __name__ == "__main__":
    main()
