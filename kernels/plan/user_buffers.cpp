#include "user_buffers.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "host/bootstrap/group_agreement.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp::kernels {

namespace {

/// The least size of Staging: so many messages are not set up one by one.
constexpr std::size_t leastStagingBytes = std::size_t{16} << 10;

std::size_t offsetIn(const MemoryRange& allocation, const void* data) {
  return data == nullptr ? 0
                         : reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(allocation.begin);
}

}  // namespace

bool BufferRequest::hasOffsets() const noexcept {
  return std::any_of(ofRanks.begin(), ofRanks.end(),
                     [](const Sizes& of) { return of.inputOffset != 0 || of.outputOffset != 0; });
}

UserBuffers::UserBuffers(Communicator& communicator, const Backend& backend, const BufferRequest& request) {
  const auto rank = static_cast<std::size_t>(communicator.bootstrap()->getRank());
  const BufferRequest::Sizes& own = request.ofRanks[rank];
  std::vector<MemoryRange> ranges;
  if (request.inPlace) {
    ranges.push_back({own.input > own.output ? request.input : request.output, own.both()});
  } else {
    ranges.push_back({request.input, own.input});
    ranges.push_back({request.output, own.output});
  }
  std::vector<MemoryRange> allocations;
  const mscclpp::detail::GroupAgreement agreement(*communicator.bootstrap(), "Executor");
  const auto all = agreement.runStep("find the allocations of its buffers", [&] {
    std::vector<std::uint64_t> offsets;
    for (MemoryRange& range : ranges) {
      if (range.bytes == 0) range.begin = nullptr;
      allocations.push_back(range.bytes == 0 ? range : backend.allocationOf(range));
      offsets.push_back(offsetIn(allocations.back(), range.begin));
    }
    std::vector<char> bytes(offsets.size() * sizeof(std::uint64_t));
    std::memcpy(bytes.data(), offsets.data(), bytes.size());
    return bytes;
  });
  for (std::size_t i = 0; i < allocations.size(); ++i) {
    auto buffer = RegisteredBuffer::tryRegister(communicator, allocations[i].begin, allocations[i].bytes);
    if (!buffer) {
      buffers_.clear();
      return;
    }
    Registered registered{std::move(*buffer), {}};
    for (const std::vector<char>& ofRank : all) {
      std::uint64_t offset = 0;
      std::memcpy(&offset, ofRank.data() + i * sizeof(offset), sizeof(offset));
      registered.offsets.push_back(offset);
    }
    buffers_.push_back(std::move(registered));
  }
}

std::byte* UserBuffers::Registered::at(int rank) const {
  auto* const base = static_cast<std::byte*>(buffer.peer(rank));
  return base == nullptr ? nullptr : base + offsets[static_cast<std::size_t>(rank)];
}

BufferWindows UserBuffers::windows(const BufferRequest& request) const {
  BufferWindows windows;
  for (std::size_t rank = 0; rank < request.ofRanks.size(); ++rank) {
    const BufferRequest::Sizes& of = request.ofRanks[rank];
    std::byte* const input = buffers_.front().at(static_cast<int>(rank));
    std::byte* const output = buffers_.back().at(static_cast<int>(rank));
    windows.input.base[rank] = input == nullptr ? nullptr : input + of.inputOffset;
    windows.output.base[rank] = output == nullptr ? nullptr : output + of.outputOffset;
  }
  return windows;
}

const RegisteredMemory& UserBuffers::memory(bool isOutput, int rank) const {
  return (isOutput ? buffers_.back() : buffers_.front()).buffer.memory(rank);
}

void UserBuffers::requireAllocated() const {
  for (const Registered& registered : buffers_) {
    if (registered.buffer.isAllocated()) continue;
    throw Error(
        "Executor: a buffer that a plan was set up for has been freed, and its address was allocated again: keep the "
        "buffers of plans allocated, or call reset() on all ranks before they are freed",
        ErrorCode::InvalidUsage);
  }
}

std::size_t Staging::bytesFor(const BufferRequest& request) {
  std::size_t most = leastStagingBytes;
  for (const BufferRequest::Sizes& of : request.ofRanks) most = std::max(most, of.both());
  // In steps of an eighth of a power of two.
  const std::size_t rounded = roundUp(most, std::bit_floor(most) / 8);
  return request.inPlace ? rounded : 2 * rounded;
}

Staging::Staging(Communicator& communicator, DeviceType where, bool inPlace, std::size_t bytes)
    : outputOffset_(inPlace ? 0 : bytes / 2), memory_(std::make_unique<SymmetricMemory>(communicator, bytes, where)) {}

BufferWindows Staging::windows(const BufferRequest& request) const {
  BufferWindows windows;
  for (std::size_t rank = 0; rank < request.ofRanks.size(); ++rank) {
    auto* const base = static_cast<std::byte*>(memory_->peer(static_cast<int>(rank)));
    windows.input.base[rank] = base + request.ofRanks[rank].inputOffset;
    windows.output.base[rank] = base + outputOffset_ + request.ofRanks[rank].outputOffset;
  }
  return windows;
}

}  // namespace mscclpp::kernels
