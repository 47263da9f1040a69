// The memory behind a HostBuffer, and how a pointer into it is looked up.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "host/base/process_identity.hpp"
#include "host/base/unique_fd.hpp"

namespace mscclpp::detail {

/// A sealed memfd and its mapping in this process.
class HostAllocation {
 public:
  static std::shared_ptr<HostAllocation> create(std::size_t bytes, const std::string& name);
  /// The allocation that contains [pointer, pointer + size), or null: user code passes plain pointers to the library,
  /// so the live allocations of the process are kept in one table.
  static std::shared_ptr<HostAllocation> find(const void* pointer, std::size_t size);

  ~HostAllocation();
  HostAllocation(const HostAllocation&) = delete;
  HostAllocation& operator=(const HostAllocation&) = delete;

  char* base() const noexcept { return base_; }
  /// A multiple of the page size.
  std::size_t bytes() const noexcept { return bytes_; }
  int fd() const noexcept { return fd_.get(); }
  /// Unique among all allocations of all processes.
  const Id128& id() const noexcept { return id_; }

 private:
  HostAllocation(std::size_t bytes, const std::string& name);

  const OwnerProcess owner_;
  UniqueFd fd_;
  char* base_ = nullptr;
  std::size_t bytes_;
  Id128 id_;
};

}  // namespace mscclpp::detail
