#include "mscclpp/jit/program.hpp"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string_view>

#include "kernels/jit/architecture.hpp"
#include "kernels/jit/content_hash.hpp"
#include "kernels/jit/embedded_headers.hpp"
#include "kernels/jit/included_files.hpp"
#include "kernels/jit/loaded_toolchain.hpp"
#include "kernels/jit/program_cache.hpp"
#include "kernels/jit/program_state.hpp"
#include "mscclpp/host/base/env.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/jit/cache.hpp"

namespace mscclpp::jit {

namespace {

// A process that compiles for longer than this has stopped, or the machine is overloaded: then others compile too.
constexpr std::chrono::minutes lockTimeout(2);

std::string quoted(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return text;
}

void check(const CompileRequest& request) {
  if (request.kernels.empty()) {
    throw Error("CompileRequest::kernels is empty; list the kernels to compile, as in {\"scale<float>\"}",
                ErrorCode::InvalidUsage);
  }
  for (const auto& option : request.options) {
    for (std::string_view folder : {"-I", "--include-path"}) {
      if (option.starts_with(folder)) {
        throw Error("option " + option + ": name the folder in CompileRequest::includeFolders instead",
                    ErrorCode::InvalidUsage);
      }
    }
    for (std::string_view header : {"-include", "--pre-include"}) {
      if (option.starts_with(header)) {
        throw Error("option " + option + ": write an #include into CompileRequest::source instead",
                    ErrorCode::InvalidUsage);
      }
    }
    for (std::string_view set : {"--gpu-architecture", "-arch"}) {
      if (option.starts_with(set)) {
        throw Error("option " + option + ": set CompileRequest::architecture instead", ErrorCode::InvalidUsage);
      }
    }
  }
}

// A request with all that its result depends on.
struct Compilation {
  const CompileRequest& request;
  std::string architecture;
  detail::HeaderTexts headers;       // the request's, then those that are part of the library
  std::vector<std::string> folders;  // in the order of the search
  std::vector<std::string> options;  // all but the folders
};

Compilation prepare(const CompileRequest& request) {
  check(request);
  const Toolchain& tools = toolchain();
  Compilation compilation{request, request.architecture, {}, request.includeFolders, {}};
  if (compilation.architecture.empty()) {
    compilation.architecture = detail::architectureFor(detail::computeCapability(), tools.architectures);
  }
  detail::checkArchitecture(compilation.architecture, tools.architectures);
  for (const auto& header : request.headers) compilation.headers.emplace_back(header.name, header.text);
  if (tools.mscclppInclude.empty()) {
    const auto replaced = [&](std::string_view name) {
      return std::any_of(request.headers.begin(), request.headers.end(),
                         [&](const Header& header) { return header.name == name; });
    };
    for (const auto& header : detail::embeddedHeaders()) {
      if (!replaced(header.name)) compilation.headers.emplace_back(header.name, header.text);
    }
  } else {
    compilation.folders.push_back(tools.mscclppInclude);
  }
  // CCCL first, since it has the standard library of device code.
  compilation.folders.push_back(tools.ccclInclude);
  compilation.folders.push_back(tools.cudaInclude);
  // --no-source-include: what is found must not depend on the current folder, which would be searched first.
  // Device by default: NVRTC takes generic lambdas for host functions otherwise.
  compilation.options = {"--std=c++20", "--gpu-architecture=" + compilation.architecture, "--no-source-include",
                         "--device-as-default-execution-space"};
  compilation.options.insert(compilation.options.end(), request.options.begin(), request.options.end());
  return compilation;
}

std::string keyOf(const Compilation& compilation) {
  const Toolchain& tools = toolchain();
  const CompileRequest& request = compilation.request;
  detail::ContentHash hash;
  hash.add(std::to_string(tools.nvrtcMajor) + "." + std::to_string(tools.nvrtcMinor))
      .add(request.name)
      .add(request.source);
  for (const auto* list : {&request.kernels, &compilation.options, &compilation.folders}) {
    hash.add(std::to_string(list->size()));
    for (const auto& text : *list) hash.add(text);
  }
  for (const auto& [name, text] : compilation.headers) hash.add(name).add(text);
  for (const auto& file : detail::includedFiles(request.source, compilation.headers, compilation.folders)) {
    hash.add(file.path).add(file.text);
  }
  return hash.finishAsText();
}

detail::CachedProgram compileNow(const Compilation& compilation) {
  const CompileRequest& request = compilation.request;
  std::vector<std::string> options = compilation.options;
  for (const auto& folder : compilation.folders) options.push_back("-I" + folder);
  detail::NvrtcInput input{.source = request.source.c_str(),
                           .name = request.name.c_str(),
                           .kernels = {},
                           .options = {},
                           .headerNames = {},
                           .headerTexts = {},
                           .wantsPtx = detail::isPtxArchitecture(compilation.architecture)};
  for (const auto& kernel : request.kernels) input.kernels.push_back(kernel.c_str());
  for (const auto& option : options) input.options.push_back(option.c_str());
  for (const auto& [name, text] : compilation.headers) {
    input.headerNames.push_back(name.data());
    input.headerTexts.push_back(text.data());
  }
  auto output = detail::nvrtc().compile(input);
  if (!output.compiled) {
    throw Error(
        request.name + " does not compile for " + compilation.architecture + ". NVRTC's messages:\n" + output.log,
        ErrorCode::InvalidUsage);
  }
  return {std::move(output.image), std::move(output.log), std::move(output.loweredNames)};
}

detail::ProgramCache cacheOfEnvironment() {
  return detail::ProgramCache(std::filesystem::path(env()->cacheDir) / "jit");
}

Program programOf(const Compilation& compilation, detail::CachedProgram compiled, bool fromCache) {
  const auto state = std::make_shared<detail::ProgramState>();
  state->architecture = compilation.architecture;
  state->image = std::move(compiled.image);
  state->log = std::move(compiled.log);
  state->kernels = compilation.request.kernels;
  state->loweredNames = std::move(compiled.loweredNames);
  state->fromCache = fromCache;
  return Program(state);
}

}  // namespace

Program compile(const CompileRequest& request) {
  const Compilation compilation = prepare(request);
  if (!request.cached) return programOf(compilation, compileNow(compilation), false);

  const auto cache = cacheOfEnvironment();
  const std::string key = keyOf(compilation);
  const auto find = [&] {
    auto found = cache.find(key);
    return found && found->loweredNames.size() == request.kernels.size() ? found : std::nullopt;
  };
  if (auto found = find()) return programOf(compilation, std::move(*found), true);
  const auto lock = cache.lock(key, mscclpp::detail::Deadline::after(lockTimeout));
  // Another process may have compiled it while this one waited.
  if (auto found = find()) return programOf(compilation, std::move(*found), true);
  auto compiled = compileNow(compilation);
  cache.store(key, compiled);
  return programOf(compilation, std::move(compiled), false);
}

Program makeProgram(std::string image, std::vector<std::string> kernels, std::string architecture) {
  const auto state = std::make_shared<detail::ProgramState>();
  state->architecture = std::move(architecture);
  state->image = std::move(image);
  state->loweredNames = kernels;
  state->kernels = std::move(kernels);
  state->fromCache = false;
  return Program(state);
}

std::uint64_t pruneCache(std::uint64_t maxBytes) {
  return cacheOfEnvironment().prune(maxBytes);
}

const std::string& Program::architecture() const noexcept {
  return state_->architecture;
}
const std::string& Program::image() const noexcept {
  return state_->image;
}
const std::string& Program::log() const noexcept {
  return state_->log;
}
bool Program::fromCache() const noexcept {
  return state_->fromCache;
}

const std::string& Program::loweredName(const std::string& kernel) const {
  const auto& kernels = state_->kernels;
  const auto found = std::find(kernels.begin(), kernels.end(), kernel);
  if (found == kernels.end()) {
    throw Error("the program has no kernel \"" + kernel + "\"; CompileRequest::kernels listed " + quoted(kernels),
                ErrorCode::InvalidUsage);
  }
  return state_->loweredNames[static_cast<std::size_t>(found - kernels.begin())];
}

Kernel Program::kernel(const std::string& kernel) const {
  const std::string& lowered = loweredName(kernel);
  const auto library = [&] {
    const std::lock_guard guard(state_->mutex);
    if (state_->library == nullptr) state_->library = detail::loadLibrary(state_->image, state_->architecture);
    return state_->library;
  }();
  return Kernel(detail::loadKernel(library, lowered, kernel));
}

Kernel Program::kernel() const {
  if (state_->kernels.size() != 1) {
    throw Error("the program has several kernels, " + quoted(state_->kernels) + "; pass the name of one",
                ErrorCode::InvalidUsage);
  }
  return kernel(state_->kernels.front());
}

}  // namespace mscclpp::jit
