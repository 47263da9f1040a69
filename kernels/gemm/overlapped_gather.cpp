#include "overlapped_gather.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>

#include "kernels/gemm/staged_matrix.hpp"
#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/basic/partition.hpp"

namespace mscclpp::kernels {

namespace {

/// Scales of so many rows are 16 bytes, at multiples of which cuBLAS takes them: parts and ranks begin there.
constexpr std::size_t scaleUnit = 4;

}  // namespace

OverlappedGather::OverlappedGather(Communicator& communicator, std::shared_ptr<const Cublas> cublas,
                                   std::size_t maxRows, std::size_t depth, std::shared_ptr<WaitMonitor> monitor)
    : rank_(static_cast<std::size_t>(communicator.bootstrap()->getRank())),
      ranks_(static_cast<std::size_t>(communicator.bootstrap()->getNranks())),
      cublas_(std::move(cublas)),
      elementBytes_(sizeOf(cublas_->operands())),
      scalesStart_(roundUp(maxRows / ranks_ * (ranks_ - 1) * depth * elementBytes_, scaleUnit * sizeof(float))),
      scalePitch_(cublas_->operands() == DataType::BFLOAT16 ? 0 : roundUp(maxRows / ranks_, scaleUnit)),
      gathered_(communicator, scalesStart_ + scalePitch_ * (ranks_ - 1) * sizeof(float), DeviceType::GPU),
      pipeline_(communicator, "FusedGemm", std::move(monitor)) {}

void OverlappedGather::run(const FusedGemmCall& call, std::size_t parts) {
  const std::size_t own = call.rows / ranks_;
  // In a step each rank sends a part to one other, in the next step to the next one: while the ranks keep pace, no two
  // send to the same rank.
  const std::size_t peers = ranks_ - 1, steps = peers * parts;
  const auto distanceOf = [&](std::size_t step) { return 1 + step % peers; };
  const std::size_t partRows = roundUp(ceilDivide(own, parts), scaleUnit);
  const auto partOf = [&](std::size_t step) { return steppedPart(own, partRows, step / peers); };
  const std::size_t rowBytes = call.depth * elementBytes_;
  // Of the other ranks, as a rank has gathered their rows.
  const auto indexOf = [](std::size_t rank, std::size_t other) { return other < rank ? other : other - 1; };
  // What cuBLAS would copy for each part, it finds as it wants it.
  const auto staged = [&](const void* array, MatrixSize size, std::size_t bytes) {
    return StagedMatrix(Staging::Input, array, size, size, bytes, call.stream);
  };
  const bool hasScales = call.inputScales != nullptr;
  const StagedMatrix weight = staged(hasScales ? call.weight : nullptr, {call.width, call.depth}, elementBytes_);
  const StagedMatrix weightScales = staged(call.weightScales, {1, call.width}, sizeof(float));
  const StagedMatrix ownScales = staged(call.inputScales, {1, own}, sizeof(float));
  // input, inputScales: of `rank`, of which `rows` are multiplied.
  const auto multiply = [&](const void* input, const void* inputScales, std::size_t rank, Range rows) {
    if (rows.size() == 0) return;
    const std::size_t first = rank * own + rows.begin;
    auto* const output = static_cast<std::byte*>(call.output) + first * call.width * sizeOf(DataType::BFLOAT16);
    Cublas::Scales scales{};
    if (hasScales)
      scales = {static_cast<const float*>(inputScales) + rows.begin, static_cast<const float*>(weightScales.data())};
    cublas_->multiply(static_cast<const std::byte*>(input) + rows.begin * rowBytes,
                      hasScales ? weight.data() : call.weight, output, rows.size(), call.width, call.depth, call.stream,
                      scales);
  };
  const auto* const input = static_cast<const std::byte*>(call.input);
  const auto* const gathered = static_cast<const std::byte*>(gathered_.local());
  // From another rank, in the memory of one.
  const auto scalesAt = [&](std::size_t index) { return scalesStart_ + index * scalePitch_ * sizeof(float); };
  std::size_t sent = 0;
  const auto sendUntil = [&](std::size_t end) {
    for (; sent < std::min(end, steps); ++sent) {
      const Range rows = partOf(sent);
      const std::size_t to = (rank_ + distanceOf(sent)) % ranks_;
      const std::size_t index = indexOf(to, rank_);
      const auto peer = static_cast<int>(to);
      if (hasScales && rows.begin == 0) {
        pipeline_.copy(gathered_.window().at(peer, scalesAt(index)), ownScales.data(), own * sizeof(float));
      }
      if (rows.size() > 0) {
        pipeline_.copy(gathered_.window().at(peer, (index * own + rows.begin) * rowBytes),
                       input + rows.begin * rowBytes, rows.size() * rowBytes);
      }
      pipeline_.endStep();
    }
  };
  pipeline_.begin(call.stream);
  try {
    // Before each GEMM at most one step of copies is enqueued, so that the GEMM is not late.
    sendUntil(1);
    multiply(input, ownScales.data(), rank_, {0, own});
    for (std::size_t step = 0; step < steps; ++step) {
      sendUntil(step + 2);
      pipeline_.wait(step);
      const std::size_t from = (rank_ + ranks_ - distanceOf(step)) % ranks_;
      const std::size_t index = indexOf(rank_, from);
      multiply(gathered + index * own * rowBytes, gathered + scalesAt(index), from, partOf(step));
    }
  } catch (...) {
    // The other ranks wait for all steps. A capture must not end with a stream that has left it, nor the caller change
    // what is being copied.
    try {
      sendUntil(steps);
    } catch (const std::exception&) {  // the first error says more
    }
    pipeline_.abandon();
    throw;
  }
}

}  // namespace mscclpp::kernels
