#include "fused_gemms.hpp"

#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <bit>

#include "module.hpp"

namespace mscclpp::python {

namespace {

constexpr std::size_t fewestRows = 64;  // scratch for fewer is not worth another set-up

void runGemm(FusedGemms& self, GemmCollective collective, std::uintptr_t input, std::uintptr_t weight,
             std::uintptr_t output, std::size_t rows, std::size_t width, std::size_t depth, std::uintptr_t stream) {
  self.run(collective, {.input = toPointer(input),
                        .weight = toPointer(weight),
                        .output = toPointer(output),
                        .rows = rows,
                        .stream = static_cast<CUstream_st*>(toPointer(stream)),
                        .width = width,
                        .depth = depth});
}

}  // namespace

void FusedGemms::run(GemmCollective collective, const FusedGemmCall& call) {
  if (call.rows == 0) return;
  const bool hasNorm = call.norm != nullptr;
  auto& bySize = gemms_[{collective, collective == GemmCollective::AllGather ? call.depth : call.width, hasNorm}];
  auto found = bySize.lower_bound(call.rows);
  if (found == bySize.end()) {
    const GemmLayer layer{.collective = collective,
                          .maxRows = std::bit_ceil(std::max(call.rows, fewestRows)),
                          .width = call.width,
                          .depth = call.depth,
                          .hasNorm = hasNorm};
    found = bySize.emplace(layer.maxRows, makeFusedGemm(*communicator_, layer, deviceType_, collectives_)).first;
  }
  found->second->check();
  found->second->run(call);
}

void FusedGemms::check() const {
  for (const auto& [key, bySize] : gemms_) {
    for (const auto& [rows, gemm] : bySize) gemm->check();
  }
}

void bindFusedGemms(nb::module_& module) {
  nb::enum_<GemmCollective>(module, "GemmCollective", "What a fused GEMM does with input * transpose of weight.")
      .value("all_reduce", GemmCollective::AllReduce, "Their sum over the ranks, on all ranks.")
      .value("reduce_scatter", GemmCollective::ReduceScatter, "Of that sum, rank r gets slice r of the rows.")
      .value("all_gather", GemmCollective::AllGather, "The inputs are slices of the rows, which all ranks multiply.");
  nb::class_<FusedGemms>(
      module, "FusedGemms",
      "Matrix multiplications of bfloat16 with a collective inside, of one group and kind of device; "
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
          "stream"_a = 0, Unlocked(),
          "Performs a call; on GPUs enqueues it. Called by all ranks, in the same order. Arrays are addresses of "
          "row-major matrices: input rows x depth, weight width x depth, output rows x width. rows: of all ranks; with "
          "all_gather the input, and with reduce_scatter the output, has this rank's slice of them.")
      .def("check", &FusedGemms::check, Unlocked(),
           "Raises RemoteError, Timeout or Aborted if a wait of an earlier call failed; on GPUs synchronise the stream "
           "before.");
}

}  // namespace mscclpp::python
