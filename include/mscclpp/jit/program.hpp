// Device code compiled at run time: source text becomes a program with kernels, by NVRTC.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mscclpp/jit/kernel.hpp"

namespace mscclpp::jit {

namespace detail {

struct ProgramState;

}  // namespace detail

/// A header given as text: `#include "name"` and `#include <name>` find it before any file.
struct Header {
  std::string name;
  std::string text;
};

/// What compile() compiles. The source is CUDA C++20 for the device; it can include the library's device headers
/// (<mscclpp/...>), libcu++ (<cuda/std/...>) and cuda_fp16.h and the like, but no header of the host's C++ library.
struct CompileRequest {
  std::string source;
  std::string name = "kernel.cu";         ///< the name of the source in messages of the compiler
  std::vector<std::string> kernels = {};  ///< one or more; a template with its arguments: "scale<float>"
  std::string architecture = {};          ///< "sm_90a": machine code; "compute_90": PTX; empty: for the current device
  std::vector<std::string> options = {};  ///< more options of NVRTC, such as "-lineinfo"; no -I, no -include
  /// Searched after `headers` and before the library's. No other places are: neither the current folder, nor that of
  /// the including file.
  std::vector<std::string> includeFolders = {};
  std::vector<Header> headers = {};
  bool cached = true;  ///< whether the result may come from the cache on disk (cache.hpp), and is kept there
};

/// A compiled program: machine code or PTX, and the names of its kernels. A value; copies share the code.
class Program {
 public:
  /// For the library: compile() makes them.
  explicit Program(std::shared_ptr<const detail::ProgramState> state) : state_(std::move(state)) {}

  /// What it was compiled for: "sm_90a" or "compute_90".
  const std::string& architecture() const noexcept;
  /// The cubin, or the text of the PTX.
  const std::string& image() const noexcept;
  /// The warnings of the compiler; usually empty.
  const std::string& log() const noexcept;
  /// Whether it was read from the cache instead of compiled.
  bool fromCache() const noexcept;
  /// The name that a kernel has in the image: for tools, and to load the image by other means. Throws
  /// Error(InvalidUsage) unless the request listed this kernel.
  const std::string& loweredName(const std::string& kernel) const;

  /// Loads a kernel, as the request listed it, on the current device: later launches need not load anything, so they
  /// can be captured and do not wait for running kernels. Throws Error(InvalidUsage) if the request did not list it, or
  /// the program is for another architecture, or the library was built without CUDA.
  Kernel kernel(const std::string& kernel) const;
  /// The kernel of a program that has only one.
  Kernel kernel() const;

 private:
  std::shared_ptr<const detail::ProgramState> state_;
};

/// Compiles a program, or takes it from the cache. It needs no GPU if an architecture is given; any thread may call it.
/// Throws Error(InvalidUsage) with the compiler's messages if the source does not compile, or with the allowed values
/// if the request is wrong, and Error(SystemError) if NVRTC or the headers are not found (toolchain.hpp).
Program compile(const CompileRequest& request);

/// A program that something else has compiled, such as nvcc: `image` is a cubin or the text of PTX, `kernels` has their
/// names in it. `architecture` is for messages. Nothing is checked before Program::kernel().
Program makeProgram(std::string image, std::vector<std::string> kernels, std::string architecture);

}  // namespace mscclpp::jit
