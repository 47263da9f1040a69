#include "mscclpp/jit/collective.hpp"

namespace mscclpp::jit {

namespace {

// #line: messages of the compiler name the user's text, with its own lines.
std::string lineDirective(const std::string& name) {
  std::string escaped;
  for (char character : name) {
    if (character == '"' || character == '\\') escaped += '\\';
    escaped += character;
  }
  return "#line 1 \"" + escaped + "\"\n";
}

}  // namespace

Program compileCollective(const KernelRequest& request) {
  // In a namespace of its own within mscclpp: names of the library need no qualification, and those of the text are
  // found in the global namespace.
  const std::string source = "#include \"mscclpp/collective_kernel.cuh\"\n" + lineDirective(request.name) +
                             request.text + "\nnamespace mscclpp::jit::instance {\n" +
                             lineDirective("KernelRequest::collective") + "using Collective = " + request.collective +
                             ";\n" + lineDirective("KernelRequest::source") + "using Source = " + request.source +
                             ";\n" + lineDirective("KernelRequest::sink") + "using Sink = " + request.sink + ";\n}\n";
  return compile({.source = source,
                  .name = request.name,
                  .kernels = {"mscclpp::collectiveKernel<mscclpp::jit::instance::Collective, "
                              "mscclpp::jit::instance::Source, mscclpp::jit::instance::Sink>"},
                  .architecture = request.architecture,
                  .options = request.options,
                  .includeFolders = request.includeFolders,
                  .headers = request.headers,
                  .cached = request.cached});
}

}  // namespace mscclpp::jit
