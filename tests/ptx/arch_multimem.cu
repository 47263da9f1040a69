// Multicast memory: one instruction for each row of arch/multimem_table.hpp, the release of the barrier, and the fence
// between the two addresses of a replica. Compiled and assembled, but not run.
#include "mscclpp/basic/multicast.hpp"
#include "mscclpp/channel/switch.hpp"

using namespace mscclpp;

template <class T, int N, HardwareReduceOp op, Accumulation in>
__device__ void load(MulticastAddress address, std::byte* to) {
  *reinterpret_cast<Vector<T, N>*>(to) = MulticastPointer<T>{address}.template loadReduce<N, op, in>();
}

template <class T, int N, HardwareReduceOp op>
__device__ void reduce(MulticastAddress address, std::byte* from) {
  MulticastPointer<T>{address}.template storeReduce<op>(*reinterpret_cast<const Vector<T, N>*>(from));
}

template <class T, int N>
__device__ void store(MulticastAddress address, std::byte* from) {
  MulticastPointer<T>{address}.store(*reinterpret_cast<const Vector<T, N>*>(from));
}

__global__ void f16Loads(MulticastAddress address, std::byte* to) {
  load<f16, 2, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.f16x2 %r\d+, \[%rd\d+\];
  load<f16, 4, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v2\.f16x2 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f16, 8, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v4\.f16x2 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
  load<f16, 2, HardwareReduceOp::Add, Accumulation::F32>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f32\.f16x2 %r\d+, \[%rd\d+\];
  load<f16, 4, HardwareReduceOp::Add, Accumulation::F32>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f32\.v2\.f16x2 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f16, 8, HardwareReduceOp::Add, Accumulation::F32>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f32\.v4\.f16x2 \{%r\d+(, %r\d+){3}\}, \[%rd\d+\];
  load<f16, 2, HardwareReduceOp::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.f16x2 %r\d+, \[%rd\d+\];
  load<f16, 4, HardwareReduceOp::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v2\.f16x2 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f16, 8, HardwareReduceOp::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v4\.f16x2 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
  load<f16, 2, HardwareReduceOp::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.f16x2 %r\d+, \[%rd\d+\];
  load<f16, 4, HardwareReduceOp::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v2\.f16x2 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f16, 8, HardwareReduceOp::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v4\.f16x2 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
}

__global__ void bf16Loads(MulticastAddress address, std::byte* to) {
  load<bf16, 2, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.bf16x2 %r\d+, \[%rd\d+\];
  load<bf16, 4, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v2\.bf16x2 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<bf16, 8, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v4\.bf16x2 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
  load<bf16, 2, HardwareReduceOp::Add, Accumulation::F32>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f32\.bf16x2 %r\d+, \[%rd\d+\];
  load<bf16, 4, HardwareReduceOp::Add, Accumulation::F32>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f32\.v2\.bf16x2 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<bf16, 8, HardwareReduceOp::Add, Accumulation::F32>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f32\.v4\.bf16x2 \{%r\d+(, %r\d+){3}\}, \[%rd\d+\];
  load<bf16, 2, HardwareReduceOp::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.bf16x2 %r\d+, \[%rd\d+\];
  load<bf16, 4, HardwareReduceOp::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v2\.bf16x2 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<bf16, 8, HardwareReduceOp::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v4\.bf16x2 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
  load<bf16, 2, HardwareReduceOp::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.bf16x2 %r\d+, \[%rd\d+\];
  load<bf16, 4, HardwareReduceOp::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v2\.bf16x2 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<bf16, 8, HardwareReduceOp::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v4\.bf16x2 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
}

__global__ void f16StoreReductions(MulticastAddress address, std::byte* to) {
  reduce<f16, 2, HardwareReduceOp::Add>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.add\.f16x2 \[%rd\d+\], %r\d+;
  reduce<f16, 4, HardwareReduceOp::Add>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.add\.v2\.f16x2 \[%rd\d+\], \{%r\d+, %r\d+\};
  reduce<f16, 8, HardwareReduceOp::Add>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.add\.v4\.f16x2 \[%rd\d+\], \{%r\d+, %r\d+, %r\d+, %r\d+\};
  reduce<f16, 2, HardwareReduceOp::Min>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.min\.v2\.f16 \[%rd\d+\], \{%rs\d+, %rs\d+\};
  reduce<f16, 4, HardwareReduceOp::Min>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.min\.v2\.f16x2 \[%rd\d+\], \{%r\d+, %r\d+\};
  reduce<f16, 8, HardwareReduceOp::Min>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.min\.v4\.f16x2 \[%rd\d+\], \{%r\d+, %r\d+, %r\d+, %r\d+\};
  reduce<f16, 2, HardwareReduceOp::Max>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.max\.v2\.f16 \[%rd\d+\], \{%rs\d+, %rs\d+\};
  reduce<f16, 4, HardwareReduceOp::Max>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.max\.v2\.f16x2 \[%rd\d+\], \{%r\d+, %r\d+\};
  reduce<f16, 8, HardwareReduceOp::Max>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.max\.v4\.f16x2 \[%rd\d+\], \{%r\d+, %r\d+, %r\d+, %r\d+\};
}

