// A collective with the user's functors, given as source text, compiled at run time.
#pragma once

#include <string>
#include <vector>

#include "mscclpp/jit/program.hpp"

namespace mscclpp::jit {

/// An instance of collectiveKernel<Collective, Source, Sink>. The three are C++ types: those of namespace mscclpp need
/// no qualification, and others are defined by the text.
struct KernelRequest {
  std::string text;        ///< includes the collective's header, and defines what the types name
  std::string collective;  ///< such as "AllReduce<float, Sum, AllReduceConfig{.protocol = Protocol::LL16}>"
  std::string source;      ///< such as "ArraySource<float>", or a functor of the text (basic/source_sink.hpp)
  std::string sink;        ///< such as "ArraySink<float>"

  // As in CompileRequest.
  std::string name = "collective.cu";
  std::string architecture = {};
  std::vector<std::string> options = {};
  std::vector<std::string> includeFolders = {};
  std::vector<Header> headers = {};
  bool cached = true;
};

/// Compiles the one kernel of the request, which Program::kernel() loads. It is launched with three arguments: the
/// collective's Args, the source and the sink; `overlapPrevious` is allowed. The host passes values of the same types,
/// or of types with the same layout if the functors exist as text only. What launch() of kernel.cuh checks by
/// Collective::accepts() is the caller's to check. Throws as compile() does.
Program compileCollective(const KernelRequest& request);

}  // namespace mscclpp::jit
