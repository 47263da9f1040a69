#include "kernels/movers/team_engine.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#include "host/bootstrap/group_agreement.hpp"

namespace mscclpp::kernels {

TeamEngine::TeamEngine(Communicator& communicator, DeviceType deviceType, int copiesPerTransfer,
                       std::shared_ptr<WaitMonitor> monitor, const char* what)
    : memory_(communicator, MoverBarrier::windowBytes(communicator.bootstrap()->getNranks()), deviceType),
      monitor_(std::move(monitor)) {
  const mscclpp::detail::GroupAgreement agreement(*communicator.bootstrap(), what);
  agreement.runStep("create its streams", [&] {
    monitor_ = WaitMonitor::ofTeam(communicator, deviceType, std::move(monitor_));
    const MoverBarrier::Args barrier{
        Team<>(rank(), ranks()), memory_.window(),
        BoundedWait(monitor_->deviceControl(), static_cast<std::uint64_t>(monitor_->timeout().count()))};
    engine_ = deviceType == DeviceType::GPU ? makeGpuEngine(barrier, copiesPerTransfer) : makeCpuEngine(barrier);
    return std::vector<char>();
  });
}

}  // namespace mscclpp::kernels
