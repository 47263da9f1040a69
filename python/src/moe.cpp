// Dispatch and combine of a mixture of experts.
#include <nanobind/stl/function.h>
#include <nanobind/stl/shared_ptr.h>

#include <utility>

#include "module.hpp"
#include "mscclpp/kernels/moe_buffer.hpp"

namespace mscclpp::python {

namespace {

template <class T>
T* at(std::uintptr_t address) {
  return static_cast<T*>(toPointer(address));
}

CUstream_st* toStream(std::uintptr_t stream) {
  return static_cast<CUstream_st*>(toPointer(stream));
}

/// For Python: without the interpreter's lock, since other ranks may be threads of this process.
moe::ReceiveHook withoutLock(moe::ReceiveHook hook) {
  if (!hook) return {};
  return [hook = std::move(hook)] { unlocked([&] { hook(); }); };
}

/// A call of either form; returns what receives, or nothing.
moe::ReceiveHook dispatch(moe::Buffer& self, bool isLowLatency, std::uintptr_t rows, std::uintptr_t scales,
                          std::uintptr_t experts, std::uintptr_t weights, std::uint32_t tokens, std::uintptr_t output,
                          std::uintptr_t outputScales, std::uintptr_t counts, std::uintptr_t offsets,
                          std::uint32_t capacity, std::uintptr_t handleMemory, std::uintptr_t stream,
                          bool returnsHook) {
  const moe::Tokens input{toPointer(rows), at<float>(scales), at<std::int64_t>(experts), at<float>(weights), tokens};
  const moe::ExpertBatch batch{
      toPointer(output), at<float>(outputScales), at<std::uint32_t>(counts), at<std::uint32_t>(offsets), nullptr,
      capacity};
  auto handle = self.makeHandle(toPointer(handleMemory));
  if (isLowLatency) return withoutLock(self.lowLatencyDispatch(input, batch, handle, toStream(stream), returnsHook));
  self.dispatch(input, batch, handle, toStream(stream));
  return {};
}

moe::ReceiveHook combine(moe::Buffer& self, bool isLowLatency, std::uintptr_t results, std::uintptr_t output,
                         std::uint32_t tokens, std::uintptr_t handleMemory, std::uintptr_t stream, bool returnsHook) {
  const auto form = isLowLatency ? moe::Form::LowLatency : moe::Form::Bandwidth;
  const auto handle = self.restoreHandle(toPointer(handleMemory), form, tokens);
  void* const to = toPointer(output);
  const void* const from = toPointer(results);
  if (isLowLatency) return withoutLock(self.lowLatencyCombine(from, to, handle, toStream(stream), returnsHook));
  self.combine(from, to, handle, toStream(stream));
  return {};
}

}  // namespace

void bindMoe(nb::module_& module) {
  nb::enum_<moe::RowFormat>(module, "MoeRowFormat", "What dispatch is given and what it delivers.")
      .value("Bf16", moe::RowFormat::Bf16)
      .value("Fp8", moe::RowFormat::Fp8)
      .value("QuantiseBf16", moe::RowFormat::QuantiseBf16);
  nb::class_<moe::Buffer>(module, "MoeBuffer",
                          "Dispatch and combine of a mixture of experts; mscclpp.moe.Buffer takes tensors.")
      .def(nb::new_([](std::shared_ptr<Communicator> communicator, DeviceType deviceType, std::uint32_t maxTokens,
                       std::uint32_t maxLowLatencyTokens, int topk, int experts, std::uint32_t hidden,
                       moe::RowFormat format, std::uint32_t alignment, int blocks, int lowLatencyBlocks,
                       bool bulkCopies) {
             return unlocked([&] {
               return makeShared<moe::Buffer>(
                   *communicator, deviceType,
                   moe::BufferConfig{maxTokens, maxLowLatencyTokens, topk, experts, hidden, format, alignment, blocks,
                                     lowLatencyBlocks, bulkCopies});
             });
           }),
           "communicator"_a, "device_type"_a, "max_tokens"_a, "max_low_latency_tokens"_a, "topk"_a, "experts"_a,
           "hidden"_a, "format"_a, "alignment"_a = 1, "blocks"_a = 0, "low_latency_blocks"_a = 0,
           "bulk_copies"_a = false, nb::keep_alive<1, 2>())
      .def_prop_ro("scale_groups", &moe::Buffer::scaleGroups)
      .def_prop_ro("largest_capacity", &moe::Buffer::largestCapacity)
      .def_prop_ro("low_latency_capacity", &moe::Buffer::lowLatencyCapacity)
      .def_prop_ro("default_capacity", &moe::Buffer::defaultCapacity)
      .def_prop_ro("row_bytes", &moe::Buffer::rowBytes)
      .def_prop_ro("scratch_bytes", &moe::Buffer::scratchBytes)
      .def_prop_ro("handle_bytes", &moe::Buffer::handleBytes)
      .def(
          "get_dispatch_layout",
          [](moe::Buffer& self, std::uintptr_t experts, std::uint32_t tokens, std::uintptr_t perRank,
             std::uintptr_t perExpert, std::uintptr_t rankIndex, std::uintptr_t expertIndex, std::uintptr_t stream) {
            self.getDispatchLayout({nullptr, nullptr, at<std::int64_t>(experts), nullptr, tokens},
                                   {at<std::uint32_t>(perRank), at<std::uint32_t>(perExpert),
                                    at<std::int32_t>(rankIndex), at<std::int32_t>(expertIndex)},
                                   toStream(stream));
          },
          "experts"_a, "tokens"_a, "per_rank"_a, "per_expert"_a, "rank_index"_a, "expert_index"_a, "stream"_a = 0,
          Unlocked())
      .def("dispatch", &dispatch, "low_latency"_a, "rows"_a, "scales"_a, "experts"_a, "weights"_a, "tokens"_a,
           "output"_a, "output_scales"_a, "counts"_a, "offsets"_a, "capacity"_a, "handle"_a, "stream"_a = 0,
           "returns_hook"_a = false, Unlocked(), "Addresses of arrays on the buffer's device.")
      .def("combine", &combine, "low_latency"_a, "results"_a, "output"_a, "tokens"_a, "handle"_a, "stream"_a = 0,
           "returns_hook"_a = false, Unlocked())
      .def("check", &moe::Buffer::check, Unlocked(), "Raises what a failed call has left.");
}

}  // namespace mscclpp::python
