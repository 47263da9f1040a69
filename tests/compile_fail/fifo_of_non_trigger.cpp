// A FIFO requires a TriggerLayout: a type with a number of 16-byte words and conversions from and to them.
// EXPECT: TriggerLayout
#include "mscclpp/sync/fifo.hpp"

struct alignas(16) CustomTrigger {
  int number = 0;
#ifdef CORRECT
  static constexpr int words = 1;
  mscclpp::Word128 word(int) const {
    return {static_cast<std::uint64_t>(number), 0};
  }
  static CustomTrigger fromWords(const mscclpp::Word128* from) {
    return {static_cast<int>(from->lo)};
  }
#endif
};

std::uint64_t push(mscclpp::BasicFifoHandle<CustomTrigger> fifo) {
  return fifo.push(CustomTrigger{7});
}
