"""Algorithms as objects, in MSCCL++'s interface, on CPU ranks."""

import mscclpp
import numpy as np
import pytest
from mscclpp.utils import torch_dtype_to_mscclpp_dtype
from rank_threads import single_rank


def execute(algorithm, comm, data):
    """As MSCCL++'s guide for PyTorch writes it."""
    return algorithm.execute(
        comm=comm.communicator,
        input_buffer=data.ctypes.data,
        output_buffer=data.ctypes.data,
        input_size=data.nbytes,
        output_size=data.nbytes,
        dtype=torch_dtype_to_mscclpp_dtype(data.dtype),
        op=mscclpp.ReduceOp.SUM,
        stream=0,
    )


def make_request(comm, data):
    request = mscclpp.CollectiveRequest()
    request.world_size, request.rank, request.collective = comm.nranks, comm.my_rank, "allreduce"
    request.input_buffer = request.output_buffer = data.ctypes.data
    request.message_size, request.dtype, request.op = data.nbytes, mscclpp.DataType.float32, mscclpp.ReduceOp.SUM
    return request


def check_algorithms(comm):
    builder = mscclpp.AlgorithmCollectionBuilder()
    algorithms = builder.build_default_algorithms(
        scratch_buffer=0, scratch_buffer_size=0, rank=comm.my_rank, device_type=mscclpp.DeviceType.CPU
    )
    assert len(algorithms) == len(list(algorithms)) > 9
    by_name = [a for a in algorithms if a.collective == "allreduce" and a.name == "default_allreduce_packet"][0]
    assert by_name.type == mscclpp.AlgorithmType.Native and by_name.message_range[1] > 0
    data = np.full(1000, comm.my_rank + 1, np.float32)
    assert execute(by_name, comm, data) == mscclpp.CommResult.CommSuccess
    assert (data == 3).all()

    request = make_request(comm, data)
    assert request.buffer_mode() == mscclpp.CollectiveBufferMode.InPlace
    assert algorithms.select_algorithm(request).name == "mscclpp_allreduce"
    algorithms.set_selectors(lambda known, call: known["allreduce"]["default_allreduce_packet"])
    assert algorithms.select_algorithm(request).name == "default_allreduce_packet"
    algorithms.set_selectors(lambda known, call: None)
    assert algorithms.select_algorithm(request) is None
    by_name.reset()
    return True


def test_default_algorithms():
    assert mscclpp.run(2, check_algorithms, timeout=60) == [True, True]


class Rebuilder(mscclpp.AlgorithmBuilder):
    def __init__(self, algorithm):
        super().__init__()
        self.algorithm = algorithm

    def build(self):
        return self.algorithm


def test_builders_and_selectors():
    builder = mscclpp.ext.AlgorithmCollectionBuilder()
    defaults = builder.build_default_algorithms(device_type=mscclpp.DeviceType.CPU)
    own = defaults["allgather"]["mscclpp_allgather"]
    builder.add_algorithm_builder(Rebuilder(own))
    builder.set_algorithm_selector(lambda algorithms, request: algorithms[request.collective]["mscclpp_allgather"])
    collection = builder.build()
    request = mscclpp.CollectiveRequest()
    request.collective = "allgather"
    assert [a.name for a in collection] == ["mscclpp_allgather"]
    assert collection.select_algorithm(request).name == "mscclpp_allgather"

    def failing(algorithms, request):
        raise KeyError("no such algorithm")

    builder.set_algorithm_selector(failing)
    with pytest.raises(KeyError, match="no such algorithm"):
        builder.build().select_algorithm(request)
    mscclpp.AlgorithmCollectionBuilder.reset()
    assert len(mscclpp.AlgorithmCollectionBuilder().build()) == 0


def test_wrong_uses():
    with pytest.raises(mscclpp.InvalidUsage, match="null"):
        mscclpp.Algorithm.create_from_native_handle(0)
    with pytest.raises(TypeError):
        mscclpp.Algorithm.create_from_native_capsule("no capsule")
    algorithms = mscclpp.AlgorithmCollectionBuilder().build_default_algorithms(device_type=mscclpp.DeviceType.CPU)
    with single_rank() as comm:
        arguments = (comm.communicator, 0, 0, 8, 8, mscclpp.DataType.float32)
        algorithm = algorithms["allreduce"]["mscclpp_allreduce"]
        with pytest.raises(TypeError):
            algorithm.execute(*arguments, executor=object())
        assert algorithm.execute(*arguments) == mscclpp.CommResult.CommInvalidArgument
