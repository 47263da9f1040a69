"""The programs of MSCCL++'s guide for PyTorch, on CPU ranks: the examples, and its C++ source as it is written."""

import os
import pathlib
import runpy
import socket
import subprocess
import sys

import mscclpp
import mscclpp.utils as mscclpp_utils
import pytest
from rank_threads import run_threads

torch = pytest.importorskip("torch")

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "python" / "torch-integration"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def environment(tmp_path):
    """The variables that the guide asks for."""
    return {
        **os.environ,
        "MSCCLPP_CACHE_DIR": str(tmp_path),
        "MSCCLPP_MASTER_ADDR": "127.0.0.1",
        "MSCCLPP_MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
    }


@pytest.mark.parametrize("program", ["customized_comm_with_default_algo.py", "customized_allgather.py"])
def test_examples(program, environment):
    if program == "customized_allgather.py":
        pytest.importorskip("pybind11")
    result = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=3",
         EXAMPLES / program, "--device", "cpu"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout
    assert "3 ranks: right" in result.stdout, result.stdout


def test_example_with_a_plan():
    """customized_comm_with_dsl.py, by ranks that are threads of this process."""
    example = runpy.run_path(str(EXAMPLES / "customized_comm_with_dsl.py"))

    def follow(bootstrap):
        with mscclpp.CommGroup(bootstrap=bootstrap) as group:
            algorithm = example["setup_algorithm"](group.my_rank, group.nranks, group.nranks_per_node)
            example["check"](example["CustomizedComm"](group, algorithm, "cpu"), "cpu")
        return True

    assert all(run_threads(3, follow, timeout=60))


# Functions with the arguments that the guide gives them; the kernel copies, on one rank.
GUIDE = """
#include <mscclpp/algorithm.hpp>
#include <mscclpp/core.hpp>
#include <pybind11/pybind11.h>

#include <cstring>

namespace py = pybind11;

#if defined(__CUDACC__)
__global__ void allgather(mscclpp::DeviceHandle<mscclpp::PortChannel>* channels, int rank, size_t nbytesPerGPU) {}
#endif

class AllgatherAlgoBuilder : public mscclpp::AlgorithmBuilder {
 public:
  std::shared_ptr<mscclpp::Algorithm> build() override {
    auto self = std::make_shared<AllgatherAlgoBuilder>();
    return std::make_shared<mscclpp::NativeAlgorithm>(
        "allgather", "allgather",
        [self](std::shared_ptr<mscclpp::Communicator> comm) { self->initialize(comm); },
        [self](const std::shared_ptr<void> ctx, const void* input, void* output, size_t inputSize, size_t outputSize,
               mscclpp::DataType dtype, mscclpp::ReduceOp op, cudaStream_t stream, int nBlocks, int nThreadsPerBlock,
               const std::unordered_map<std::string, uintptr_t>& extras) {
          return self->kernelFunc(ctx, input, output, inputSize, dtype, stream);
        },
        [self](std::shared_ptr<mscclpp::Communicator> comm, const void* input, void* output, size_t inputSize,
               size_t outputSize, mscclpp::DataType dtype) {
          return self->initContext(comm, input, output, inputSize, dtype);
        },
        [self](const void* input, void* output, size_t inputSize, size_t outputSize, mscclpp::DataType dtype) {
          return self->generateContextKey(input, output, inputSize, outputSize, dtype);
        });
  }

 private:
  struct Context {
    size_t bytes;
  };
  void initialize(std::shared_ptr<mscclpp::Communicator> comm) { ranks_ = comm->bootstrap()->getNranks(); }
  mscclpp::CommResult kernelFunc(const std::shared_ptr<void> ctx, const void* input, void* output, size_t inputSize,
                                 mscclpp::DataType dtype, cudaStream_t stream) {
    const bool isRight = std::static_pointer_cast<Context>(ctx)->bytes == inputSize && ranks_ == 1 &&
                         dtype == mscclpp::DataType::FLOAT16 && stream == nullptr;
    if (!isRight) return mscclpp::CommResult::CommInternalError;
    std::memcpy(output, input, inputSize);
    return mscclpp::CommResult::CommSuccess;
  }
  std::shared_ptr<void> initContext(std::shared_ptr<mscclpp::Communicator> comm, const void* input, void* output,
                                    size_t inputSize, mscclpp::DataType dtype) {
    return std::make_shared<Context>(Context{inputSize});
  }
  mscclpp::AlgorithmCtxKey generateContextKey(const void* input, void* output, size_t inputSize, size_t outputSize,
                                              mscclpp::DataType dtype) {
    return {(void*)input, output, inputSize, outputSize, 0};
  }

  int ranks_ = 0;
};

PyObject* getCapsule(std::shared_ptr<mscclpp::Algorithm> algo) {
  auto* ptr = new std::shared_ptr<mscclpp::Algorithm>(algo);
  return PyCapsule_New(ptr, mscclpp::ALGORITHM_NATIVE_CAPSULE_NAME, [](PyObject* capsule) {
    delete static_cast<std::shared_ptr<mscclpp::Algorithm>*>(
        PyCapsule_GetPointer(capsule, mscclpp::ALGORITHM_NATIVE_CAPSULE_NAME));
  });
}

PYBIND11_MODULE(mscclpp_native, m) {
  m.def("create_allgather_algorithm", []() {
    auto builder = std::make_shared<AllgatherAlgoBuilder>();
    auto algo = builder->build();
    return py::reinterpret_steal<py::capsule>(getCapsule(algo));
  });
}
"""


