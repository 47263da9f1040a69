// What the calls of one plan share: scratch, counters and channels on all ranks.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/backend.hpp"
#include "mscclpp/host/communicator/symmetric_memory.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"
#include "mscclpp/plan/execution.hpp"
#include "mscclpp/plan/rank_program.hpp"

namespace mscclpp::kernels {

/// A rank's program, in memory of the backend.
class PlanMemory {
 public:
  /// slotBytes: bytes of data for which a chunk of the scratch has room. service: of the plan's Port channels; null if
  /// there are none. Collective; no rank returns before all are ready.
  PlanMemory(Communicator& communicator, DeviceType where, const Backend& backend, const plan::RankProgram& program,
             bool doubleScratch, std::size_t slotBytes, plan::PacketFormat format,
             const std::shared_ptr<WideProxyService>& service);

  /// The arguments of a call, without its message, operator, waits, inputs, outputs and memory ids.
  const plan::ExecutionArgs& args() const noexcept { return args_; }
  std::size_t sharedBytes() const noexcept { return sharedBytes_; }
  int blocks() const noexcept { return blocks_; }
  const SymmetricMemory& scratch() const noexcept { return *symmetric_; }
  /// Where the scratch begins in scratch().
  std::size_t scratchOffset() const noexcept { return scratchOffset_; }

 private:
  template <class T>
  T* upload(const Backend& backend, const std::vector<T>& values);

  std::unique_ptr<SymmetricMemory> symmetric_;
  std::size_t scratchOffset_;
  std::vector<std::shared_ptr<void>> local_;
  std::shared_ptr<WideProxyService> service_;
  std::vector<WideBasePortChannel> ports_;
  plan::ExecutionArgs args_{};
  std::size_t sharedBytes_ = 0;
  int blocks_ = 0;
};

/// Bytes of the scratch of a plan.
std::size_t scratchBytesOf(const plan::RankProgram& program, bool doubleScratch, std::size_t slotBytes,
                           plan::PacketFormat format);

}  // namespace mscclpp::kernels
