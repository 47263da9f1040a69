// What the ranks tell each other of a call before they set it up.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/plan/plan_call.hpp"
#include "mscclpp/plan/message.hpp"

namespace mscclpp::kernels {

/// Which buffers a call uses, and of what size.
struct CallIdentity {
  std::uint64_t partBytes;  ///< 0: nothing is to be done
  std::uint64_t input;      ///< addresses
  std::uint64_t output;
  std::uint64_t hasData;  ///< of the rank that states it
};

inline CallIdentity identityOf(const PlanCall& call, const plan::Message& message) {
  return {message.partBytes, reinterpret_cast<std::uintptr_t>(call.input),
          reinterpret_cast<std::uintptr_t>(call.output), 1};
}

/// What a rank is about to set up; all ranks must be about to set up the same.
struct SetupRequest {
  std::uint64_t contentHash;
  std::uint64_t partBytes;
  std::uint64_t slotBytes;
  std::uint32_t format;
  std::uint32_t needs;  ///< 1: a context, 2: buffers, 4: code
  std::uint32_t inPlace;
  std::uint32_t code;  ///< the type and the operator of the code
};

/// What of a request of another rank is not this rank's.
inline std::string differenceOf(const SetupRequest& other, const SetupRequest& own) {
  if (other.contentHash != own.contentHash) return "another plan";
  if (other.partBytes != own.partBytes) {
    return "messages with parts of " + std::to_string(other.partBytes) + " bytes, and this rank of " +
           std::to_string(own.partBytes);
  }
  if (other.inPlace != own.inPlace) return other.inPlace != 0 ? "calls in place" : "calls that are not in place";
  if (other.format != own.format) return "packets of another format";
  if (other.code != own.code) return "another type of elements or operator";
  return "calls with other new buffers, or another new stream";
}

/// A value as ranks exchange it.
template <class T>
std::vector<char> bytesOf(const T& value) {
  std::vector<char> bytes(sizeof(value));
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

}  // namespace mscclpp::kernels
