// The loads and stores of arch/memory.hpp, arch/shared_word.hpp and arch/wide.hpp: one instruction each, with the named
// order and scope.
#include "mscclpp/arch/memory.hpp"
#include "mscclpp/arch/shared_word.hpp"
#include "mscclpp/arch/wide.hpp"

using namespace mscclpp;
using namespace mscclpp::arch;

template <Order order, Scope scope, class T>
__device__ void copyOne(T* to, const T* from) {
  constexpr Order loadOrder = order == Order::Release ? Order::Acquire : order;
  store<order, scope>(to, load<loadOrder, scope>(from));
}

__global__ void word4(std::uint32_t* to, const std::uint32_t* from) {
  copyOne<Order::Volatile, Scope::System>(to, from);
  // PTX: ld\.volatile\.global\.u32
  // PTX: st\.volatile\.global\.u32
  copyOne<Order::Relaxed, Scope::Block>(to, from);
  // PTX: ld\.relaxed\.cta\.global\.u32
  // PTX: st\.relaxed\.cta\.global\.u32
  copyOne<Order::Relaxed, Scope::Device>(to, from);
  // PTX: ld\.relaxed\.gpu\.global\.u32
  // PTX: st\.relaxed\.gpu\.global\.u32
  copyOne<Order::Relaxed, Scope::System>(to, from);
  // PTX: ld\.relaxed\.sys\.global\.u32
  // PTX: st\.relaxed\.sys\.global\.u32
  copyOne<Order::Release, Scope::Device>(to, from);
  // PTX: ld\.acquire\.gpu\.global\.u32
  // PTX: st\.release\.gpu\.global\.u32
  copyOne<Order::Release, Scope::System>(to, from);
  // PTX: ld\.acquire\.sys\.global\.u32
  // PTX: st\.release\.sys\.global\.u32
  // PTX-NOT: fence|membar
}

__global__ void word8(std::uint64_t* to, const std::uint64_t* from) {
  copyOne<Order::Volatile, Scope::System>(to, from);
  // PTX: ld\.volatile\.global\.u64
  // PTX: st\.volatile\.global\.u64
  copyOne<Order::Relaxed, Scope::Block>(to, from);
  // PTX: ld\.relaxed\.cta\.global\.u64
  // PTX: st\.relaxed\.cta\.global\.u64
  copyOne<Order::Relaxed, Scope::Device>(to, from);
  // PTX: ld\.relaxed\.gpu\.global\.u64
  // PTX: st\.relaxed\.gpu\.global\.u64
  copyOne<Order::Relaxed, Scope::System>(to, from);
  // PTX: ld\.relaxed\.sys\.global\.u64
  // PTX: st\.relaxed\.sys\.global\.u64
  copyOne<Order::Release, Scope::Device>(to, from);
  // PTX: ld\.acquire\.gpu\.global\.u64
  // PTX: st\.release\.gpu\.global\.u64
  copyOne<Order::Release, Scope::System>(to, from);
  // PTX: ld\.acquire\.sys\.global\.u64
  // PTX: st\.release\.sys\.global\.u64
  // PTX-NOT: fence|membar
}

__global__ void word128(Word128* to, const Word128* from) {
  copyOne<Order::Volatile, Scope::System>(to, from);
  // PTX: ld\.volatile\.global\.b128
  // PTX: st\.volatile\.global\.b128
  copyOne<Order::Relaxed, Scope::Device>(to, from);
  // PTX: ld\.relaxed\.gpu\.global\.b128
  // PTX: st\.relaxed\.gpu\.global\.b128
  copyOne<Order::Relaxed, Scope::System>(to, from);
  // PTX: ld\.relaxed\.sys\.global\.b128
  // PTX: st\.relaxed\.sys\.global\.b128
  // PTX-NOT: \.v2\.|\.v4\.
}

// Other types of these sizes are accessed as words.
__global__ void floats(float* to, const double* from, double* both) {
  store<Order::Relaxed, Scope::System>(to, static_cast<float>(load<Order::Acquire, Scope::System>(from)));
  store<Order::Release, Scope::Device>(both, 1.5);
  // PTX: ld\.acquire\.sys\.global\.u64
  // PTX: st\.relaxed\.sys\.global\.u32
  // PTX: st\.release\.gpu\.global\.u64
}

__global__ void plain(Word128* to, const Word128* from) {
  storeWide(to, loadWide(from));
  // PTX: ld\.(global\.)?v(4\.(b|u)32|2\.(b|u)64)
  // PTX: st\.(global\.)?v(4\.(b|u)32|2\.(b|u)64)
  // PTX-NOT: (ld|st)\.(volatile|relaxed)
}

__global__ void hinted(Word128* to, const Word128* from, bool streams) {
  storeWide(to, loadWide(from, streams), streams);
  // PTX: ld\.global\.L1::no_allocate\.L2::cache_hint\.v2\.(b|u)64
  // PTX: st\.global\.L2::cache_hint\.v2\.(b|u)64
}

__global__ void sharedWord(std::uint32_t* to, std::uint32_t value) {
  __shared__ std::uint32_t word;
  storeSharedRelease(&word, value);
  // PTX: st\.release\.cta\.shared::cta\.u32 \[%r\d+\], %r\d+;
  *to = loadSharedAcquire(&word);
  // PTX: ld\.acquire\.cta\.shared::cta\.u32 %r\d+, \[%r\d+\];
  *to = fetchAddShared(&word, value);
  // PTX: atom\.relaxed\.cta\.shared::cta\.add\.u32 %r\d+, \[%r\d+\], %r\d+;
}
