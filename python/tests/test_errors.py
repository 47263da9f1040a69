"""Wrong calls are answered with a sentence, and errors are one family."""

import pickle

import mscclpp
import numpy as np
import pytest
from rank_threads import single_rank


@pytest.fixture(scope="module")
def comm():
    with single_rank() as group:
        yield group


class Unknown:
    dtype = "complex64"


@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda comm: comm.all_reduce([1.0, 2.0]), "tensor is a list: pass a torch tensor, a numpy array"),
        (lambda comm: comm.all_reduce(np.zeros(4, np.complex64)), "complex64 is not supported"),
        (lambda comm: comm.all_reduce(np.zeros(4, bool)), "bool is not supported"),
        (lambda comm: comm.all_reduce(np.zeros((4, 4))[:, :2]), "tensor is not contiguous"),
        (lambda comm: comm.all_reduce(np.zeros(4, ">f4")), "other byte order"),
        (lambda comm: comm.all_reduce(np.zeros(4), op="xor"), "unknown operator 'xor'"),
        (lambda comm: comm.all_reduce(np.zeros(4), algorithm="fastest"), "fastest"),
        (lambda comm: comm.all_reduce(np.zeros(4), stream=1), "stream= is for GPU tensors"),
        (lambda comm: comm.all_reduce(np.zeros(4), out=np.zeros(5)), r"out has shape \(5,\)"),
        (lambda comm: comm.all_reduce(np.zeros(4), out=np.zeros(4, np.int8)), "out has elements of int8"),
        (lambda comm: comm.all_reduce(np.zeros(4), out=np.zeros(8)[::2]), "out is not contiguous"),
        (lambda comm: comm.all_reduce(np.zeros(4), out=np.frombuffer(bytes(32))), "out is read-only"),
        (lambda comm: comm.broadcast(np.zeros(4), root=1), "root"),
        (lambda comm: comm.send(np.zeros(4), 5), "5"),
        (lambda comm: comm.empty(4, device="tpu"), "device is 'tpu'"),
        (lambda comm: comm.free(np.zeros(4)), "free"),
        (lambda comm: mscclpp.CommGroup(rank=0, size=1), "takes one of"),
        (lambda comm: mscclpp.CommGroup(interfaceIpPortTrio="127.0.0.1:1"), "pass rank= and size= too"),
        (lambda comm: mscclpp.UniqueId(b"short"), "a UniqueId has 128 bytes, not 5"),
        (lambda comm: mscclpp.TcpBootstrap.create(3, 2), "rank"),
        (lambda comm: mscclpp.RegisteredMemory.deserialize(b"nonsense"), "not a serialised RegisteredMemory"),
        (lambda comm: mscclpp.Context().register_memory(0, 8, mscclpp.Transport.SharedMemory), "must not be null"),
        (lambda comm: mscclpp.HostBuffer(8).to_dlpack("float32", (3,)), "needs 3 elements, the buffer has 2"),
        (lambda comm: mscclpp.HostBuffer(8).to_dlpack("float32", (2, 2), (1, 1 << 62)), "exceeds the buffer"),
        (lambda comm: mscclpp.HostBuffer(8).to_dlpack("int8", (1 << 40,) * 3), "the shape is too large"),
        (lambda comm: mscclpp.HostBuffer(8).to_dlpack("int8", (-1, -8)), "not negative"),
        (lambda comm: mscclpp.HostBuffer(8).to_dlpack("complex64"), "unknown data_type 'complex64'"),
        (lambda comm: mscclpp.run(0, print), "at least one rank"),
        (lambda comm: mscclpp.init(), "no launcher started this process"),
        (lambda comm: mscclpp.utils.torch_dtype_to_mscclpp_dtype(Unknown.dtype), "complex64 is not supported"),
    ],
)
def test_wrong_calls(comm, call, sentence, monkeypatch):
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(mscclpp.InvalidUsage, match=sentence) as error:
        call(comm)
    assert error.value.code == mscclpp.ErrorCode.InvalidUsage
    assert isinstance(error.value, (mscclpp.Error, ValueError))


