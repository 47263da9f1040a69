// Host memory that other processes can map; CPU ranks communicate through it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace mscclpp {

namespace detail {
class HostAllocation;
}

/// Zero-filled memory behind an anonymous file (memfd), page-aligned. Register it with Transport::SharedMemory to let
/// the ranks of this host map it. Movable; the memory is freed when the buffer and every registration of it are
/// destroyed, in this process and in the peers.
class HostBuffer {
 public:
  /// An empty buffer.
  HostBuffer() noexcept = default;
  /// `bytes` of memory; 0 gives an empty buffer. `name` appears in /proc/<pid>/maps. Throws SysError if there is not
  /// enough memory.
  explicit HostBuffer(std::size_t bytes, const std::string& name = "mscclpp");

  HostBuffer(HostBuffer&&) noexcept;
  HostBuffer& operator=(HostBuffer&&) noexcept;
  ~HostBuffer();

  /// Null if empty.
  void* data() const noexcept;
  std::size_t bytes() const noexcept { return allocation_ ? bytes_ : 0; }
  /// The memory with shared ownership, for users that outlive this object.
  std::shared_ptr<void> memory() const noexcept;

 private:
  std::shared_ptr<detail::HostAllocation> allocation_;
  std::size_t bytes_ = 0;
};

}  // namespace mscclpp
