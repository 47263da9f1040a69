"""Products of bfloat16 and fp8 over ranks in double, with the bounds of their errors."""

import torch


def operand(rows, columns, seed, dtype=torch.bfloat16):
    """Random numbers."""
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).to(dtype)


def scales_of(rows, seed):
    """A random scale for each row, of three orders of magnitude."""
    return 10 ** (torch.rand(rows, generator=torch.Generator().manual_seed(seed)) * 3 - 2)


def product(input, weight, input_scales=None, weight_scales=None):
    """The product of a rank and its bound: accumulated in fp32, in any order, multiplied by the scales and rounded."""
    a, b = input.double(), weight.double()
    if input_scales is not None:
        a, b = a * input_scales.double().reshape(-1, 1), b * weight_scales.double().reshape(-1, 1)
    exact = a @ b.t()
    return exact, exact.abs() * 2**-8 + (a.abs() @ b.abs().t()) * (a.shape[-1] + 4) * 2**-23


def require_close(found, products):
    """Whether `found` is the sum of products, which is rounded once more if there are several."""
    exact, bound = (sum(parts) for parts in zip(*products))
    bound = bound + (exact.abs() + bound) * 2**-8 + 1e-6
    assert found.dtype == torch.bfloat16 and found.shape == exact.shape, (found.dtype, found.shape, exact.shape)
    assert ((found.cpu().double() - exact).abs() <= bound).all(), (found, exact)
