"""A program with types, which mypy checks against the package's: test_names.py."""

from __future__ import annotations

import pathlib

import mscclpp
from mscclpp.language import AllGather, Chunk, CollectiveProgram, Rank, msccl
from mscclpp.utils import pack


def work(comm: mscclpp.CommGroup, scale: float) -> float:
    data = comm.empty(8, "float32")
    total = comm.all_reduce(data, op="sum")
    comm.all_reduce(data, op=mscclpp.pre_mul_sum(scale), out=data)
    comm.all_gather_v(data, [8] * comm.nranks)
    with comm.group():
        comm.send(data, (comm.my_rank + 1) % comm.nranks)
        comm.recv(comm.empty(8), (comm.my_rank - 1) % comm.nranks)
    choices = comm.tune(pathlib.Path("tuning.json"), "all_reduce", [1024])
    largest, algorithm = choices["all_reduce"][0]
    limit: int | None = largest
    print(limit, algorithm.upper())
    with mscclpp.trace("trace.json", comm) as running, running.span("step", 3):
        comm.barrier()
    comm.gemm_all_reduce(comm.empty((2, 8), "bfloat16"), comm.empty((4, 8), "bfloat16"), out=None)
    array = comm.empty((2, 3), "float32")
    comm.free(array)
    return float(total[0])


def by_address(bootstrap: mscclpp.TcpBootstrap) -> int:
    communicator = mscclpp.Communicator(bootstrap)
    collectives = mscclpp.Collectives(communicator, mscclpp.DeviceType.CPU)
    buffer = mscclpp.HostBuffer(64)
    call = mscclpp.CollectiveCall(mscclpp.CollectiveType.all_reduce, input=buffer.data(), output=buffer.data(),
                                  count=16, dtype=mscclpp.DataType.float32)  # fmt: skip
    collectives.run(call)
    names: list[str] = collectives.algorithms()
    return len(names) + bootstrap.get_rank()


def through_channels(comm: mscclpp.CommGroup, peer: int) -> bytes:
    buffer = mscclpp.HostBuffer(64)
    connections: dict[int, mscclpp.Connection] = comm.make_connection([peer], mscclpp.Transport.SharedMemory)
    with mscclpp.ProxyService(device_type=mscclpp.DeviceType.CPU) as service:
        port = comm.make_port_channels(service, buffer, connections)[peer].device_handle()
        port.put_with_signal(0, 32, 32)
        port.wait()
        memory: mscclpp.MemoryChannel = comm.make_memory_channels(buffer, connections)[peer]
        arrived: bool = memory.device_handle().poll()
    fifo = mscclpp.Fifo(8, mscclpp.DeviceType.CPU)
    position: int = fifo.device_handle().push(mscclpp.ProxyTrigger(1, 2))
    trigger = fifo.poll()
    words = [] if trigger is None else [trigger.fst, trigger.snd, position, int(arrived)]
    return port.raw + pack(*words, memory)


def main() -> None:
    try:
        results: list[float] = mscclpp.run(2, work, 0.5, timeout=60)
        print(sum(results), mscclpp.version["version"], mscclpp.get_include(), mscclpp.env().wait_timeout)
    except mscclpp.RankFailed as error:
        print(error.rank, error.code)
    except mscclpp.Error as error:
        print(error.code)


if __name__ == "__main__":
    main()


def as_a_plan(comm: mscclpp.CommGroup, buffer: mscclpp.HostBuffer) -> mscclpp.CommResult:
    def copy(spec: mscclpp.AlgoSpec) -> CollectiveProgram:
        with CollectiveProgram.from_spec(spec) as program:
            rank = Rank(0)
            chunk: Chunk = rank.get_input_buffer()[0]
            rank.copy(rank.get_output_buffer()[0], chunk, tb=0)
        return program

    spec = mscclpp.AlgoSpec("copy", AllGather(1), nranks_per_node=1, world_size=1, tags={"own": 1})
    algorithm: mscclpp.Algorithm = mscclpp.compile(algo=copy, algo_spec=spec, rank=comm.my_rank)
    executor = mscclpp.Executor(comm.communicator, device_type=mscclpp.DeviceType.CPU)
    with msccl.MSCCLProgram("copy", None, msccl.AllGather(1), 1) as program:
        reference = msccl.chunk(0, msccl.Buffer.input, 0)
        assert reference is not None
        reference.copy(0, msccl.Buffer.output, 0, ch=1).split(1)[0].group(reference)
    print(program.compile().verified().to_text())
    plan: mscclpp.Plan = mscclpp.plans.make(mscclpp.plans.library()[0].name, 8, instances=2)
    predicted: float = plan.simulate(1 << 20, {"memory": {"us": 0.8, "GBps": 400}}).seconds
    print(f"{predicted * 1e6} us", plan.to_svg())
    return algorithm.execute(comm.communicator, buffer.data(), buffer.data() + 32, 32, 32, mscclpp.DataType.float32,
                             executor=executor)  # fmt: skip
