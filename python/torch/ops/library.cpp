// torch.ops.mscclpp: the schemas of the operators and their kernels, through the stable ABI of PyTorch.
#include <torch/csrc/stable/library.h>

#include "collectives.hpp"
#include "fused_gemm.hpp"
#include "rms_norm.hpp"

namespace ops = mscclpp::python::ops;

// An operator that writes a tensor returns nothing: compilers can then make it a functional one.
STABLE_TORCH_LIBRARY(mscclpp, library) {
  library.def("all_reduce(Tensor tensor, str group, str op='sum') -> Tensor");
  library.def("all_reduce_(Tensor(a!) tensor, str group, str op='sum') -> ()");
  library.def("all_reduce_fp8(Tensor tensor, str group) -> Tensor");
  library.def("all_reduce_fp8_(Tensor(a!) tensor, str group) -> ()");
  library.def("all_gather(Tensor tensor, str group) -> Tensor");
  library.def("all_gather_into(Tensor(a!) out, Tensor tensor, str group) -> ()");
  library.def("reduce_scatter(Tensor tensor, str group, str op='sum') -> Tensor");
  library.def("reduce_scatter_into(Tensor(a!) out, Tensor tensor, str group, str op='sum') -> ()");
  library.def("all_to_all(Tensor tensor, str group) -> Tensor");
  library.def("all_to_all_into(Tensor(a!) out, Tensor tensor, str group) -> ()");
  library.def("broadcast(Tensor tensor, str group, int root=0) -> Tensor");
  library.def("broadcast_(Tensor(a!) tensor, str group, int root=0) -> ()");
  library.def(
      "all_reduce_rms_norm(Tensor tensor, Tensor? residual, Tensor weight, str group, float epsilon=1e-6) -> (Tensor, "
      "Tensor)");
  library.def(
      "all_reduce_rms_norm_(Tensor(a!) tensor, Tensor(b!) residual, Tensor weight, str group, float epsilon=1e-6) -> "
      "()");
  library.def(
      "all_reduce_rms_norm_quantised(Tensor tensor, Tensor? residual, Tensor weight, str group, str quantisation, "
      "Tensor? scale=None, float epsilon=1e-6) -> (Tensor, Tensor, Tensor)");
  library.def(
      "gemm_all_reduce(Tensor input, Tensor weight, str group, Tensor? input_scales=None, Tensor? weight_scales=None, "
      "bool use_fast_accum=False) "
      "-> Tensor");
  library.def(
      "gemm_reduce_scatter(Tensor input, Tensor weight, str group, Tensor? input_scales=None, Tensor? "
      "weight_scales=None, bool use_fast_accum=False) -> Tensor");
  library.def(
      "all_gather_gemm(Tensor input, Tensor weight, str group, Tensor? input_scales=None, Tensor? weight_scales=None, "
      "bool use_fast_accum=False) "
      "-> Tensor");
  library.def(
      "gemm_all_reduce_rms_norm(Tensor input, Tensor weight, Tensor? residual, Tensor norm_weight, str group, float "
      "epsilon=1e-6, Tensor? input_scales=None, Tensor? weight_scales=None, bool use_fast_accum=False) -> (Tensor, "
      "Tensor)");
  library.def(
      "gemm_reduce_scatter_rms_norm(Tensor input, Tensor weight, Tensor? residual, Tensor norm_weight, str group, "
      "float epsilon=1e-6, Tensor? input_scales=None, Tensor? weight_scales=None, bool use_fast_accum=False) -> "
      "(Tensor, Tensor)");
  library.def(
      "gemm_all_reduce_rms_norm_quantised(Tensor input, Tensor weight, Tensor? residual, Tensor norm_weight, str "
      "group, str quantisation, Tensor? scale=None, float epsilon=1e-6, Tensor? input_scales=None, Tensor? "
      "weight_scales=None, bool use_fast_accum=False) -> (Tensor, Tensor, Tensor)");
  library.def(
      "gemm_reduce_scatter_rms_norm_quantised(Tensor input, Tensor weight, Tensor? residual, Tensor norm_weight, str "
      "group, str quantisation, Tensor? scale=None, float epsilon=1e-6, Tensor? input_scales=None, Tensor? "
      "weight_scales=None, bool use_fast_accum=False) -> (Tensor, Tensor, Tensor)");
}

namespace {

void addKernels(torch::stable::detail::StableLibrary& library) {
  library.impl("all_reduce", TORCH_BOX(&ops::allReduce));
  library.impl("all_reduce_", TORCH_BOX(&ops::allReduceInPlace));
  library.impl("all_reduce_fp8", TORCH_BOX(&ops::allReduceFp8));
  library.impl("all_reduce_fp8_", TORCH_BOX(&ops::allReduceFp8InPlace));
  library.impl("all_gather", TORCH_BOX(&ops::allGather));
  library.impl("all_gather_into", TORCH_BOX(&ops::allGatherInto));
  library.impl("reduce_scatter", TORCH_BOX(&ops::reduceScatter));
  library.impl("reduce_scatter_into", TORCH_BOX(&ops::reduceScatterInto));
  library.impl("all_to_all", TORCH_BOX(&ops::allToAll));
  library.impl("all_to_all_into", TORCH_BOX(&ops::allToAllInto));
  library.impl("broadcast", TORCH_BOX(&ops::broadcast));
  library.impl("broadcast_", TORCH_BOX(&ops::broadcastInPlace));
  library.impl("all_reduce_rms_norm", TORCH_BOX(&ops::allReduceRmsNorm));
  library.impl("all_reduce_rms_norm_", TORCH_BOX(&ops::allReduceRmsNormInPlace));
  library.impl("all_reduce_rms_norm_quantised", TORCH_BOX(&ops::allReduceRmsNormQuantised));
  library.impl("gemm_all_reduce", TORCH_BOX(&ops::gemmAllReduce));
  library.impl("gemm_reduce_scatter", TORCH_BOX(&ops::gemmReduceScatter));
  library.impl("all_gather_gemm", TORCH_BOX(&ops::allGatherGemm));
  library.impl("gemm_all_reduce_rms_norm", TORCH_BOX(&ops::gemmAllReduceRmsNorm));
  library.impl("gemm_reduce_scatter_rms_norm", TORCH_BOX(&ops::gemmReduceScatterRmsNorm));
  library.impl("gemm_all_reduce_rms_norm_quantised", TORCH_BOX(&ops::gemmAllReduceRmsNormQuantised));
  library.impl("gemm_reduce_scatter_rms_norm_quantised", TORCH_BOX(&ops::gemmReduceScatterRmsNormQuantised));
}

}  // namespace

STABLE_TORCH_LIBRARY_IMPL(mscclpp, CPU, library) {
  addKernels(library);
}
STABLE_TORCH_LIBRARY_IMPL(mscclpp, CUDA, library) {
  addKernels(library);
}
