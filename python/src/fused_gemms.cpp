// Bindings of the matrix multiplications with a collective inside.
#include "mscclpp/kernels/fused_gemms.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <optional>

#include "module.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/kernels/collectives.hpp"

namespace mscclpp::python {

namespace {

void runGemm(FusedGemms& self, GemmCollective collective, std::uintptr_t input, std::uintptr_t weight,
             std::uintptr_t output, std::size_t rows, std::size_t width, std::size_t depth, std::uintptr_t stream,
             DataType operands, std::uintptr_t inputScales, std::uintptr_t weightScales, bool useFastAccum) {
  self.run(collective,
           {.input = toPointer(input),
            .weight = toPointer(weight),
            .output = toPointer(output),
            .rows = rows,
            .stream = static_cast<CUstream_st*>(toPointer(stream)),
            .width = width,
            .depth = depth,
            .inputScales = static_cast<const float*>(toPointer(inputScales)),
            .weightScales = static_cast<const float*>(toPointer(weightScales))},
           operands, useFastAccum);
}

std::optional<GemmForm> formOf(const FusedGemms& self, GemmCollective collective, std::size_t rows, std::size_t width,
                               std::size_t depth, DataType operands, bool useFastAccum, bool hasNorm) {
  const RmsNormCall norm;
  return self.form(collective, {.rows = rows, .width = width, .depth = depth, .norm = hasNorm ? &norm : nullptr},
                   operands, useFastAccum);
}

}  // namespace

void bindFusedGemms(nb::module_& module) {
  nb::enum_<GemmCollective>(module, "GemmCollective", "What a fused GEMM does with input * transpose of weight.")
      .value("all_reduce", GemmCollective::AllReduce, "Their sum over the ranks, on all ranks.")
      .value("reduce_scatter", GemmCollective::ReduceScatter, "Of that sum, rank r gets slice r of the rows.")
      .value("all_gather", GemmCollective::AllGather, "The inputs are slices of the rows, which all ranks multiply.");
  nb::enum_<GemmForm>(module, "GemmForm", "How a fused GEMM is computed on GPUs.")
      .value("fused", GemmForm::Fused, "By the library's kernels with the collective inside; also on CPU ranks.")
      .value("cutlass", GemmForm::Cutlass, "By kernels of CUTLASS with the collective inside.")
      .value("serial", GemmForm::Serial, "By a GEMM of cuBLAS and a collective.")
      .value("overlapped", GemmForm::Overlapped, "An all-gather by the copy engines beside GEMMs of cuBLAS.");
  nb::class_<FusedGemms>(
      module, "FusedGemms",
      "Matrix multiplications of bfloat16 or fp8 with a collective inside, of one group and kind of device; "
      "CommGroup has them on arrays.")
      .def(
          nb::new_([](std::shared_ptr<Communicator> communicator, DeviceType deviceType,
                      std::shared_ptr<Collectives> collectives) {
            return makeShared<FusedGemms>(std::move(communicator), deviceType, std::move(collectives));
          }),
          "communicator"_a, "device_type"_a, "collectives"_a = nb::none(),
          "collectives: of the same communicator; with them a call on GPUs takes cuBLAS and a collective where a model "
          "estimates that to be faster.")
      .def(
          "run", &runGemm, "collective"_a, "input"_a, "weight"_a, "output"_a, "rows"_a, "width"_a, "depth"_a,
          "stream"_a = 0, "operands"_a = DataType::BFLOAT16, "input_scales"_a = 0, "weight_scales"_a = 0,
          "use_fast_accum"_a = false, Unlocked(),
          "Performs a call; on GPUs enqueues it. Called by all ranks, in the same order. Arrays are addresses of "
          "row-major matrices: input rows x depth, weight width x depth, output rows x width. rows: of all ranks; with "
          "all_gather the input, and with reduce_scatter the output, has this rank's slice of them. operands: the type "
          "of input and weight, bfloat16 or float8_e4m3fn; the output is bfloat16. With float8_e4m3fn element (r, c) "
          "of the product is multiplied by input_scales[r] * weight_scales[c], arrays of float32; all_gather: "
          "input_scales are those of this rank's input, and gathered with it. use_fast_accum: as of torch._scaled_mm.")
      .def("form", &formOf, "collective"_a, "rows"_a, "width"_a, "depth"_a, "operands"_a = DataType::BFLOAT16,
           "use_fast_accum"_a = false, "has_norm"_a = false,
           "The GemmForm of run() with these sizes; rows: of all ranks. has_norm: of the operators with a norm. None "
           "before the first call that needs the same scratch.")
      .def("check", &FusedGemms::check, Unlocked(),
           "Raises RemoteError, Timeout or Aborted if a wait of an earlier call failed; on GPUs synchronise the stream "
           "before.");
}

}  // namespace mscclpp::python
