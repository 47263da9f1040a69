// A WaitControl with what the host knows about it: shared by a monitor and by those who may end its waits.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "mscclpp/basic/wait_record.hpp"
#include "mscclpp/host/device.hpp"
#include "mscclpp/host/liveness.hpp"

namespace mscclpp::detail {

class WaitWatch {
 public:
  explicit WaitWatch(DeviceType where);

  WaitControl* control() const noexcept { return control_.get(); }
  void abort() noexcept;
  /// Ends the waits because a rank was lost.
  void abort(const RankFailure& failure) noexcept;
  bool failed() const noexcept;
  void check() const;

 private:
  std::shared_ptr<WaitControl> control_;
  mutable std::mutex mutex_;
  std::optional<RankFailure> failure_;
};

}  // namespace mscclpp::detail
