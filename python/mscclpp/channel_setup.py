"""How the ranks of a group set up connections, semaphores, memories and channels, in MSCCL++'s interface."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ._mscclpp import (
    BasePortChannel,
    Communicator,
    Connection,
    Device,
    DeviceType,
    EndpointConfig,
    HostBuffer,
    MemoryChannel,
    NoTransports,
    PortChannel,
    ProxyService,
    RawGpuBuffer,
    RegisteredMemory,
    Semaphore,
    Transport,
    TransportFlags,
)
from .arrays import view
from .errors import InvalidUsage

Endpoints = Transport | EndpointConfig
Connections = dict[int, Connection]


class ChannelSetup:
    """The set-up of channels of a CommGroup. Results are dicts by rank.

    The two ranks of each connection make the same calls in the same order, and each waits for the other. A `tensor` is
    an array as collectives take it, or a HostBuffer or RawGpuBuffer. What is registered stays allocated, and at its
    address, for as long as a channel uses it: the caller keeps it. On CPU ranks over Transport.SharedMemory it lies in
    memory that peers can map: an array of CommGroup.empty(), or a HostBuffer.
    """

    my_rank: int
    communicator: Communicator

    def _require_open(self) -> None:
        raise NotImplementedError

    def my_ib_device(self, local_rank: int) -> Transport:
        """The transport of the verbs device with the number `local_rank`: Transport.IB0 to IB7."""
        if local_rank not in range(8):
            raise InvalidUsage(f"local_rank is {local_rank!r}: the transports of verbs devices are IB0 to IB7")
        return getattr(Transport, f"IB{local_rank}")

    def make_connection(self, all_ranks: Iterable[int], endpoints: Endpoints | dict[int, Endpoints]) -> Connections:
        """Connects to each of the ranks, which do the same. Returns their Connections.

        endpoints: a Transport or an EndpointConfig, or a dict of these by rank. Transport.SharedMemory stands for CPU
        ranks, any other for the current GPU; an EndpointConfig chooses the device.
        """
        self._require_open()
        configs = {rank: _config(endpoints, rank) for rank in all_ranks}
        futures = {rank: self.communicator.connect(config, rank) for rank, config in configs.items()}
        return {rank: future.get() for rank, future in futures.items()}

    def make_semaphores(self, connections: Connections) -> dict[int, Semaphore]:
        """A Semaphore for each of the connections."""
        self._require_open()
        futures = {rank: self.communicator.build_semaphore(each, rank) for rank, each in connections.items()}
        return {rank: future.get() for rank, future in futures.items()}

    def register_local_memory(self, tensor: Any, connections: Connections) -> RegisteredMemory:
        """The RegisteredMemory of a tensor, for the transports of the connections. Raises InvalidUsage for memory that
        they cannot access."""
        self._require_open()
        transports = NoTransports
        for connection in connections.values():
            transports = transports | TransportFlags(connection.transport())
        return self.communicator.register_memory(*_address_and_bytes(tensor), transports)

    def register_memory_with_connections(self, memory: RegisteredMemory,
                                         connections: Connections) -> dict[int, RegisteredMemory]:  # fmt: skip
        """Exchanges a RegisteredMemory of each rank. Returns those of all ranks, this one's included."""
        self._require_open()
        for rank in connections:
            self.communicator.send_memory(memory, rank)
        futures = {rank: self.communicator.recv_memory(rank) for rank in connections}
        return {self.my_rank: memory} | {rank: future.get() for rank, future in futures.items()}

    def register_tensor_with_connections(self, tensor: Any, connections: Connections) -> dict[int, RegisteredMemory]:
        """The same for a tensor of each rank."""
        return self.register_memory_with_connections(self.register_local_memory(tensor, connections), connections)

    def make_memory_channels(self, tensor: Any, connections: Connections) -> dict[int, MemoryChannel]:
        """A MemoryChannel for each of the connections, from this rank's tensor to the peer's."""
        memory = self.register_local_memory(tensor, connections)
        return self._memory_channels(memory, memory, connections)

    def make_memory_channels_with_scratch(self, tensor: Any, registeredScratchBuffer: RegisteredMemory,
                                          connections: Connections) -> dict[int, MemoryChannel]:  # fmt: skip
        """The same from this rank's tensor to the peer's scratch, a RegisteredMemory of each rank. Packets that the
        peer puts arrive in this rank's scratch."""
        memory = self.register_local_memory(tensor, {})  # this rank alone accesses it
        return self._memory_channels(memory, registeredScratchBuffer, connections, registeredScratchBuffer.data())

    def make_port_channels(self, proxy_service: ProxyService, tensor: Any,
                           connections: Connections) -> dict[int, PortChannel]:  # fmt: skip
        """A PortChannel of the service for each of the connections, from this rank's tensor to the peer's."""
        memory = self.register_local_memory(tensor, connections)
        return self._port_channels(proxy_service, memory, memory, connections)

    def make_port_channels_with_scratch(self, proxy_service: ProxyService, tensor: Any,
                                        registeredScratchBuffer: RegisteredMemory,
                                        connections: Connections) -> dict[int, PortChannel]:  # fmt: skip
        """The same from this rank's tensor to the peer's scratch, a RegisteredMemory of each rank."""
        memory = self.register_local_memory(tensor, connections)
        return self._port_channels(proxy_service, memory, registeredScratchBuffer, connections)

    def register_semaphore_with_proxy(self, proxy_service: ProxyService,
                                      connections: Connections) -> dict[int, BasePortChannel]:  # fmt: skip
        """A BasePortChannel of the service for each of the connections."""
        semaphores = self.make_semaphores(connections)
        ids = {rank: proxy_service.add_semaphore(semaphore) for rank, semaphore in semaphores.items()}
        return {rank: proxy_service.base_port_channel(each) for rank, each in ids.items()}

    def register_memory_with_proxy(self, proxy_service: ProxyService, tensor: Any,
                                   connections: Connections) -> dict[int, int]:  # fmt: skip
        """The ids in the service of the tensors of all ranks, this one's included."""
        memories = self.register_tensor_with_connections(tensor, connections)
        return {rank: proxy_service.add_memory(memory) for rank, memory in memories.items()}

    def _memory_channels(self, source: RegisteredMemory, target: RegisteredMemory, connections: Connections,
                         packet_buffer: int = 0) -> dict[int, MemoryChannel]:  # fmt: skip
        semaphores = self.make_semaphores(connections)
        targets = self.register_memory_with_connections(target, connections)
        return {rank: MemoryChannel(semaphores[rank], targets[rank], source, packet_buffer) for rank in connections}

    def _port_channels(self, proxy_service: ProxyService, source: RegisteredMemory, target: RegisteredMemory,
                       connections: Connections) -> dict[int, PortChannel]:  # fmt: skip
        semaphores = self.make_semaphores(connections)
        targets = self.register_memory_with_connections(target, connections)
        source_id = proxy_service.add_memory(source)
        return {
            rank: proxy_service.port_channel(
                proxy_service.add_semaphore(semaphores[rank]), proxy_service.add_memory(targets[rank]), source_id
            )
            for rank in connections
        }


def _config(endpoints: Endpoints | dict[int, Endpoints], rank: int) -> EndpointConfig:
    if isinstance(endpoints, dict):
        if rank not in endpoints:
            raise InvalidUsage(f"endpoints has none for rank {rank}: pass one for each of all_ranks")
        endpoints = endpoints[rank]
    if endpoints == Transport.SharedMemory:
        return EndpointConfig(Transport.SharedMemory, Device(DeviceType.CPU))
    return EndpointConfig(endpoints) if isinstance(endpoints, Transport) else endpoints


def _address_and_bytes(tensor: Any) -> tuple[int, int]:
    if isinstance(tensor, (HostBuffer, RawGpuBuffer)):
        return tensor.data(), tensor.bytes()
    array = view(tensor)
    return array.address, array.nbytes
