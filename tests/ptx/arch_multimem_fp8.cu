// Reductions of fp8 in the switch, which only GPUs of sm_100a and its kin have. Compiled and assembled only: no machine at hand may run them.
#include "mscclpp/basic/multicast.hpp"

using namespace mscclpp;

template <class T, int N, Arithmetic op, Accumulation in>
__device__ void load(MulticastAddress address, std::byte* to) {
  *reinterpret_cast<Vector<T, N>*>(to) = MulticastPointer<T>{address}.template loadReduce<N, op, in>();
}

__global__ void e4m3(MulticastAddress address, std::byte* to) {
  load<f8e4m3, 4, Arithmetic::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.e4m3x4 %r\d+, \[%rd\d+\];
  load<f8e4m3, 8, Arithmetic::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v2\.e4m3x4 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e4m3, 16, Arithmetic::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v4\.e4m3x4 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e4m3, 4, Arithmetic::Add, Accumulation::F16>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.e4m3x4 %r\d+, \[%rd\d+\];
  load<f8e4m3, 8, Arithmetic::Add, Accumulation::F16>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.v2\.e4m3x4 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e4m3, 16, Arithmetic::Add, Accumulation::F16>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.v4\.e4m3x4 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e4m3, 4, Arithmetic::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.e4m3x4 %r\d+, \[%rd\d+\];
  load<f8e4m3, 8, Arithmetic::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v2\.e4m3x4 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e4m3, 16, Arithmetic::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v4\.e4m3x4 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e4m3, 4, Arithmetic::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.e4m3x4 %r\d+, \[%rd\d+\];
  load<f8e4m3, 8, Arithmetic::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v2\.e4m3x4 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e4m3, 16, Arithmetic::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v4\.e4m3x4 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
}

__global__ void e5m2(MulticastAddress address, std::byte* to) {
  load<f8e5m2, 4, Arithmetic::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.e5m2x4 %r\d+, \[%rd\d+\];
  load<f8e5m2, 8, Arithmetic::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v2\.e5m2x4 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e5m2, 16, Arithmetic::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v4\.e5m2x4 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e5m2, 4, Arithmetic::Add, Accumulation::F16>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.e5m2x4 %r\d+, \[%rd\d+\];
  load<f8e5m2, 8, Arithmetic::Add, Accumulation::F16>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.v2\.e5m2x4 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e5m2, 16, Arithmetic::Add, Accumulation::F16>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.v4\.e5m2x4 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e5m2, 4, Arithmetic::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.e5m2x4 %r\d+, \[%rd\d+\];
  load<f8e5m2, 8, Arithmetic::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v2\.e5m2x4 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e5m2, 16, Arithmetic::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v4\.e5m2x4 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e5m2, 4, Arithmetic::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.e5m2x4 %r\d+, \[%rd\d+\];
  load<f8e5m2, 8, Arithmetic::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v2\.e5m2x4 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e5m2, 16, Arithmetic::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v4\.e5m2x4 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
}