__global__ void bf16StoreReductions(MulticastAddress address, std::byte* to) {
  reduce<bf16, 2, HardwareReduceOp::Add>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.add\.bf16x2 \[%rd\d+\], %r\d+;
  reduce<bf16, 4, HardwareReduceOp::Add>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.add\.v2\.bf16x2 \[%rd\d+\], \{%r\d+, %r\d+\};
  reduce<bf16, 8, HardwareReduceOp::Add>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.add\.v4\.bf16x2 \[%rd\d+\], \{%r\d+, %r\d+, %r\d+, %r\d+\};
  reduce<bf16, 2, HardwareReduceOp::Min>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.min\.v2\.bf16 \[%rd\d+\], \{%rs\d+, %rs\d+\};
  reduce<bf16, 4, HardwareReduceOp::Min>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.min\.v2\.bf16x2 \[%rd\d+\], \{%r\d+, %r\d+\};
  reduce<bf16, 8, HardwareReduceOp::Min>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.min\.v4\.bf16x2 \[%rd\d+\], \{%r\d+, %r\d+, %r\d+, %r\d+\};
  reduce<bf16, 2, HardwareReduceOp::Max>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.max\.v2\.bf16 \[%rd\d+\], \{%rs\d+, %rs\d+\};
  reduce<bf16, 4, HardwareReduceOp::Max>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.max\.v2\.bf16x2 \[%rd\d+\], \{%r\d+, %r\d+\};
  reduce<bf16, 8, HardwareReduceOp::Max>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.max\.v4\.bf16x2 \[%rd\d+\], \{%r\d+, %r\d+, %r\d+, %r\d+\};
}

__global__ void wideFloats(MulticastAddress address, std::byte* to) {
  load<float, 1, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.f32 %r\d+, \[%rd\d+\];
  load<float, 2, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v2\.f32 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<float, 4, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v4\.f32 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
  reduce<float, 1, HardwareReduceOp::Add>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.add\.f32
  reduce<float, 2, HardwareReduceOp::Add>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.add\.v2\.f32
  reduce<float, 4, HardwareReduceOp::Add>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.add\.v4\.f32
  load<double, 1, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.f64
  reduce<double, 1, HardwareReduceOp::Add>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.add\.f64
}

__global__ void int32(MulticastAddress address, std::byte* to) {
  load<std::int32_t, 1, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.s32
  reduce<std::int32_t, 1, HardwareReduceOp::Add>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.add\.s32
  load<std::int32_t, 1, HardwareReduceOp::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.s32
  reduce<std::int32_t, 1, HardwareReduceOp::Min>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.min\.s32
  load<std::int32_t, 1, HardwareReduceOp::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.s32
  reduce<std::int32_t, 1, HardwareReduceOp::Max>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.max\.s32
}

__global__ void uint32(MulticastAddress address, std::byte* to) {
  load<std::uint32_t, 1, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.u32
  reduce<std::uint32_t, 1, HardwareReduceOp::Add>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.add\.u32
  load<std::uint32_t, 1, HardwareReduceOp::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.u32
  reduce<std::uint32_t, 1, HardwareReduceOp::Min>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.min\.u32
  load<std::uint32_t, 1, HardwareReduceOp::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.u32
  reduce<std::uint32_t, 1, HardwareReduceOp::Max>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.max\.u32
}

__global__ void int64(MulticastAddress address, std::byte* to) {
  load<std::int64_t, 1, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.u64
  reduce<std::int64_t, 1, HardwareReduceOp::Add>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.add\.u64
  load<std::int64_t, 1, HardwareReduceOp::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.s64
  reduce<std::int64_t, 1, HardwareReduceOp::Min>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.min\.s64
  load<std::int64_t, 1, HardwareReduceOp::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.s64
  reduce<std::int64_t, 1, HardwareReduceOp::Max>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.max\.s64
}

__global__ void uint64(MulticastAddress address, std::byte* to) {
  load<std::uint64_t, 1, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.u64
  reduce<std::uint64_t, 1, HardwareReduceOp::Add>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.add\.u64
  load<std::uint64_t, 1, HardwareReduceOp::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.u64
  reduce<std::uint64_t, 1, HardwareReduceOp::Min>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.min\.u64
  load<std::uint64_t, 1, HardwareReduceOp::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.u64
  reduce<std::uint64_t, 1, HardwareReduceOp::Max>(address, to);
  // PTX: multimem\.red\.relaxed\.sys\.global\.max\.u64
}

__global__ void stores(MulticastAddress address, std::byte* to) {
  store<bf16, 2>(address, to);
  // PTX: multimem\.st\.relaxed\.sys\.global\.u32 \[%rd\d+\], %r\d+;
  store<f8e4m3, 8>(address, to);
  // PTX: multimem\.st\.relaxed\.sys\.global\.u64 \[%rd\d+\], %rd\d+;
  store<std::int8_t, 16>(address, to);
  // PTX: multimem\.st\.relaxed\.sys\.global\.v4\.f32 \[%rd\d+\], \{%r\d+, %r\d+, %r\d+, %r\d+\};
}

__global__ void semaphore(SwitchSemaphoreHandle semaphore, bool* to) {
  semaphore.signal();
  // PTX: fence\.proxy\.alias;
  // PTX: multimem\.red\.release\.sys\.global\.add\.u64 \[%rd\d+\], %rd\d+;
  semaphore.relaxedSignal();
  // PTX: multimem\.red\.relaxed\.sys\.global\.add\.u64
  TryOnce once;
  *to = semaphore.wait(once);
  // PTX: ld\.acquire\.sys\.global\.u64
  // PTX: fence\.proxy\.alias;
  // PTX-NOT: fence\.acq|membar|atom
}

__global__ void channel(SwitchChannelHandle channel) {
  channel.broadcast(7, channel.reduce<Vector<bf16, 8>>(7));
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f32\.v4\.bf16x2
  // PTX: multimem\.st\.relaxed\.sys\.global\.v4\.f32
  // PTX-NOT: fence|ld\.global|st\.global
}
