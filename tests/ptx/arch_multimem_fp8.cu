// Reductions of fp8 in the switch, for sm_100a and sm_103a. Compiled and assembled, but not run.
#include "mscclpp/basic/multicast.hpp"

using namespace mscclpp;

template <class T, int N, HardwareReduceOp op, Accumulation in>
__device__ void load(MulticastAddress address, std::byte* to) {
  *reinterpret_cast<Vector<T, N>*>(to) = MulticastPointer<T>{address}.template loadReduce<N, op, in>();
}

__global__ void e4m3(MulticastAddress address, std::byte* to) {
  load<f8e4m3, 4, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.e4m3x4 %r\d+, \[%rd\d+\];
  load<f8e4m3, 8, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v2\.e4m3x4 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e4m3, 16, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v4\.e4m3x4 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e4m3, 4, HardwareReduceOp::Add, Accumulation::F16>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.e4m3x4 %r\d+, \[%rd\d+\];
  load<f8e4m3, 8, HardwareReduceOp::Add, Accumulation::F16>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.v2\.e4m3x4 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e4m3, 16, HardwareReduceOp::Add, Accumulation::F16>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.v4\.e4m3x4 \{%r\d+(, %r\d+){3}\}, \[%rd\d+\];
  load<f8e4m3, 4, HardwareReduceOp::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.e4m3x4 %r\d+, \[%rd\d+\];
  load<f8e4m3, 8, HardwareReduceOp::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v2\.e4m3x4 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e4m3, 16, HardwareReduceOp::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v4\.e4m3x4 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e4m3, 4, HardwareReduceOp::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.e4m3x4 %r\d+, \[%rd\d+\];
  load<f8e4m3, 8, HardwareReduceOp::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v2\.e4m3x4 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e4m3, 16, HardwareReduceOp::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v4\.e4m3x4 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
}

__global__ void e5m2(MulticastAddress address, std::byte* to) {
  load<f8e5m2, 4, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.e5m2x4 %r\d+, \[%rd\d+\];
  load<f8e5m2, 8, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v2\.e5m2x4 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e5m2, 16, HardwareReduceOp::Add, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v4\.e5m2x4 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e5m2, 4, HardwareReduceOp::Add, Accumulation::F16>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.e5m2x4 %r\d+, \[%rd\d+\];
  load<f8e5m2, 8, HardwareReduceOp::Add, Accumulation::F16>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.v2\.e5m2x4 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e5m2, 16, HardwareReduceOp::Add, Accumulation::F16>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.v4\.e5m2x4 \{%r\d+(, %r\d+){3}\}, \[%rd\d+\];
  load<f8e5m2, 4, HardwareReduceOp::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.e5m2x4 %r\d+, \[%rd\d+\];
  load<f8e5m2, 8, HardwareReduceOp::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v2\.e5m2x4 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e5m2, 16, HardwareReduceOp::Min, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v4\.e5m2x4 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e5m2, 4, HardwareReduceOp::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.e5m2x4 %r\d+, \[%rd\d+\];
  load<f8e5m2, 8, HardwareReduceOp::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v2\.e5m2x4 \{%r\d+, %r\d+\}, \[%rd\d+\];
  load<f8e5m2, 16, HardwareReduceOp::Max, Accumulation::Native>(address, to);
  // PTX: multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v4\.e5m2x4 \{%r\d+, %r\d+, %r\d+, %r\d+\}, \[%rd\d+\];
}
