// The operations of arch/atomic.hpp and arch/set_bits.hpp, and the fences: order, scope and width as named, without
// additional fences.
#include "mscclpp/arch/atomic.hpp"
#include "mscclpp/arch/fence.hpp"
#include "mscclpp/arch/set_bits.hpp"

using namespace mscclpp::arch;

template <Order order, Scope scope, class T>
__device__ void allAtomics(T* word) {
  exchange<order, scope>(word, fetchAdd<order, scope>(word, compareExchange<order, scope>(word, T{1}, T{2})));
}

__global__ void device4(std::uint32_t* word) {
  allAtomics<Order::Relaxed, Scope::Device>(word);
  // PTX: atom\.relaxed\.gpu\.global\.cas\.b32
  // PTX: atom\.relaxed\.gpu\.global\.add\.u32
  // PTX: atom\.relaxed\.gpu\.global\.exch\.b32
  allAtomics<Order::Acquire, Scope::Device>(word);
  // PTX: atom\.acquire\.gpu\.global\.cas\.b32
  // PTX: atom\.acquire\.gpu\.global\.add\.u32
  // PTX: atom\.acquire\.gpu\.global\.exch\.b32
  allAtomics<Order::Release, Scope::Device>(word);
  // PTX: atom\.release\.gpu\.global\.cas\.b32
  // PTX: atom\.release\.gpu\.global\.add\.u32
  // PTX: atom\.release\.gpu\.global\.exch\.b32
  allAtomics<Order::AcqRel, Scope::Device>(word);
  // PTX: atom\.acq_rel\.gpu\.global\.cas\.b32
  // PTX: atom\.acq_rel\.gpu\.global\.add\.u32
  // PTX: atom\.acq_rel\.gpu\.global\.exch\.b32
  // PTX-NOT: fence|membar|\.sys\.
}

__global__ void system4(std::uint32_t* word) {
  allAtomics<Order::Relaxed, Scope::System>(word);
  // PTX: atom\.relaxed\.sys\.global\.cas\.b32
  // PTX: atom\.relaxed\.sys\.global\.add\.u32
  // PTX: atom\.relaxed\.sys\.global\.exch\.b32
  allAtomics<Order::Acquire, Scope::System>(word);
  // PTX: atom\.acquire\.sys\.global\.cas\.b32
  // PTX: atom\.acquire\.sys\.global\.add\.u32
  // PTX: atom\.acquire\.sys\.global\.exch\.b32
  allAtomics<Order::Release, Scope::System>(word);
  // PTX: atom\.release\.sys\.global\.cas\.b32
  // PTX: atom\.release\.sys\.global\.add\.u32
  // PTX: atom\.release\.sys\.global\.exch\.b32
  allAtomics<Order::AcqRel, Scope::System>(word);
  // PTX: atom\.acq_rel\.sys\.global\.cas\.b32
  // PTX: atom\.acq_rel\.sys\.global\.add\.u32
  // PTX: atom\.acq_rel\.sys\.global\.exch\.b32
  // PTX-NOT: fence|membar|\.gpu\.
}

__global__ void device8(std::uint64_t* word) {
  allAtomics<Order::Relaxed, Scope::Device>(word);
  // PTX: atom\.relaxed\.gpu\.global\.cas\.b64
  // PTX: atom\.relaxed\.gpu\.global\.add\.u64
  // PTX: atom\.relaxed\.gpu\.global\.exch\.b64
  allAtomics<Order::Acquire, Scope::Device>(word);
  // PTX: atom\.acquire\.gpu\.global\.cas\.b64
  // PTX: atom\.acquire\.gpu\.global\.add\.u64
  // PTX: atom\.acquire\.gpu\.global\.exch\.b64
  allAtomics<Order::Release, Scope::Device>(word);
  // PTX: atom\.release\.gpu\.global\.cas\.b64
  // PTX: atom\.release\.gpu\.global\.add\.u64
  // PTX: atom\.release\.gpu\.global\.exch\.b64
  allAtomics<Order::AcqRel, Scope::Device>(word);
  // PTX: atom\.acq_rel\.gpu\.global\.cas\.b64
  // PTX: atom\.acq_rel\.gpu\.global\.add\.u64
  // PTX: atom\.acq_rel\.gpu\.global\.exch\.b64
  // PTX-NOT: fence|membar|\.sys\.
}

__global__ void system8(std::uint64_t* word) {
  allAtomics<Order::Relaxed, Scope::System>(word);
  // PTX: atom\.relaxed\.sys\.global\.cas\.b64
  // PTX: atom\.relaxed\.sys\.global\.add\.u64
  // PTX: atom\.relaxed\.sys\.global\.exch\.b64
  allAtomics<Order::Acquire, Scope::System>(word);
  // PTX: atom\.acquire\.sys\.global\.cas\.b64
  // PTX: atom\.acquire\.sys\.global\.add\.u64
  // PTX: atom\.acquire\.sys\.global\.exch\.b64
  allAtomics<Order::Release, Scope::System>(word);
  // PTX: atom\.release\.sys\.global\.cas\.b64
  // PTX: atom\.release\.sys\.global\.add\.u64
  // PTX: atom\.release\.sys\.global\.exch\.b64
  allAtomics<Order::AcqRel, Scope::System>(word);
  // PTX: atom\.acq_rel\.sys\.global\.cas\.b64
  // PTX: atom\.acq_rel\.sys\.global\.add\.u64
  // PTX: atom\.acq_rel\.sys\.global\.exch\.b64
  // PTX-NOT: fence|membar|\.gpu\.
}

__global__ void reductions(std::uint32_t* word4, std::uint64_t* word8) {
  reduceAdd<Order::Relaxed, Scope::Device>(word4, 1u);
  // PTX: red\.relaxed\.gpu\.global\.add\.u32
  reduceAdd<Order::Relaxed, Scope::System>(word4, 1u);
  // PTX: red\.relaxed\.sys\.global\.add\.u32
  reduceAdd<Order::Release, Scope::Device>(word4, 1u);
  // PTX: red\.release\.gpu\.global\.add\.u32
  reduceAdd<Order::Release, Scope::System>(word4, 1u);
  // PTX: red\.release\.sys\.global\.add\.u32
  reduceAdd<Order::Relaxed, Scope::Device>(word8, std::uint64_t{1});
  // PTX: red\.relaxed\.gpu\.global\.add\.u64
  reduceAdd<Order::Relaxed, Scope::System>(word8, std::uint64_t{1});
  // PTX: red\.relaxed\.sys\.global\.add\.u64
  reduceAdd<Order::Release, Scope::Device>(word8, std::uint64_t{1});
  // PTX: red\.release\.gpu\.global\.add\.u64
  reduceAdd<Order::Release, Scope::System>(word8, std::uint64_t{1});
  // PTX: red\.release\.sys\.global\.add\.u64
  // PTX-NOT: atom|fence|membar
}

__global__ void fences(int* words) {
  words[0] = 1;
  fence<Scope::Device>();
  words[1] = 1;
  fence<Scope::System>();
  words[2] = 1;
  // PTX: st\.(global\.)?(b|u)32
  // PTX: fence\.acq_rel\.gpu
  // PTX: st\.(global\.)?(b|u)32
  // PTX: fence\.acq_rel\.sys
  // PTX: st\.(global\.)?(b|u)32
}

__global__ void bits(std::uint32_t* word) {
  setBits(word, 4u);
  // PTX: red\.relaxed\.cta\.or\.b32
  // PTX-NOT: fence|membar|atom
}
