// Kernels compiled at run time, for mscclpp.utils.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <span>
#include <string>
#include <vector>

#include "module.hpp"
#include "mscclpp/jit/program.hpp"

namespace mscclpp::python {

namespace {

void launch(const jit::Kernel& self, const nb::bytes& arguments, int blocks, int threads, std::size_t sharedBytes,
            std::uintptr_t stream) {
  const std::span packed(reinterpret_cast<const std::byte*>(arguments.c_str()), arguments.size());
  const nb::gil_scoped_release release;
  self.launchPacked(
      {.shape = {blocks, threads}, .stream = static_cast<cudaStream_t>(toPointer(stream)), .sharedBytes = sharedBytes},
      packed);
}

}  // namespace

void bindJit(nb::module_& module) {
  nb::class_<jit::Kernel>(module, "LoadedKernel", "A kernel on the GPU that was current when it was loaded.")
      .def("launch", &launch, "arguments"_a, "blocks"_a, "threads"_a, "shared_bytes"_a, "stream"_a)
      .def("device_id", &jit::Kernel::deviceId);
  nb::class_<jit::Program>(module, "Program", "Compiled device code; docs/jit.md.")
      .def("architecture", &jit::Program::architecture, "\"sm_90a\" for machine code, \"compute_90\" for PTX.")
      .def(
          "image", [](const jit::Program& self) { return nb::bytes(self.image().data(), self.image().size()); },
          "The machine code, or the text of the PTX.")
      .def("log", &jit::Program::log, "The warnings of the compiler.")
      .def("lowered_name", &jit::Program::loweredName, "kernel"_a, "The name of a kernel in the image.")
      .def(
          "kernel", [](const jit::Program& self, const std::string& name) { return self.kernel(name); }, "kernel"_a,
          Unlocked(),
          "Loads a kernel on the current GPU. Raises InvalidUsage in a build without CUDA, and for a program that was "
          "compiled for another GPU.");
  module.def(
      "compile_kernels",
      [](std::string source, std::string name, std::vector<std::string> kernels, std::string architecture,
         std::vector<std::string> options, std::vector<std::string> includeFolders) {
        return jit::compile({.source = std::move(source),
                             .name = std::move(name),
                             .kernels = std::move(kernels),
                             .architecture = std::move(architecture),
                             .options = std::move(options),
                             .includeFolders = std::move(includeFolders)});
      },
      "source"_a, "name"_a, "kernels"_a, "architecture"_a = "", "options"_a = std::vector<std::string>{},
      "include_folders"_a = std::vector<std::string>{}, Unlocked(),
      "Compiles CUDA source by NVRTC, or takes the result from the cache of MSCCLPP_CACHE_DIR; docs/jit.md. "
      "architecture: by default of the current GPU. Raises InvalidUsage with the compiler's messages, and Error if "
      "NVRTC "
      "is not found.");
}

}  // namespace mscclpp::python
