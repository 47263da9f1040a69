"""MSCCL++ in Python: collectives between the ranks of a job, on GPU tensors and on CPU ranks.

`comm = mscclpp.init()` under torchrun, mpirun or srun, or `mscclpp.run(ranks, function)`; then
`comm.all_reduce(tensor)` and so on. Below that are the names of MSCCL++'s own package. docs/python.md.
"""

import atexit
import pathlib

from . import _mscclpp, ext, language, numa, plans, utils
from ._mscclpp import (
    Algorithm,
    AlgorithmBuilder,
    AlgorithmCollection,
    AlgorithmCollectionBuilder,
    AlgorithmType,
    AllIBTransports,
    AllTransports,
    BaseMemoryChannel,
    BasePortChannel,
    Bootstrap,
    CollectiveBufferMode,
    CollectiveCall,
    CollectiveRequest,
    Collectives,
    CollectiveType,
    CommResult,
    Communicator,
    Connection,
    Context,
    DataType,
    Device,
    DeviceType,
    Endpoint,
    EndpointConfig,
    EndpointConfigIb,
    Env,
    ErrorCode,
    ExecutionPlan,
    Executor,
    Fifo,
    FusedGemms,
    GemmCollective,
    GemmForm,
    GpuBufferGranularity,
    Host2DeviceSemaphore,
    Host2HostSemaphore,
    HostBuffer,
    IbMode,
    MemoryChannel,
    MemoryDevice2DeviceSemaphore,
    NoTransports,
    NvlsConnection,
    PacketType,
    Plan,
    PlanCode,
    PortChannel,
    ProxyService,
    ProxyTrigger,
    RawGpuBuffer,
    ReduceOp,
    RegisteredMemory,
    Semaphore,
    SemaphoreStub,
    SwitchChannel,
    TcpBootstrap,
    Transport,
    TransportFlags,
    TriggerData,
    TriggerFlag,
    TriggerSync,
    UniqueId,
    connect_nvls_collective,
    env,
    has_cuda,
    is_bulk_supported,
    is_nvls_supported,
)
from ._mscclpp import __version__ as __version__  # type: ignore[attr-defined]  # not in the generated stub
from .comm_group import CommGroup
from .dtypes import Reduction, pre_mul_sum
from .errors import Aborted, CudaError, CuError, Error, IbError, InvalidUsage, RemoteError, SysError, Timeout
from .gpu_buffer import GpuBuffer
from .language import AlgoSpec
from .launch import RankFailed, init, run
from .native import compile_native
from .plans import compile, make_algorithm
from .tracing import trace

version = {"version": __version__}


def get_include() -> str:
    """The folder of the library's headers, for kernels that are compiled against them."""
    return str(pathlib.Path(__file__).parent / "include")


def get_lib() -> str:
    """The folder of the compiled library, which is the extension module."""
    return str(pathlib.Path(_mscclpp.__file__).parent)


# Selectors and builders are Python objects that a C++ object of the process keeps: they end before the interpreter.
atexit.register(AlgorithmCollectionBuilder.reset)

__all__ = [
    "__version__",
    "Aborted",
    "Algorithm",
    "AlgorithmBuilder",
    "AlgorithmCollection",
    "AlgorithmCollectionBuilder",
    "AlgorithmType",
    "AlgoSpec",
    "AllIBTransports",
    "AllTransports",
    "BaseMemoryChannel",
    "BasePortChannel",
    "Bootstrap",
    "CollectiveBufferMode",
    "CollectiveCall",
    "CollectiveRequest",
    "Collectives",
    "CollectiveType",
    "CommGroup",
    "CommResult",
    "Communicator",
    "compile",
    "compile_native",
    "connect_nvls_collective",
    "Connection",
    "Context",
    "CudaError",
    "CuError",
    "DataType",
    "Device",
    "DeviceType",
    "Endpoint",
    "EndpointConfig",
    "EndpointConfigIb",
    "env",
    "Env",
    "Error",
    "ErrorCode",
    "ExecutionPlan",
    "Executor",
    "ext",
    "Fifo",
    "FusedGemms",
    "GemmCollective",
    "GemmForm",
    "get_include",
    "get_lib",
    "GpuBuffer",
    "GpuBufferGranularity",
    "has_cuda",
    "Host2DeviceSemaphore",
    "Host2HostSemaphore",
    "HostBuffer",
    "IbError",
    "IbMode",
    "init",
    "InvalidUsage",
    "is_bulk_supported",
    "is_nvls_supported",
    "language",
    "make_algorithm",
    "MemoryChannel",
    "MemoryDevice2DeviceSemaphore",
    "NoTransports",
    "numa",
    "NvlsConnection",
    "PacketType",
    "Plan",
    "PlanCode",
    "plans",
    "PortChannel",
    "pre_mul_sum",
    "ProxyService",
    "ProxyTrigger",
    "RankFailed",
    "RawGpuBuffer",
    "ReduceOp",
    "Reduction",
    "RegisteredMemory",
    "RemoteError",
    "run",
    "Semaphore",
    "SemaphoreStub",
    "SwitchChannel",
    "SysError",
    "TcpBootstrap",
    "Timeout",
    "trace",
    "Transport",
    "TransportFlags",
    "TriggerData",
    "TriggerFlag",
    "TriggerSync",
    "UniqueId",
    "utils",
    "version",
]
