#!/usr/bin/env python3
"""Tokens a second of a tensor-parallel decoder with random weights, by what performs its all-reduces.

  torchrun --nproc-per-node 2 bench/python/decode.py
  torchrun --nproc-per-node 2 bench/python/decode.py --device cpu --layers 2 --hidden 256 --tokens 8

A decoder of the shape of Llama: each layer has an all-reduce behind the attention and one behind the MLP, each followed
by the sum with the residual and an RMSNorm. A step makes one token for each sequence of the batch; on GPUs it is one
CUDA graph. All ways start from the same weights and tokens. The ways:

  torch        torch.distributed.all_reduce, then the sum and the norm (NCCL, or gloo on the CPU)
  symm_mem     all-reduces of PyTorch's symmetric memory, then the sum and the norm (GPUs only)
  ops          torch.ops.mscclpp.all_reduce_, then the sum and the norm
  fused        torch.ops.mscclpp.all_reduce_rms_norm_, which does all three

A line for each: milliseconds of a step, tokens a second, and how many of its tokens are those of the first way. The
order of a sum differs between ways above two ranks, and the fused one rounds less often: then tokens may differ, and
every later token of that sequence with them. Attention is PyTorch's own arithmetic, not cuDNN's, whose results differ
from run to run.
"""

import argparse
import dataclasses
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import mscclpp
import mscclpp.torch


@dataclasses.dataclass
class Weights:
    """The shard of this rank of one layer."""

    norm: torch.Tensor
    qkv: torch.Tensor
    output: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


class Decoder:
    """The shard of this rank. step() reads `tokens` and writes the next ones there, and may be captured in a graph."""

    def __init__(self, options, rank, ranks, device, dtype):
        if options.heads % ranks or options.key_value_heads % ranks or options.mlp % ranks:
            raise SystemExit(f"heads, key-value heads and MLP width are not divisible by {ranks} ranks")
        self.options = options
        self.head_size = options.hidden // options.heads
        self.heads = options.heads // ranks
        self.key_value_heads = options.key_value_heads // ranks
        common = torch.Generator(device).manual_seed(1)  # the same on all ranks
        own = torch.Generator(device).manual_seed(100 + rank)

        def random(generator, rows, columns):
            weight = torch.randn(rows, columns, device=device, dtype=dtype, generator=generator)
            return weight * columns**-0.5

        def ones():
            return torch.ones(options.hidden, device=device, dtype=dtype)

        width = self.head_size * self.heads
        rows = width + 2 * self.head_size * self.key_value_heads
        mlp = options.mlp // ranks
        self.layers = [
            Weights(
                norm=ones(),
                qkv=random(own, rows, options.hidden),
                output=random(own, options.hidden, width),
                mlp_norm=ones(),
                gate_up=random(own, 2 * mlp, options.hidden),
                down=random(own, options.hidden, mlp),
            )
            for _ in range(options.layers)
        ]
        self.last_norm = ones()
        self.embedding = random(common, options.vocabulary, options.hidden)
        self.head = random(common, options.vocabulary, options.hidden)
        cache = (options.layers, 2, options.batch, self.key_value_heads, options.tokens, self.head_size)
        self.cache = torch.zeros(cache, device=device, dtype=dtype)
        self.position = torch.zeros(1, device=device, dtype=torch.int64)
        self.places = torch.arange(options.tokens, device=device)
        self.tokens = torch.zeros(options.batch, device=device, dtype=torch.int64)
        self.restart()

    def restart(self):
        self.cache.zero_()
        self.position.zero_()
        self.tokens.copy_(torch.arange(len(self.tokens)) % self.options.vocabulary)

    def attention(self, layer, hidden, visible):
        weights, (keys, values) = self.layers[layer], self.cache[layer]
        batch, size = hidden.shape[0], self.head_size
        query, key, value = functional.linear(hidden, weights.qkv).split(
            [self.heads * size, self.key_value_heads * size, self.key_value_heads * size], dim=1
        )
        keys.index_copy_(2, self.position, key.view(batch, self.key_value_heads, 1, size))
        values.index_copy_(2, self.position, value.view(batch, self.key_value_heads, 1, size))
        with sdpa_kernel(SDPBackend.MATH):
            result = functional.scaled_dot_product_attention(
                query.reshape(batch, self.heads, 1, size), keys, values, attn_mask=visible, enable_gqa=True
            )
        return functional.linear(result.reshape(batch, self.heads * size), weights.output)

    def mlp(self, layer, hidden):
        weights = self.layers[layer]
        gate, up = functional.linear(hidden, weights.gate_up).chunk(2, dim=1)
        return functional.linear(functional.silu(gate) * up, weights.down)

    def step(self, reduce_and_norm):
        """reduce_and_norm(partial, residual, weight): sums partial over the ranks, adds it to residual in place, and
        returns RMSNorm(residual) * weight."""
        residual = self.embedding[self.tokens]
        hidden = functional.rms_norm(residual, residual.shape[-1:], self.layers[0].norm, 1e-6)
        visible = (self.places <= self.position).view(1, 1, 1, -1)
        norms = [weights.norm for weights in self.layers[1:]] + [self.last_norm]
        for layer, (weights, next_norm) in enumerate(zip(self.layers, norms)):
            hidden = reduce_and_norm(self.attention(layer, hidden, visible), residual, weights.mlp_norm)
            hidden = reduce_and_norm(self.mlp(layer, hidden), residual, next_norm)
        self.tokens.copy_(functional.linear(hidden, self.head).argmax(dim=-1))
        self.position.add_(1)


