"""02: collectives in compiled PyTorch code: a tensor-parallel MLP, whose all-reduce, residual and RMSNorm are one
operator. It runs on two CPU ranks; under torchrun, with a GPU for each process, on those."""

import os

import mscclpp
import mscclpp.torch
import torch

HIDDEN = 256


def make_weights():
    """Of the whole MLP, the same on all ranks: up, down, norm."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((4 * HIDDEN, HIDDEN), (HIDDEN, 4 * HIDDEN), (HIDDEN,))
    return [torch.randn(shape, generator=generator) / HIDDEN**0.5 for shape in shapes]


class ParallelMlp(torch.nn.Module):
    """Each rank has some of the rows of `up` and the same columns of `down`, so that its result is a term of a sum."""

    def __init__(self, comm, device):
        super().__init__()
        up, down, norm = make_weights()
        self.up = torch.nn.Buffer(up.chunk(comm.nranks)[comm.my_rank].contiguous().to(device))
        self.down = torch.nn.Buffer(down.chunk(comm.nranks, dim=1)[comm.my_rank].contiguous().to(device))
        self.norm = torch.nn.Buffer(norm.to(device))
        self.group = mscclpp.torch.register(comm, "tensor_parallel")

    def forward(self, x, residual):
        term = torch.nn.functional.silu(x @ self.up.t()) @ self.down.t()
        return torch.ops.mscclpp.all_reduce_rms_norm(term, residual, self.norm, self.group)


def whole_mlp(x, residual):
    up, down, norm = make_weights()
    h = torch.nn.functional.silu(x @ up.t()) @ down.t() + residual
    return torch.nn.functional.rms_norm(h, (HIDDEN,), norm, eps=1e-6), h


def compute(comm, device="cpu"):
    mlp = ParallelMlp(comm, device)
    # Compiling for CPUs would need a C++ compiler; for GPUs mode="reduce-overhead" makes CUDA graphs too.
    how = {"backend": "aot_eager"} if device == "cpu" else {"mode": "reduce-overhead"}
    compiled = torch.compile(mlp, fullgraph=True, **how)
    with torch.no_grad():
        for step in range(3):
            x, residual = torch.randn((2, 5, HIDDEN), generator=torch.Generator().manual_seed(step))
            if step == 0:
                mlp(x.to(device), residual.to(device))  # the first call allocates, which no graph could
            results = compiled(x.to(device), residual.to(device))
            torch.testing.assert_close([result.cpu() for result in results], list(whole_mlp(x, residual)))
    return f"rank {comm.my_rank} of {comm.nranks}: right"


if __name__ == "__main__":
    if "RANK" in os.environ:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        with mscclpp.init() as comm:
            print(compute(comm, "cuda"))
    else:
        print("\n".join(mscclpp.run(2, compute)))
