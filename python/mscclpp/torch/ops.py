"""torch.ops.mscclpp: the collectives as operators of PyTorch, which torch.compile and CUDA graphs take."""

import itertools
import pathlib
import weakref

import torch

from .._mscclpp import group_size, register_group, unregister_group
from ..comm_group import CommGroup
from ..errors import InvalidUsage

_numbers = itertools.count()


LIBRARY = pathlib.Path(__file__).parent / "_ops.so"


def _load():
    if not LIBRARY.exists():
        raise ImportError(
            "this build of mscclpp has no PyTorch parts: install it with -Csetup-args=-Dtorch=enabled, where the "
            "build's Python finds torch"
        )
    if torch.__version__ < torch.torch_version.TorchVersion("2.10"):
        raise ImportError(f"mscclpp.torch needs torch 2.10 or newer, not {torch.__version__}: upgrade it")
    torch.ops.load_library(LIBRARY)


_load()


def register(comm: CommGroup, name: str | None = None) -> str:
    """Makes a CommGroup available to operators, and returns the name that they take as `group`.

    The registration ends when the group is closed, or no longer referenced. `name` is of the caller's choice, the same
    on all ranks; by default the groups of a process are numbered. What is returned contains the number of ranks as
    well: results of compilation that are cached depend on both. Raises InvalidUsage for a name in use, and for a group
    that is closed.
    """
    comm._require_open()
    full_name = f"{name or f'group{next(_numbers)}'}:{comm.nranks}"
    group = weakref.ref(comm)
    register_group(
        full_name,
        comm.nranks,
        lambda device_type: _open(group, full_name).collectives(device_type),
        lambda device_type: _open(group, full_name).fused_gemms(device_type),
    )
    comm.at_close(weakref.finalize(comm, unregister_group, full_name))
    return full_name


def _open(group, name):
    comm = group()
    if comm is None:
        raise InvalidUsage(f"the group registered as {name!r} no longer exists: keep a reference to it")
    return comm


def _gathered(tensor, group):
    first, *others = tensor.shape or (1,)
    return tensor.new_empty((group_size(group) * first, *others))


def _part(tensor, group):
    ranks = group_size(group)
    if tensor.dim() == 0 or tensor.shape[0] % ranks != 0:
        raise InvalidUsage(
            f"the first dimension of shape {tuple(tensor.shape)} is not divisible by the {ranks} ranks, which have "
            "parts of one size"
        )
    return tensor.new_empty((tensor.shape[0] // ranks, *tensor.shape[1:]))


def _product(input, weight):
    if input.dim() < 2 or weight.dim() != 2 or input.shape[-1] != weight.shape[1]:
        raise InvalidUsage(
            f"input has shape {tuple(input.shape)} and weight {tuple(weight.shape)}; they are (..., depth), with two "
            "dimensions or more, and (width, depth)"
        )
    return input.new_empty((*input.shape[:-1], weight.shape[0]), dtype=torch.bfloat16)


def _quantised(tensor, residual, weight, group, quantisation, scale=None, epsilon=1e-6):
    *rows, hidden = tensor.shape
    scales = {"fp8_static": (0,), "fp8_per_group": (*rows, -(-hidden // 128))}.get(quantisation, (*rows, 1))
    return (
        tensor.new_empty(tensor.shape, dtype=torch.int8 if quantisation == "int8_per_row" else torch.float8_e4m3fn),
        tensor.new_empty(scales, dtype=torch.float32),
        tensor.new_empty(tensor.shape),
    )


def _fake_gemm(result_of):
    """The fakes of a multiplication: plain, with a norm, and with a norm that quantises."""

    def plain(input, weight, group, input_scales=None, weight_scales=None, use_fast_accum=False):
        return result_of(_product(input, weight), group)

    def normalised(input, weight, residual, norm_weight, group, epsilon=1e-6, input_scales=None, weight_scales=None,
                   use_fast_accum=False):  # fmt: skip
        result = plain(input, weight, group)
        return result, torch.empty_like(result)

    def quantised(input, weight, residual, norm_weight, group, quantisation, scale=None, epsilon=1e-6,
                  input_scales=None, weight_scales=None, use_fast_accum=False):  # fmt: skip
        return _quantised(plain(input, weight, group), None, norm_weight, group, quantisation)

    return plain, normalised, quantised


# What compilers know of the operators: the shapes of results. Those that write a tensor have none.
_FAKES = {
    "all_reduce": lambda tensor, group, op="sum": tensor.new_empty(tensor.shape),
    "all_reduce_": lambda tensor, group, op="sum": None,
    "all_reduce_fp8": lambda tensor, group: tensor.new_empty(tensor.shape),
    "all_reduce_fp8_": lambda tensor, group: None,
    "all_gather": _gathered,
    "all_gather_into": lambda out, tensor, group: None,
    "reduce_scatter": lambda tensor, group, op="sum": _part(tensor, group),
    "reduce_scatter_into": lambda out, tensor, group, op="sum": None,
    "all_to_all": lambda tensor, group: tensor.new_empty(tensor.shape),
    "all_to_all_into": lambda out, tensor, group: None,
    "broadcast": lambda tensor, group, root=0: tensor.new_empty(tensor.shape),
    "broadcast_": lambda tensor, group, root=0: None,
    "all_reduce_rms_norm": lambda tensor, residual, weight, group, epsilon=1e-6: (
        tensor.new_empty(tensor.shape),
        tensor.new_empty(tensor.shape),
    ),
    "all_reduce_rms_norm_": lambda tensor, residual, weight, group, epsilon=1e-6: None,
    "all_reduce_rms_norm_quantised": _quantised,
    "all_gather_gemm": _fake_gemm(_gathered)[0],
}
for _name, _result_of in {"gemm_all_reduce": lambda product, group: product, "gemm_reduce_scatter": _part}.items():
    for _suffix, _fake in zip(("", "_rms_norm", "_rms_norm_quantised"), _fake_gemm(_result_of)):
        _FAKES[_name + _suffix] = _fake
for _name, _fake in _FAKES.items():
    torch.library.register_fake(f"mscclpp::{_name}", _fake)
    # Compilers keep a call whose result a rank does not use, since the others wait for it.
    for _operator in (getattr(torch.ops.mscclpp, _name), getattr(torch.ops.mscclpp, _name).default):
        torch.fx.node.has_side_effect(_operator)
