#include "kernels/jit/nvrtc.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <type_traits>

#include "kernels/jit/include_folders.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::jit::detail {

namespace {

// NVRTC's ABI, which is stable.
constexpr int success = 0;
constexpr int compilationError = 6;

constexpr const char* fileNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

constexpr char advice[] =
    "install the CUDA toolkit, or PyPI's nvidia-cuda-nvrtc, and name the library or its folder in "
    "MSCCLPP_NVRTC_LIB_PATH";

std::string pathOf(void* symbol) {
  Dl_info info{};
  if (::dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  const auto path = std::filesystem::canonical(info.dli_fname, ignored);
  return path.empty() ? info.dli_fname : path.string();
}

}  // namespace

std::vector<std::string> nvrtcLibraries(const std::string& chosen) {
  std::vector<std::string> libraries;
  std::error_code ignored;
  if (!chosen.empty() && !std::filesystem::is_directory(chosen, ignored)) return {chosen};
  if (!chosen.empty()) {
    for (const char* name : fileNames) libraries.push_back(chosen + "/" + name);
    return libraries;
  }
  libraries.assign(std::begin(fileNames), std::end(fileNames));
  for (const auto& toolkit : toolkitFolders()) {
    for (const char* folder : {"/lib64/", "/lib/"}) {
      for (const char* name : fileNames) libraries.push_back(toolkit + folder + name);
    }
  }
  return libraries;
}

Nvrtc::Nvrtc(const std::vector<std::string>& libraries) {
  void* library = nullptr;
  std::string reasons;
  for (const auto& name : libraries) {
    library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
    const char* reason = ::dlerror();
    reasons += "\n  " + std::string(reason == nullptr ? name.c_str() : reason);
  }
  if (library == nullptr) {
    throw Error("compiling kernels at run time needs NVRTC, and libnvrtc cannot be loaded; " + std::string(advice) +
                    ". Tried:" + reasons,
                ErrorCode::SystemError);
  }
  loadFunctions(library);
  path_ = pathOf(reinterpret_cast<void*>(functions_.compileProgram));
  check(functions_.version(&major_, &minor_), "nvrtcVersion");
  int count = 0;
  check(functions_.getNumSupportedArchs(&count), "nvrtcGetNumSupportedArchs");
  architectures_.resize(static_cast<std::size_t>(count));
  check(functions_.getSupportedArchs(architectures_.data()), "nvrtcGetSupportedArchs");
  std::sort(architectures_.begin(), architectures_.end());
  // NVRTC loads its second library by name, which finds it only on the loader's path, unless it is already loaded.
  const auto builtins = std::filesystem::path(path_).parent_path() /
                        ("libnvrtc-builtins.so." + std::to_string(major_) + "." + std::to_string(minor_));
  ::dlopen(builtins.c_str(), RTLD_NOW | RTLD_LOCAL);  // NVRTC reports it if there is none
}

void Nvrtc::loadFunctions(void* library) {
  std::string missing;
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr) missing += std::string(missing.empty() ? "" : ", ") + name;
  };
  load(functions_.getErrorString, "nvrtcGetErrorString");
  load(functions_.version, "nvrtcVersion");
  load(functions_.getNumSupportedArchs, "nvrtcGetNumSupportedArchs");
  load(functions_.getSupportedArchs, "nvrtcGetSupportedArchs");
  load(functions_.createProgram, "nvrtcCreateProgram");
  load(functions_.destroyProgram, "nvrtcDestroyProgram");
  load(functions_.compileProgram, "nvrtcCompileProgram");
  load(functions_.getPtxSize, "nvrtcGetPTXSize");
  load(functions_.getPtx, "nvrtcGetPTX");
  load(functions_.getCubinSize, "nvrtcGetCUBINSize");
  load(functions_.getCubin, "nvrtcGetCUBIN");
  load(functions_.getProgramLogSize, "nvrtcGetProgramLogSize");
  load(functions_.getProgramLog, "nvrtcGetProgramLog");
  load(functions_.addNameExpression, "nvrtcAddNameExpression");
  load(functions_.getLoweredName, "nvrtcGetLoweredName");
  if (!missing.empty()) {
    throw Error("the loaded library is no NVRTC of CUDA 12 or newer, it lacks " + missing + "; " + advice,
                ErrorCode::SystemError);
  }
}

void Nvrtc::check(Result result, const char* call) const {
  if (result == success) return;
  throw Error(std::string(call) + " of " + path_ + " failed: " + functions_.getErrorString(result),
              ErrorCode::SystemError);
}

// Of the texts that NVRTC returns with a size.
std::string Nvrtc::textOf(Handle program, Result (*size)(Handle, std::size_t*), Result (*get)(Handle, char*)) const {
  std::size_t bytes = 0;
  check(size(program, &bytes), "nvrtcGet...Size");
  std::string text(bytes, '\0');
  check(get(program, text.data()), "nvrtcGet...");
  return text;
}

NvrtcOutput Nvrtc::compile(const NvrtcInput& input) const {
  struct Owner {
    const Functions& functions;
    Handle program = nullptr;
    ~Owner() {
      if (program != nullptr) functions.destroyProgram(&program);
    }
  } owner{functions_};
  check(functions_.createProgram(&owner.program, input.source, input.name, static_cast<int>(input.headerNames.size()),
                                 input.headerTexts.data(), input.headerNames.data()),
        "nvrtcCreateProgram");
  for (const char* kernel : input.kernels) {
    check(functions_.addNameExpression(owner.program, kernel), "nvrtcAddNameExpression");
  }
  const Result compiled =
      functions_.compileProgram(owner.program, static_cast<int>(input.options.size()), input.options.data());
  NvrtcOutput output{.compiled = compiled == success, .log = {}, .image = {}, .loweredNames = {}};
  // Both end in a zero, which std::string has anyway.
  const auto withoutZero = [](std::string text) {
    while (!text.empty() && text.back() == '\0') text.pop_back();
    return text;
  };
  output.log = withoutZero(textOf(owner.program, functions_.getProgramLogSize, functions_.getProgramLog));
  if (!output.compiled) {
    if (compiled != compilationError && output.log.empty()) check(compiled, "nvrtcCompileProgram");
    return output;
  }
  for (const char* kernel : input.kernels) {
    const char* name = nullptr;
    check(functions_.getLoweredName(owner.program, kernel, &name), "nvrtcGetLoweredName");
    output.loweredNames.emplace_back(name);
  }
  output.image = input.wantsPtx ? withoutZero(textOf(owner.program, functions_.getPtxSize, functions_.getPtx))
                                : textOf(owner.program, functions_.getCubinSize, functions_.getCubin);
  return output;
}

}  // namespace mscclpp::jit::detail