def test_parts_must_divide():
    from mscclpp.array_collectives import ArrayCollectives

    group = ArrayCollectives()
    group.nranks, group.my_rank = 4, 0
    with pytest.raises(mscclpp.InvalidUsage, match="not divisible by the 4 ranks"):
        group.reduce_scatter(np.zeros((6, 2)))
    group.my_rank = 1
    with pytest.raises(mscclpp.InvalidUsage, match="passes out="):
        group.scatter(None)


def test_closed_group():
    group = single_rank()
    group.close()
    group.close()
    with pytest.raises(mscclpp.InvalidUsage, match="closed"):
        group.all_reduce(np.zeros(4))


def test_timeout():
    bootstrap = mscclpp.TcpBootstrap.create(0, 2)
    with pytest.raises(mscclpp.Timeout, match="1") as error:
        bootstrap.initialize(mscclpp.TcpBootstrap.create_unique_id(), 1)
    assert isinstance(error.value, TimeoutError) and error.value.code == mscclpp.ErrorCode.Timeout


@pytest.mark.skipif(mscclpp.has_cuda, reason="this build has CUDA")
def test_no_cuda():
    with pytest.raises(mscclpp.InvalidUsage, match="this build of mscclpp has no CUDA"):
        mscclpp.RawGpuBuffer(16)
    with pytest.raises(mscclpp.InvalidUsage, match="no CUDA"):
        mscclpp.GpuBuffer((2, 2))
    with pytest.raises(mscclpp.InvalidUsage, match="device_type=mscclpp.DeviceType.CPU"):
        mscclpp.AlgorithmCollectionBuilder().build_default_algorithms(scratch_buffer=0, scratch_buffer_size=0, rank=0)
    assert not mscclpp.is_nvls_supported() and not mscclpp.is_bulk_supported()


def test_pickling():
    unique_id = mscclpp.TcpBootstrap.create_unique_id()
    assert pickle.loads(pickle.dumps(unique_id)) == unique_id
    assert mscclpp.UniqueId(bytes(unique_id)) == unique_id
    assert pickle.loads(pickle.dumps(mscclpp.DataType.bfloat16)) is mscclpp.DataType.bfloat16
    error = pickle.loads(pickle.dumps(mscclpp.SysError("no memory", 12)))
    assert type(error) is mscclpp.SysError and str(error) == "no memory" and error.code == 12
    error = pickle.loads(pickle.dumps(mscclpp.RankFailed("gone", rank=3)))
    assert error.rank == 3 and error.code == mscclpp.ErrorCode.RemoteError


class OnGpu:
    """Memory of a GPU as __cuda_array_interface__ describes it, without a GPU."""

    def __init__(self, **changes):
        interface = {"shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 3}
        self.__cuda_array_interface__ = interface | changes


def test_cuda_array_interface(comm):
    from mscclpp.arrays import stream_of, view

    array = view(OnGpu())
    assert (array.address, array.size, array.dtype) == (4096, 6, mscclpp.DataType.float32)
    assert array.device_type == mscclpp.DeviceType.GPU and view(OnGpu(strides=(12, 4))).shape == (2, 3)
    assert stream_of(array, None) == 0 and stream_of(array, 7) == 7
    for call, sentence in (
        (lambda: view(OnGpu(strides=(24, 4))), "not contiguous"),
        (lambda: view(OnGpu(typestr="<c8")), "not supported"),
        (lambda: stream_of(array, "stream"), "pass a stream"),
        (lambda: comm.all_reduce(OnGpu()), "pass out="),
        (lambda: comm.all_reduce(OnGpu(), out=OnGpu(data=(4096, True))), "read-only"),
        (lambda: comm.all_reduce(OnGpu(), out=np.zeros((2, 3), np.float32)), "out is on the CPU"),
    ):
        with pytest.raises(mscclpp.InvalidUsage, match=sentence):
            call()


def test_rank_without_size(monkeypatch):
    for name in ("MSCCLPP_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(mscclpp.InvalidUsage, match="RANK=0 is set, but WORLD_SIZE, the number of ranks, is missing"):
        mscclpp.init()


def test_bytes_that_are_not_utf8(tmp_path):
    file = tmp_path / "wrong.plan"
    file.write_bytes(b'plan "a" allreduce ranks 2 \xff')
    with pytest.raises(mscclpp.InvalidUsage, match='line 1: unexpected "\ufffd"'):
        mscclpp.ExecutionPlan(str(file), 0)
