"""The names of the package: those that users of MSCCL++ know, those of this library, and their types."""

import importlib.util
import pathlib
import subprocess
import sys

import mscclpp
import pytest

# Of MSCCL++'s package, by area, as far as they exist here.
NAMES = {
    "mscclpp": """Bootstrap TcpBootstrap UniqueId
        Communicator Connection Context Device DeviceType Endpoint EndpointConfig EndpointConfigIb IbMode
        RegisteredMemory Semaphore SemaphoreStub Transport TransportFlags AllIBTransports AllTransports NoTransports
        DataType ReduceOp GpuBuffer GpuBufferGranularity RawGpuBuffer
        Algorithm AlgorithmBuilder AlgorithmCollection AlgorithmCollectionBuilder AlgorithmType CollectiveBufferMode
        CollectiveRequest CommResult CommGroup
        AlgoSpec compile ExecutionPlan Executor PacketType language
        Env env ErrorCode ext get_include get_lib is_bulk_supported is_nvls_supported numa utils version""",
    "mscclpp.ext": "AlgorithmCollectionBuilder",
    "mscclpp.numa": "get_device_numa_node numa_bind",
    "mscclpp.utils": "torch_dtype_to_mscclpp_dtype",
    "mscclpp.CommGroup": """barrier bootstrap communicator my_rank nranks nranks_per_node
        all_reduce all_gather reduce_scatter all_to_all broadcast reduce gather scatter send recv send_recv
        all_gather_v reduce_scatter_v all_to_all_v group empty free tune close collectives
        gemm_all_reduce gemm_reduce_scatter all_gather_gemm fused_gemms""",
    "mscclpp.TcpBootstrap": """create create_unique_id get_unique_id initialize get_rank get_n_ranks
        get_n_ranks_per_node get_n_ranks_per_ipc_domain
        send recv all_gather barrier group_barrier abort failure set_timeout""",
    "mscclpp.Communicator": """bootstrap context register_memory send_memory recv_memory connect build_semaphore
        remote_rank_of tag_of abort set_wait_timeout""",
    "mscclpp.Connection": """write update_and_sync flush transport remote_transport context local_device
        get_max_write_queue_size""",
    "mscclpp.Context": "create register_memory create_endpoint connect",
    "mscclpp.Endpoint": "config transport device max_write_queue_size serialize deserialize",
    "mscclpp.RegisteredMemory": "data size transports serialize deserialize",
    "mscclpp.SemaphoreStub": "memory serialize deserialize",
    "mscclpp.Semaphore": "connection local_memory remote_memory",
    "mscclpp.TransportFlags": "has none any all count",
    "mscclpp.RawGpuBuffer": "nelems bytes data device_id to_dlpack",
    "mscclpp.HostBuffer": "data bytes to_dlpack",
    "mscclpp.Algorithm": """Constraint name collective message_range tags buffer_mode constraint type execute reset
        set_message_size_range create_from_native_handle create_from_native_capsule""",
    "mscclpp.AlgorithmCollection": """select_algorithm register_algorithm get_algorithms_by_collective
        get_all_algorithms extend set_selectors""",
    "mscclpp.AlgorithmCollectionBuilder": """reset add_algorithm_builder set_algorithm_selector
        set_fallback_algorithm_selector build build_default_algorithms""",
    "mscclpp.Executor": "execute check reset",
    "mscclpp.ExecutionPlan": "name collective rank min_message_size max_message_size is_in_place",
    "mscclpp.Plan": """from_json from_xml from_text to_json to_xml to_text to_svg simulate verified name ranks in_place
        message_range blocks""",
    "mscclpp.plans": "compile make_algorithm library make",
    "mscclpp.Collectives": """run exchange check algorithms supports selected_algorithm register_buffer is_concurrent
        memory_bytes make_trace record""",
    "mscclpp.FusedGemms": "run form check",
}  # fmt: skip
# Modules whose inner functions have no types.
UNTYPED = {"c10d", "kernels", "moe", "native", "native_cache", "native_toolchain"}
INSTANCE_ATTRIBUTES = {"bootstrap", "communicator", "my_rank", "nranks", "nranks_per_node"}


@pytest.mark.parametrize("owner", NAMES)
def test_names(owner):
    found = mscclpp
    for part in owner.split(".")[1:]:
        found = getattr(found, part)
    missing = [name for name in NAMES[owner].split() if not hasattr(found, name) and name not in INSTANCE_ATTRIBUTES]
    assert missing == []


def test_all_is_complete():
    """So that `from mscclpp import *` and type checkers see every name."""
    modules = {path.stem for path in pathlib.Path(mscclpp.__file__).parent.glob("*.py")}
    modules -= {"ext", "numa", "plans", "utils"}
    public = {name for name in dir(mscclpp) if not name.startswith("_")} - modules - {"atexit", "pathlib", "torch"}
    assert set(mscclpp.__all__) == public | {"__version__"}
    assert len(set(mscclpp.__all__)) == len(mscclpp.__all__)


@pytest.fixture(scope="session")
def mypy_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


def run_mypy(cache, *files):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    package = pathlib.Path(mscclpp.__file__).parent
    if not (package / "_mscclpp.pyi").exists():
        pytest.skip("built without the stub")
    # The generated stub has a `list` without the type of its elements.
    options = ["--strict", "--allow-any-generics", "--follow-imports=silent", "--cache-dir", str(cache)]
    command = [sys.executable, "-m", "mypy", *options, *map(str, files)]
    result = subprocess.run(command, env={"MYPYPATH": str(package.parent)}, capture_output=True, text=True)
    return result.stdout


def test_the_package_is_typed(mypy_cache):
    package = pathlib.Path(mscclpp.__file__).parent
    files = [path for path in package.glob("*.py") if path.stem not in UNTYPED]
    files += (package / "language").rglob("*.py")
    text = run_mypy(mypy_cache, *files)
    assert "Success" in text, text


def test_typed_program(mypy_cache, tmp_path):
    program = pathlib.Path(__file__).parent / "typed_program.py"
    text = run_mypy(mypy_cache, program)
    assert "Success" in text, text
    wrong = tmp_path / "wrong.py"
    wrong.write_text(program.read_text().replace("comm.my_rank + 1", "comm.rank + 1").replace('"float32")', "3, 4, 5)"))
    text = run_mypy(mypy_cache, wrong)
    assert '"CommGroup" has no attribute "rank"' in text and "Too many arguments" in text
