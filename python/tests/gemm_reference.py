"""Products of bfloat16 over ranks in double, with the bounds of their errors."""

import torch


def operand(rows, columns, seed):
    """Random numbers."""
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).bfloat16()


def product(input, weight):
    """The product of a rank and its bound: accumulated in fp32, in any order, and rounded."""
    a, b = input.double(), weight.double()
    exact = a @ b.t()
    return exact, exact.abs() * 2**-8 + (a.abs() @ b.abs().t()) * (a.shape[-1] + 2) * 2**-23


def require_close(found, products):
    """Whether `found` is the sum of products, which is rounded once more if there are several."""
    exact, bound = (sum(parts) for parts in zip(*products))
    bound = bound + (exact.abs() + bound) * 2**-8 + 1e-6
    assert found.dtype == torch.bfloat16 and found.shape == exact.shape, (found.dtype, found.shape, exact.shape)
    assert ((found.cpu().double() - exact).abs() <= bound).all(), (found, exact)
