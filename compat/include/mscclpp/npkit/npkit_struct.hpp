// The structures of NPKit's event collection.
#pragma once

#include <cstdint>

/// One event, 16 bytes.
union NpKitEvent {
  std::uint64_t bits[2];
  struct {
    std::uint64_t type : 8;
    std::uint64_t size : 32;
    std::uint64_t rsvd : 24;
    std::uint64_t timestamp;
  } fields;
};

/// The event buffer of a block.
struct NpKitEventCollectContext {
  NpKitEvent* event_buffer;
  std::uint64_t event_buffer_head;
};
