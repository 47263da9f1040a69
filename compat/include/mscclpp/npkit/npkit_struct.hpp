// What NPKit's collection of events is made of.
#pragma once

#include <cstdint>

/// 16 bytes of one event.
union NpKitEvent {
  std::uint64_t bits[2];
  struct {
    std::uint64_t type : 8;
    std::uint64_t size : 32;
    std::uint64_t rsvd : 24;
    std::uint64_t timestamp;
  } fields;
};

/// Where a block's events go.
struct NpKitEventCollectContext {
  NpKitEvent* event_buffer;
  std::uint64_t event_buffer_head;
};
