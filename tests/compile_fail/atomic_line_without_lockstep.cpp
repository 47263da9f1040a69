// Only lanes that run in lockstep can store an LL128 line in one transaction.
// EXPECT: use LineStore::Ordered for this group
#include "mscclpp/packet/ll128.hpp"

struct Lanes {
  static constexpr int width = 16;
  static constexpr bool lockstepStores = false;
  int rank() const;
  int size() const;
  void sync() const;
  std::uint32_t shuffle(std::uint32_t, int) const;
  bool all(bool) const;
  bool any(bool) const;
  std::uint32_t ballot(bool) const;
};

#ifdef CORRECT
using Protocol = mscclpp::LL128<mscclpp::LineStore::Ordered>;
#else
using Protocol = mscclpp::LL128<mscclpp::LineStore::Atomic>;
#endif

void send(const Lanes& lanes, std::byte* slots, const mscclpp::Word128& pack) {
  Protocol::write(lanes, slots, 0, pack, 1);
}
