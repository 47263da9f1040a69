#include "mscclpp/host/communicator/collective_state.hpp"

#include <string>
#include <utility>
#include <vector>

#include "host/base/byte_stream.hpp"
#include "host/bootstrap/group_agreement.hpp"
#include "host/communicator/group_setup.hpp"
#include "host/memory/device_memory.hpp"
#include "mscclpp/collective/epoch.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp::detail {

namespace {

constexpr WireFormat requestFormat{"request for the state of a collective", 0x4c4c4f43, 1};

// A request, as the ranks compare it.
struct Property {
  const char* name;
  std::uint64_t value;
};
std::vector<Property> propertiesOf(const CollectiveStateRequest& request) {
  return {
      {"device type", static_cast<std::uint64_t>(request.where)},
      {"type of collective, as a number,", request.type},
      {"maxCount", request.maxCount},
      {"PipelineShape::tilePacks", request.shape.tilePacks},
      {"PipelineShape::blocks", static_cast<std::uint64_t>(request.shape.blocks)},
      {"PipelineShape::slots", static_cast<std::uint64_t>(request.shape.slots)},
      {"size of the scratch in bytes", request.windowBytes},
      {"initial byte of the scratch", static_cast<std::uint64_t>(request.initialByte)},
      {"first epoch", request.firstEpoch},
  };
}

[[noreturn]] void throwInvalidUsage(const std::string& why) {
  throw Error("CollectiveState: " + why, ErrorCode::InvalidUsage);
}

void requireValid(const CollectiveStateRequest& request, int ranks) {
  // Beyond it the size of the scratch might overflow.
  constexpr std::size_t mostElements = std::size_t{1} << 48;
  const PipelineShape& shape = request.shape;
  if (request.where != DeviceType::CPU && request.where != DeviceType::GPU) {
    throwInvalidUsage("the device type must be DeviceType::CPU or DeviceType::GPU");
  }
  if (ranks > maxTeamSize) {
    throwInvalidUsage("a team has at most " + std::to_string(maxTeamSize) + " ranks, the communicator has " +
                      std::to_string(ranks) + ": split it");
  }
  if (request.ranks > 0 && request.ranks != ranks) {
    throwInvalidUsage("the collective is configured for " + std::to_string(request.ranks) +
                      " ranks, the communicator has " + std::to_string(ranks) +
                      ": configure it for as many, or with .ranks = 0 for any number");
  }
  if (request.maxCount > mostElements) {
    throwInvalidUsage("maxCount is " + std::to_string(request.maxCount) + "; was it a negative number?");
  }
  if (shape.blocks < 1 || shape.blocks > maxBlocks || shape.tilePacks == 0 || shape.tilePacks % 8 != 0) {
    throwInvalidUsage(
        "PipelineShape has " + std::to_string(shape.tilePacks) + " packs per tile and " + std::to_string(shape.blocks) +
        " blocks: the packs must be a positive multiple of 8, the blocks 1 to " + std::to_string(maxBlocks));
  }
  if (!request.isAccepted) {
    throwInvalidUsage(
        "the collective does not accept calls with PipelineShape::slots = " + std::to_string(shape.slots) +
        ": they must be a power of two, at least twice the lookahead, and enough for its stages");
  }
}

void requireSameRequests(const GroupAgreement& agreement, const CollectiveStateRequest& request) {
  const auto requests = agreement.runStep("state what the collective needs", [&] {
    requireValid(request, agreement.size());
    ByteWriter writer(requestFormat);
    for (const Property& property : propertiesOf(request)) writer.put(property.value);
    return writer.finish();
  });
  const auto read = [](const std::vector<char>& bytes, std::size_t properties) {
    ByteReader reader(bytes, requestFormat);
    std::vector<std::uint64_t> values;
    for (std::size_t i = 0; i < properties; ++i) values.push_back(reader.get<std::uint64_t>());
    reader.expectEnd();
    return values;
  };
  const auto properties = propertiesOf(request);
  const auto first = read(requests[0], properties.size());
  for (std::size_t rank = 1; rank < requests.size(); ++rank) {
    const auto other = read(requests[rank], properties.size());
    for (std::size_t i = 0; i < properties.size(); ++i) {
      if (other[i] == first[i]) continue;
      throwInvalidUsage(std::string("the ") + properties[i].name + " is " + std::to_string(first[i]) +
                        " on rank 0, but " + std::to_string(other[i]) + " on rank " + std::to_string(rank) +
                        "; every rank must construct the same state");
    }
  }
}

}  // namespace

CollectiveMemory::CollectiveMemory(Communicator& communicator, const CollectiveStateRequest& request,
                                   std::shared_ptr<WaitMonitor> monitor)
    : monitor_(std::move(monitor)) {
  const GroupSetup setup(communicator);
  const GroupAgreement agreement(*communicator.bootstrap(), "CollectiveState");
  requireSameRequests(agreement, request);
  scratch_ = std::make_shared<SymmetricMemory>(communicator, request.windowBytes, request.where);
  // Also a barrier: no rank may send before all have initialised their memory.
  agreement.runStep("initialise its scratch and epochs", [&] {
    // The memory is zero-filled: pages that no call uses stay untouched.
    if (request.initialByte != 0) {
      fillMemory(request.where, scratch_->local(), request.initialByte, request.windowBytes);
    }
    const std::vector<std::uint64_t> words(epochWords, request.firstEpoch);
    epochs_ = allocatePrivateMemory(request.where, words.size() * sizeof(std::uint64_t));
    writeMemory(request.where, epochs_.get(), words.data(), words.size() * sizeof(std::uint64_t));
    monitor_ = WaitMonitor::ofTeam(communicator, request.where, std::move(monitor_));
    return std::vector<char>();
  });
}

std::size_t CollectiveMemory::bytes() const noexcept {
  return scratch_->bytes() + epochWords * sizeof(std::uint64_t);
}

BoundedWait CollectiveMemory::wait() const {
  return {monitor_->deviceControl(), static_cast<std::uint64_t>(monitor_->timeout().count())};
}

void CollectiveMemory::throwOverCapacity(std::size_t count, std::size_t maxCount) {
  throwInvalidUsage("a call with " + std::to_string(count) + " elements does not fit in the scratch, which is for " +
                    std::to_string(maxCount) + ": construct the state with a larger maxCount, on all ranks");
}

int CollectiveMemory::sizeOf(Communicator& communicator) {
  return communicator.bootstrap()->getNranks();
}

}  // namespace mscclpp::detail
