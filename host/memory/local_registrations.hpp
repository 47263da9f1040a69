// The memory that this process has registered, by random id: to look up a registration of its own that it deserialises.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "host/base/process_identity.hpp"

namespace mscclpp::detail {

struct LocalRegistration {
  void* data;
  std::size_t size;
};

/// Lists the memory under `id` as long as the result lives.
std::shared_ptr<const void> addLocalRegistration(const Id128& id, const LocalRegistration& memory);

/// Empty if this process has no such registration (any more). Any thread may call it.
std::optional<LocalRegistration> findLocalRegistration(const Id128& id);

}  // namespace mscclpp::detail
