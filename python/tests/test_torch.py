"""Tensors of PyTorch on CPU ranks."""

import mscclpp
import pytest

torch = pytest.importorskip("torch")


def check_tensors(comm):
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.float8_e5m2):
        tensor = torch.ones(3, 5).to(dtype)
        total = comm.all_reduce(tensor)
        assert total.dtype == dtype and total.shape == (3, 5) and total.device.type == "cpu"
        assert (total.float() == comm.nranks).all() and (tensor.float() == 1).all()
        assert comm.all_gather(tensor).shape == (3 * comm.nranks, 5)
        assert comm.all_reduce(tensor, out=tensor) is tensor
        mapped = comm.empty((3, 5), dtype)
        assert mapped.dtype == dtype and mapped.shape == (3, 5) and not mapped.float().any()
        comm.all_reduce(tensor, out=mapped, algorithm="copy_engine")
        assert (mapped.float() == comm.nranks**2).all()
    for wrong, sentence in ((torch.zeros(4, 4).t(), "contiguous"), (torch.zeros(4, device="meta"), "device meta")):
        try:
            comm.all_reduce(wrong)
        except mscclpp.InvalidUsage as error:
            assert sentence in str(error)
        else:
            raise AssertionError(sentence)
    return True


def test_tensors():
    assert mscclpp.run(2, check_tensors, timeout=300) == [True, True]


def join_torch_group(comm, file):
    torch.distributed.init_process_group("gloo", f"file://{file}", rank=comm.my_rank, world_size=comm.nranks)
    with mscclpp.CommGroup(torch_group=torch.distributed.group.WORLD) as group:
        total = group.all_reduce(torch.ones(3))
    torch.distributed.destroy_process_group()
    return total.tolist()


def test_torch_group(tmp_path):
    assert mscclpp.run(2, join_torch_group, str(tmp_path / "store"), timeout=300) == [[2.0] * 3] * 2