def follow_approach_3(comm, address, file):
    # As the guide forms it: interface, address and port, without netifaces.
    comm = mscclpp.CommGroup(interfaceIpPortTrio=f"lo:{address}", rank=comm.my_rank, size=comm.nranks)
    mscclpp_native = mscclpp.compile_native(name="mscclpp_native", file=file)
    capsule = mscclpp_native.create_allgather_algorithm()
    algorithm = mscclpp.Algorithm.create_from_native_capsule(capsule)
    del capsule  # the algorithm stays
    assert (algorithm.name, algorithm.collective) == ("allgather", "allgather")
    for count in (1000, 7):
        tensor = torch.arange(count).to(torch.float16)
        out_tensor = torch.zeros_like(tensor)
        stream = None
        result = algorithm.execute(
            comm.communicator,
            tensor.data_ptr(),
            out_tensor.data_ptr(),
            tensor.nbytes,
            out_tensor.nbytes,
            mscclpp_utils.torch_dtype_to_mscclpp_dtype(tensor.dtype),
            stream=stream.cuda_stream if stream else 0,
        )
        assert result == mscclpp.CommResult.CommSuccess and torch.equal(tensor, out_tensor)
    return True


def test_source_of_the_guide(tmp_path, monkeypatch):
    pytest.importorskip("pybind11")
    (tmp_path / "customized_allgather.cu").write_text(GUIDE)
    monkeypatch.setenv("MSCCLPP_CACHE_DIR", str(tmp_path))
    address = f"127.0.0.1:{free_port()}"
    arguments = (address, str(tmp_path / "customized_allgather.cu"))
    assert mscclpp.run(1, follow_approach_3, *arguments, timeout=300) == [True]


def test_names_of_the_guide():
    signature = mscclpp.Algorithm.execute.__doc__
    for name in ("comm", "input_buffer", "output_buffer", "input_size", "output_size", "dtype", "op", "stream",
                 "executor", "nblocks", "nthreads_per_block", "extras"):  # fmt: skip
        assert f"{name}: " in signature, name
    algorithms = mscclpp.AlgorithmCollectionBuilder().build_default_algorithms(device_type=mscclpp.DeviceType.CPU)
    for name in ("default_allreduce_nvls_packet", "default_allreduce_nvls_with_copy"):
        assert algorithms["allreduce"][name].constraint.world_size == 0  # runs on any number of ranks
    buffer = mscclpp.HostBuffer(1 << 20)
    scratch = torch.utils.dlpack.from_dlpack(buffer.to_dlpack(data_type=str(torch.float16)))
    assert scratch.dtype == torch.float16 and scratch.nbytes == 1 << 20 and scratch.data_ptr() == buffer.data()
    if not mscclpp.has_cuda:
        with pytest.raises(mscclpp.InvalidUsage, match="has no CUDA"):
            mscclpp.RawGpuBuffer(1 << 27)
