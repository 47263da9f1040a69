// A FIFO carries triggers: types that say how many 16-byte words they have and what is in them.
// EXPECT: TriggerLayout
#include "mscclpp/sync/fifo.hpp"

struct alignas(16) Note {
  int number = 0;
#ifdef CORRECT
  static constexpr int words = 1;
  mscclpp::Word16 word(int) const {
    return {static_cast<std::uint64_t>(number), 0};
  }
  static Note fromWords(const mscclpp::Word16* from) {
    return {static_cast<int>(from->lo)};
  }
#endif
};

std::uint64_t push(mscclpp::BasicFifoHandle<Note> fifo) {
  return fifo.push(Note{7});
}
