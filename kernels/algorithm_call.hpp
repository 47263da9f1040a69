// The arguments of Algorithm::execute: their checks, and the CollectiveCall that they mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "mscclpp/kernels/algorithm.hpp"
#include "mscclpp/kernels/collective_call.hpp"

namespace mscclpp::kernels {

/// The name of a collective in the Algorithm API: "allreduce".
const char* algorithmApiNameOf(CollectiveType collective);
/// The compiled collective of that name, if there is one.
std::optional<CollectiveType> collectiveNamed(std::string_view name);

/// The buffers of an execute(); sizes in bytes.
struct Buffers {
  const void* input;
  void* output;
  std::size_t inputSize;
  std::size_t outputSize;
};

/// The size of the message, in bytes, as `Algorithm` defines it. ranks > 0.
std::size_t messageSizeOf(std::string_view collective, const Buffers& buffers, int ranks);

/// Whether a call is in place, as CollectiveRequest::bufferMode() defines it. partSize: bytes of a rank's part where
/// the input is scattered or the output gathered.
CollectiveBufferMode bufferModeOf(std::string_view collective, const void* input, const void* output,
                                  std::size_t partSize, int rank);

/// Throws UnavailableAlgorithm where the constraint of the algorithm is not met, and Error(InvalidUsage) for a null
/// communicator and for buffers that its message range or buffer mode exclude.
void requireAccepted(const mscclpp::Algorithm& algorithm, const std::shared_ptr<Communicator>& communicator,
                     const Buffers& buffers);

/// The call of a compiled collective. Throws Error(InvalidUsage) for sizes, extras and types that make none; what
/// remains to be checked, requireValid() and Collectives::run() do.
CollectiveCall callOf(CollectiveType collective, const Buffers& buffers, DataType dtype, ReduceOp op,
                      CUstream_st* stream, const std::unordered_map<std::string, std::uintptr_t>& extras,
                      DataType accumDtype, int rank, int ranks);

}  // namespace mscclpp::kernels
