#include "mscclpp/host/communicator/symmetric_memory.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include "host/base/byte_stream.hpp"
#include "host/bootstrap/group_agreement.hpp"
#include "host/communicator/group_setup.hpp"
#include "host/memory/device_memory.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp {

namespace {

constexpr detail::WireFormat allocationRequestFormat{"request for symmetric memory", 0x514d5953, 1};

std::string describe(const std::vector<char>& request) {
  detail::ByteReader reader(request, allocationRequestFormat);
  const auto bytes = reader.get<std::uint64_t>();
  const auto where = static_cast<DeviceType>(reader.get<std::int32_t>());
  reader.expectEnd();
  return std::to_string(bytes) + " bytes on " + nameOf(where);
}

void requireSameRequests(const detail::GroupAgreement& agreement, std::size_t bytes, DeviceType where) {
  const auto requests = agreement.runStep("state the size", [&] {
    detail::ByteWriter writer(allocationRequestFormat);
    writer.put(static_cast<std::uint64_t>(bytes)).put(static_cast<std::int32_t>(where));
    return writer.finish();
  });
  for (std::size_t rank = 1; rank < requests.size(); ++rank) {
    if (requests[rank] == requests[0]) continue;
    throw Error("SymmetricMemory: rank 0 asks for " + describe(requests[0]) + ", but rank " + std::to_string(rank) +
                    " for " + describe(requests[rank]) + "; every rank must ask for the same",
                ErrorCode::InvalidUsage);
  }
}

}  // namespace

SymmetricMemory::SymmetricMemory(Communicator& communicator, std::size_t bytes, DeviceType where) : bytes_(bytes) {
  const int rank = communicator.bootstrap()->getRank();
  const detail::GroupSetup setup(communicator);
  const detail::GroupAgreement agreement(*communicator.bootstrap(), "SymmetricMemory");
  requireSameRequests(agreement, bytes, where);

  RegisteredMemory own;
  const auto serialized = agreement.runStep("allocate memory", [&] {
    if (bytes == 0) throw Error("SymmetricMemory: the size must be at least one byte", ErrorCode::InvalidUsage);
    storage_ = detail::allocateSharedMemory(where, bytes);
    own = communicator.registerMemory(storage_.get(), bytes, detail::localTransport(where));
    return own.serialize();
  });

  agreement.runStep("map the memory of the others", [&] {
    parts_ = detail::MemoryOfRanks(setup, "SymmetricMemory", rank, own, serialized);
    for (int peer = 0; peer < nRanks(); ++peer) {
      if (memory(peer).size() != bytes) {
        throw Error("SymmetricMemory: rank " + std::to_string(peer) + " sent memory of another size",
                    ErrorCode::RemoteError);
      }
    }
    return std::vector<char>();
  });
}

}  // namespace mscclpp
