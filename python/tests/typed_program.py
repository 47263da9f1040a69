"""A program with types, which mypy checks against the package's: test_typing.py."""

from __future__ import annotations

import pathlib

import mscclpp
import numpy
import numpy.typing


def work(comm: mscclpp.CommGroup, scale: float) -> float:
    data: numpy.typing.NDArray[numpy.float32] = numpy.full(8, comm.my_rank, numpy.float32)
    total = comm.all_reduce(data, op="sum")
    comm.all_reduce(data, op=mscclpp.pre_mul_sum(scale), out=data)
    comm.all_gather_v(data, [8] * comm.nranks)
    with comm.group():
        comm.send(data, (comm.my_rank + 1) % comm.nranks)
        comm.recv(data.copy(), (comm.my_rank - 1) % comm.nranks)
    choices = comm.tune(pathlib.Path("tuning.json"), "all_reduce", [1024])
    largest, algorithm = choices["all_reduce"][0]
    limit: int | None = largest
    print(limit, algorithm.upper())
    with mscclpp.trace("trace.json", comm) as running, running.span("step", 3):
        comm.barrier()
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
