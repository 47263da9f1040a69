// The registrations of users' buffers, found by address: whether a pointer that a collective is given lies in memory
// that all ranks have mapped.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "mscclpp/host/communicator/registered_buffer.hpp"

namespace mscclpp {

/// The ranks of a communicator register buffers once, by collective calls, and then ask for each call of a collective
/// whether a pointer lies in one of them. A lookup contacts nobody, so the ranks must arrive at the same answer by what
/// they pass: all ranks have added the same registrations in the same order, and for a call each of them passes a
/// pointer at the same offset in its buffer of the same registration, and the same size. Since all buffers of a
/// registration have the same size, the range then lies in it on all ranks or on none. Registrations may overlap if
/// they do so in the same way on all ranks.
///
/// Any thread may call the functions. A registration ends when its handle is destroyed, which each rank does by itself,
/// and between the same calls of collectives as the others.
class RegisteredBuffers {
  class Table;
  struct Entry;

 public:
  /// Keeps a registration; also beyond the lifetime of the RegisteredBuffers. Move-only.
  class Handle {
   public:
    /// Keeps nothing.
    Handle() noexcept;
    Handle(Handle&& other) noexcept;
    Handle& operator=(Handle&& other) noexcept;
    /// Ends the registration, as ~RegisteredBuffer: no call may use it any more.
    ~Handle();

    /// Throws Error(InvalidUsage) if the handle keeps nothing.
    const RegisteredBuffer& buffer() const;

   private:
    friend class RegisteredBuffers;
    Handle(std::shared_ptr<Table> table, std::shared_ptr<const Entry> entry) noexcept;
    void end() noexcept;

    std::shared_ptr<Table> table_;
    std::shared_ptr<const Entry> entry_;
  };

  /// Where a range lies.
  struct Match {
    const RegisteredBuffer* buffer;  ///< valid until the handle of the registration is destroyed
    std::size_t offset;              ///< of the range in it, in bytes
  };

  RegisteredBuffers();
  ~RegisteredBuffers();
  RegisteredBuffers(RegisteredBuffers&&) noexcept;
  RegisteredBuffers& operator=(RegisteredBuffers&&) noexcept;

  /// Adds a registration of this rank; the constructor or RegisteredBuffer::tryRegister, which are collective, have
  /// made it. Throws Error(InvalidUsage), on all ranks alike, unless its buffers have the same size. One without bytes
  /// is kept and never found.
  [[nodiscard]] Handle add(RegisteredBuffer buffer);

  /// The registration in which all of [pointer, pointer + bytes) lies, the last added one if there are several; nothing
  /// if there is none. Throws Error(InvalidUsage) if the memory of the registration has been freed since: a new
  /// allocation at its address is not what the peers have mapped.
  std::optional<Match> find(const void* pointer, std::size_t bytes) const;

 private:
  std::shared_ptr<Table> table_;
};

}  // namespace mscclpp
