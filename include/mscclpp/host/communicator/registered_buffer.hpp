// A user's buffer on every rank, mapped by all ranks: collectives read their peers' inputs and write their outputs
// in place, without a copy through scratch.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "mscclpp/host/communicator/memory_of_ranks.hpp"
#include "mscclpp/host/transport/registered_memory.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp {

class Communicator;

/// The ranks of a communicator register one buffer each, by a collective call. The buffers may differ in address, in
/// their offset in the allocation and in size. For ranks of one host.
///
/// What is exported and mapped is the allocation around the buffer, once: while a registration of an allocation exists,
/// another one, of the same or of another communicator, of the same or of another part, maps nothing. Every call
/// exchanges two small messages between each pair of ranks all the same, so that the ranks never disagree about it: a
/// buffer that is used often is registered once, and the object is kept.
///
/// Destroying the object ends the registration, by this rank alone; an allocation is unmapped with its last
/// registration. So the ranks synchronise before they destroy what a peer's kernel may still use, and free GPU memory
/// only after every rank has destroyed its registration of it. A HostBuffer stays allocated until then by itself.
class RegisteredBuffer {
 public:
  /// Collective: every rank calls it, in the same order as other collective calls, and no rank returns before all have
  /// mapped everything. `data` is GPU memory (cudaMalloc, GpuBuffer, or cuMem memory that can be exported as a POSIX
  /// descriptor), which is mapped for the current device of this thread, or memory inside a HostBuffer; the same kind
  /// on all ranks. `bytes` may be 0: such a rank has no memory, and `data` is not used.
  ///
  /// If it fails on one rank, it throws on all of them: Error(InvalidUsage) if the peers cannot map a buffer, with the
  /// rank and the reason; for wrong arguments Error(InvalidUsage) on that rank and Error(RemoteError), which names it,
  /// on the others; what the bootstrap throws for a rank that does not arrive.
  RegisteredBuffer(Communicator& communicator, void* data, std::size_t bytes);
  RegisteredBuffer(RegisteredBuffer&&) noexcept = default;
  RegisteredBuffer& operator=(RegisteredBuffer&&) noexcept = default;

  /// The same, but empty on all ranks if a rank's buffer is memory that its peers cannot map, such as malloc, managed
  /// memory or memory of a stream-ordered pool: the caller then copies. The reason is logged (LogLevel::Info).
  static std::optional<RegisteredBuffer> tryRegister(Communicator& communicator, void* data, std::size_t bytes);

  int rank() const noexcept { return parts_.rank(); }
  int nRanks() const noexcept { return parts_.nRanks(); }
  /// The size of this rank's buffer, as requested, or that of any rank. The latter throws Error(InvalidUsage) if there
  /// is no such rank.
  std::size_t bytes() const noexcept { return parts_.own().size(); }
  std::size_t bytes(int rank) const { return memory(rank).size(); }
  /// Throws Error(InvalidUsage), on all ranks alike, unless all buffers have the same size.
  void requireEqualBytes() const;

  /// This rank's buffer; null if it has no bytes.
  void* local() const noexcept { return parts_.own().data(); }
  /// The buffer of any rank, mapped here; peer(rank()) == local(). Throws Error(InvalidUsage) if there is no such rank.
  void* peer(int rank) const { return memory(rank).data(); }
  /// The same as a registration, for connections and channels; empty if the rank's buffer has no bytes.
  const RegisteredMemory& memory(int rank) const { return parts_.at(rank); }
  /// The buffers of all ranks in the form that collectives take, as SymmetricMemory::window.
  template <int Ranks = 0>
  Window<Ranks> window() const {
    return parts_.window<Ranks>();
  }

  /// Whether this rank's buffer still is the memory that was registered: false once it has been freed, even if its
  /// address has been allocated again. For a caller who looks up registrations by address. Local: of their buffers the
  /// other ranks must tell.
  bool isAllocated() const;

 private:
  RegisteredBuffer() = default;
  /// Returns why a buffer cannot be mapped, the same on all ranks; empty if all are.
  std::string registerWithPeers(Communicator& communicator, void* data, std::size_t bytes);

  detail::MemoryOfRanks parts_;
};

}  // namespace mscclpp
