// What a Program shares with its copies.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/jit/device.hpp"

namespace mscclpp::jit::detail {

struct ProgramState {
  std::string architecture;
  std::string image;
  std::string log;
  std::vector<std::string> kernels;
  std::vector<std::string> loweredNames;  ///< in the order of `kernels`
  bool fromCache;

  mutable std::mutex mutex;
  mutable std::shared_ptr<const DeviceLibrary> library;  ///< made by the first Program::kernel()
};

}  // namespace mscclpp::jit::detail