def separately(all_reduce):
    """The sum and the norm as kernels of their own behind an all-reduce, which returns its result."""

    def reduce_and_norm(partial, residual, weight):
        residual.add_(all_reduce(partial))
        return functional.rms_norm(residual, residual.shape[-1:], weight, 1e-6)

    return reduce_and_norm


def with_torch(options, group):
    def all_reduce(tensor):
        dist.all_reduce(tensor)
        return tensor

    return separately(all_reduce)


def with_symmetric_memory(options, group):
    from torch.distributed import _symmetric_memory as symmetric_memory

    buffer = symmetric_memory.empty(options.batch, options.hidden, device="cuda", dtype=options.dtype)
    name = dist.group.WORLD.group_name
    symmetric_memory.rendezvous(buffer, name)

    def all_reduce(tensor):
        buffer.copy_(tensor)
        return torch.ops.symm_mem.one_shot_all_reduce(buffer, "sum", name)

    return separately(all_reduce)


def with_ops(options, group):
    def all_reduce(tensor):
        torch.ops.mscclpp.all_reduce_(tensor, group)
        return tensor

    return separately(all_reduce)


def with_fused(options, group):
    def reduce_and_norm(partial, residual, weight):
        torch.ops.mscclpp.all_reduce_rms_norm_(partial, residual, weight, group)
        return partial

    return reduce_and_norm


WAYS = {"torch": with_torch, "symm_mem": with_symmetric_memory, "ops": with_ops, "fused": with_fused}


def capture(step):
    """The step as a CUDA graph; performs it once before."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()  # what is set up at a first call cannot be in a graph
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def run(decoder, way, options, group, device):
    """Decodes twice and returns the seconds of the second time, and its tokens."""
    reduce_and_norm = WAYS[way](options, group)

    def step():
        decoder.step(reduce_and_norm)

    on_gpu = device.type == "cuda"
    if on_gpu:
        decoder.restart()
        step = capture(step)
    for _ in range(2):
        decoder.restart()
        tokens = torch.empty(options.tokens, options.batch, dtype=torch.int64, device=device)
        dist.barrier()
        if on_gpu:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for position in range(options.tokens):
            step()
            tokens[position].copy_(decoder.tokens)
        if on_gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
    return seconds, tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), help="default: all that the device has")
    parser.add_argument("--batch", type=int, default=8, help="sequences")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of each sequence")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--mlp", type=int, help="width of the MLP; default: 3.5 times --hidden")
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--key-value-heads", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--json", action="store_true", help="print lines of JSON")
    options = parser.parse_args()
    options.mlp = options.mlp or options.hidden * 7 // 2
    options.ways = options.ways or [way for way in WAYS if options.device == "cuda" or way != "symm_mem"]
    options.dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    rank = int(os.environ["RANK"])
    device = torch.device(options.device, int(os.environ["LOCAL_RANK"]) if options.device == "cuda" else None)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    on_gpu = device.type == "cuda"
    dist.init_process_group("nccl" if on_gpu else "gloo", device_id=device if on_gpu else None)
    ranks = dist.get_world_size()
    decoder = Decoder(options, rank, ranks, device, options.dtype)
    first = None
    with mscclpp.CommGroup(torch_group=dist.group.WORLD) as comm, torch.no_grad():
        group = mscclpp.torch.register(comm)
        for way in options.ways:
            seconds, tokens = run(decoder, way, options, group, device)
            first = tokens if first is None else first
            result = {
                "way": way,
                "ranks": ranks,
                "ms_per_step": seconds / options.tokens * 1e3,
                "tokens_per_s": options.tokens * options.batch / seconds,
                "equal_tokens": (tokens == first).float().mean().item(),
            }
            if rank == 0 and options.json:
                print(json.dumps(result), flush=True)
            elif rank == 0:
                print(
                    "{way:9} {ms_per_step:8.3f} ms {tokens_per_s:9.0f} tokens/s, {equal_tokens:.1%} of the tokens equal"
                    .format(**result),
                    flush=True,
                )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
