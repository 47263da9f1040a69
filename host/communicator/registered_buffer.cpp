#include "mscclpp/host/communicator/registered_buffer.hpp"

#include <cstdint>
#include <vector>

#include "host/base/byte_stream.hpp"
#include "host/base/error_message.hpp"
#include "host/base/printable_text.hpp"
#include "host/bootstrap/group_agreement.hpp"
#include "host/communicator/group_setup.hpp"
#include "host/cuda/gpu_backend.hpp"
#include "host/memory/device_memory.hpp"
#include "host/transport/memory_registration.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp {

namespace {

constexpr detail::WireFormat reportFormat{"registration of a buffer", 0x52474246, 1};

// What a rank reports of a step that its memory may not allow. Unlike a failure it does not end the agreement.
struct Report {
  std::string obstacle;      // empty if there is none
  std::vector<char> memory;  // serialised; empty for no bytes

  std::vector<char> serialize() const {
    return detail::ByteWriter(reportFormat).putBytes({obstacle.begin(), obstacle.end()}).putBytes(memory).finish();
  }
  static Report deserialize(const std::vector<char>& bytes) {
    detail::ByteReader reader(bytes, reportFormat);
    Report report;
    const std::vector<char> obstacle = reader.getBytes();
    report.obstacle = detail::printableText({obstacle.begin(), obstacle.end()});
    report.memory = reader.getBytes();
    reader.expectEnd();
    return report;
  }
};

// Collective: the memory of each rank that `body` returns, or the obstacle of the first rank that met one.
struct StepOutcome {
  std::string obstacle;
  std::vector<std::vector<char>> memories;
};
template <class Body>
StepOutcome runStep(const detail::GroupAgreement& agreement, const std::string& step, const Body& body) {
  const auto results = agreement.runStep(step, [&] {
    Report report;
    try {
      report.memory = body();
    } catch (const detail::NotShareableError& error) {
      report.obstacle = detail::messageOf(error);
    }
    return report.serialize();
  });
  StepOutcome outcome;
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    Report report = Report::deserialize(results[rank]);
    if (!report.obstacle.empty() && outcome.obstacle.empty()) {
      outcome.obstacle = "rank " + std::to_string(rank) + " cannot " + step + ": " + report.obstacle;
    }
    outcome.memories.push_back(std::move(report.memory));
  }
  return outcome;
}

RegisteredMemory registerOwn(Communicator& communicator, void* data, std::size_t bytes) {
  if (bytes == 0) return {};
  if (data == nullptr) {
    throw Error("RegisteredBuffer: the pointer is null, and the size is " + std::to_string(bytes) +
                    " bytes; a rank without a buffer passes 0 bytes",
                ErrorCode::InvalidUsage);
  }
  const DeviceType where = detail::gpuOf(data) >= 0 ? DeviceType::GPU : DeviceType::CPU;
  return communicator.registerMemory(data, bytes, detail::localTransport(where));
}

// Every rank has the same bytes, so it throws on all ranks or on none.
void requireSameKind(const std::vector<std::vector<char>>& memories) {
  int first = -1;
  TransportFlags kind;
  for (int rank = 0; rank < static_cast<int>(memories.size()); ++rank) {
    const std::vector<char>& bytes = memories[static_cast<std::size_t>(rank)];
    if (bytes.empty()) continue;
    const TransportFlags transports = detail::MemoryRegistration::deserialize(bytes).transports;
    if (first < 0) {
      first = rank;
      kind = transports;
    } else if (transports != kind) {
      const auto text = [](TransportFlags flags) { return flags.has(Transport::CudaIpc) ? "GPU" : "host"; };
      throw Error("RegisteredBuffer: rank " + std::to_string(first) + " passes " + text(kind) + " memory, and rank " +
                      std::to_string(rank) + " " + text(transports) + " memory; all ranks must pass the same kind",
                  ErrorCode::InvalidUsage);
    }
  }
}

}  // namespace

std::string RegisteredBuffer::registerWithPeers(Communicator& communicator, void* data, std::size_t bytes) {
  const int rank = communicator.bootstrap()->getRank();
  const detail::GroupSetup setup(communicator);
  const detail::GroupAgreement agreement(*communicator.bootstrap(), "RegisteredBuffer");

  RegisteredMemory own;
  const StepOutcome shared = runStep(agreement, "share its buffer", [&] {
    own = registerOwn(communicator, data, bytes);
    return own.size() == 0 ? std::vector<char>() : own.serialize();
  });
  if (!shared.obstacle.empty()) return shared.obstacle;
  requireSameKind(shared.memories);

  const StepOutcome mapped = runStep(agreement, "map the buffers of the others", [&] {
    if (own.size() > 0) detail::enableDeviceAccess(own);
    parts_ = detail::MemoryOfRanks(setup, "RegisteredBuffer", rank, own, shared.memories);
    return std::vector<char>();
  });
  return mapped.obstacle;
}

RegisteredBuffer::RegisteredBuffer(Communicator& communicator, void* data, std::size_t bytes) {
  const std::string obstacle = registerWithPeers(communicator, data, bytes);
  if (!obstacle.empty()) throw Error("RegisteredBuffer: " + obstacle, ErrorCode::InvalidUsage);
}

std::optional<RegisteredBuffer> RegisteredBuffer::tryRegister(Communicator& communicator, void* data,
                                                              std::size_t bytes) {
  RegisteredBuffer buffer;
  const std::string obstacle = buffer.registerWithPeers(communicator, data, bytes);
  if (obstacle.empty()) return buffer;
  logMessage(LogLevel::Info, LogSubsystem::Conn, "RegisteredBuffer: ", obstacle);
  return std::nullopt;
}

void RegisteredBuffer::requireEqualBytes() const {
  for (int rank = 1; rank < nRanks(); ++rank) {
    if (bytes(rank) == bytes(0)) continue;
    throw Error("RegisteredBuffer: rank 0 has registered " + std::to_string(bytes(0)) + " bytes, but rank " +
                    std::to_string(rank) + " " + std::to_string(bytes(rank)) + "; every rank must register as many",
                ErrorCode::InvalidUsage);
  }
}

bool RegisteredBuffer::isAllocated() const {
  return bytes() == 0 || detail::isAllocated(parts_.own());
}

}  // namespace mscclpp
