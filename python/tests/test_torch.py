"""Tensors of PyTorch on CPU ranks, in the forms of MSCCL++'s guide."""

import mscclpp
import mscclpp.utils as mscclpp_utils
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


class CustomizedComm:
    """The class of the guide, with the device type as the one argument that differs."""

    def __init__(self, comm):
        self.comm = comm
        dlpack = mscclpp.HostBuffer(1 << 20).to_dlpack(data_type=str(torch.float16))
        self.scratch_buffer = torch.utils.dlpack.from_dlpack(dlpack)
        algorithms = mscclpp.AlgorithmCollectionBuilder().build_default_algorithms(
            scratch_buffer=self.scratch_buffer.data_ptr(),
            scratch_buffer_size=self.scratch_buffer.nbytes,
            rank=comm.my_rank,
            device_type=mscclpp.DeviceType.CPU,
        )
        name = "default_allreduce_packet"
        self._algo = [algo for algo in algorithms if algo.collective == "allreduce" and algo.name == name][0]

    def all_reduce(self, tensor, stream=None):
        return self._algo.execute(
            comm=self.comm.communicator,
            input_buffer=tensor.data_ptr(),
            output_buffer=tensor.data_ptr(),
            input_size=tensor.nbytes,
            output_size=tensor.nbytes,
            dtype=mscclpp_utils.torch_dtype_to_mscclpp_dtype(tensor.dtype),
            op=mscclpp.ReduceOp.SUM,
            stream=stream.cuda_stream if stream else 0,
        )


def follow_guide(comm):
    customized = CustomizedComm(comm)
    assert customized.scratch_buffer.dtype == torch.float16
    tensor = torch.full((1000,), float(comm.my_rank), dtype=torch.bfloat16)
    assert customized.all_reduce(tensor) == mscclpp.CommResult.CommSuccess
    return tensor.sum().item()


def test_the_guide():
    assert mscclpp.run(2, follow_guide, timeout=300) == [1000.0, 1000.0]
