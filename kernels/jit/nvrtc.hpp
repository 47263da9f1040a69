// NVRTC, CUDA's compiler as a library. It is loaded at run time, never linked: binaries also start without it.
#pragma once

#include <string>
#include <vector>

#include "mscclpp/jit/program.hpp"

namespace mscclpp::jit::detail {

/// One compilation. Headers are found by name before any folder among the options.
struct NvrtcInput {
  const char* source;
  const char* name;
  std::vector<const char*> kernels;
  std::vector<const char*> options;
  std::vector<const char*> headerNames;
  std::vector<const char*> headerTexts;
  bool wantsPtx;
};

struct NvrtcOutput {
  bool compiled;
  std::string log;
  std::string image;                      ///< cubin or PTX
  std::vector<std::string> loweredNames;  ///< in the order of `kernels`
};

class Nvrtc {
 public:
  /// Loads the first of `libraries` that can be loaded: paths, or names that the dynamic loader searches. Throws
  /// Error(SystemError) if there is none.
  explicit Nvrtc(const std::vector<std::string>& libraries);
  ~Nvrtc() = default;  // it is never unloaded: other users of the process may have it too
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

  /// Throws Error only if NVRTC fails without a message about the source.
  NvrtcOutput compile(const NvrtcInput& input) const;

  const std::string& path() const { return path_; }
  int majorVersion() const { return major_; }
  int minorVersion() const { return minor_; }
  /// 90 for sm_90, ascending.
  const std::vector<int>& architectures() const { return architectures_; }

 private:
  using Handle = void*;
  using Result = int;

  struct Functions {
    const char* (*getErrorString)(Result result);
    Result (*version)(int* major, int* minor);
    Result (*getNumSupportedArchs)(int* count);
    Result (*getSupportedArchs)(int* architectures);
    Result (*createProgram)(Handle* program, const char* source, const char* name, int headerCount,
                            const char* const* headerTexts, const char* const* headerNames);
    Result (*destroyProgram)(Handle* program);
    Result (*compileProgram)(Handle program, int optionCount, const char* const* options);
    Result (*getPtxSize)(Handle program, std::size_t* bytes);
    Result (*getPtx)(Handle program, char* ptx);
    Result (*getCubinSize)(Handle program, std::size_t* bytes);
    Result (*getCubin)(Handle program, char* cubin);
    Result (*getProgramLogSize)(Handle program, std::size_t* bytes);
    Result (*getProgramLog)(Handle program, char* log);
    Result (*addNameExpression)(Handle program, const char* expression);
    Result (*getLoweredName)(Handle program, const char* expression, const char** name);
  };

  void loadFunctions(void* library);
  void check(Result result, const char* call) const;
  std::string textOf(Handle program, Result (*size)(Handle, std::size_t*), Result (*get)(Handle, char*)) const;

  Functions functions_{};
  std::string path_;
  int major_ = 0;
  int minor_ = 0;
  std::vector<int> architectures_;
};

/// Where NVRTC may be, in the order of the search. `chosen` is MSCCLPP_NVRTC_LIB_PATH: if given, only there.
std::vector<std::string> nvrtcLibraries(const std::string& chosen);

}  // namespace mscclpp::jit::detail
