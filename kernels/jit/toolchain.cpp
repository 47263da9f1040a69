#include "mscclpp/jit/toolchain.hpp"

#include "host/base/error_message.hpp"
#include "kernels/jit/include_folders.hpp"
#include "kernels/jit/loaded_toolchain.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::jit {

namespace {

detail::Nvrtc loadNvrtc() {
  const std::string& chosen = env()->nvrtcLibPath;
  try {
    return detail::Nvrtc(detail::nvrtcLibraries(chosen));
  } catch (const Error& error) {
    if (chosen.empty()) throw;
    throw Error("MSCCLPP_NVRTC_LIB_PATH=" + chosen +
                    " is neither NVRTC nor a folder that has it: " + mscclpp::detail::messageOf(error),
                ErrorCode::InvalidUsage);
  }
}

}  // namespace

namespace detail {

const Nvrtc& nvrtc() {
  static const Nvrtc loaded = loadNvrtc();
  return loaded;
}

}  // namespace detail

const Toolchain& toolchain() {
  static const Toolchain found = [] {
    const auto& nvrtc = detail::nvrtc();
    const auto folders = detail::findIncludeFolders(*env(), nvrtc.path());
    return Toolchain{.nvrtc = nvrtc.path(),
                     .nvrtcMajor = nvrtc.majorVersion(),
                     .nvrtcMinor = nvrtc.minorVersion(),
                     .architectures = nvrtc.architectures(),
                     .mscclppInclude = folders.mscclpp,
                     .ccclInclude = folders.cccl,
                     .cudaInclude = folders.cuda};
  }();
  return found;
}

}  // namespace mscclpp::jit
