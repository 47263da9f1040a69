// A library of algorithms as programs of the two languages, for any number of ranks that suits them.
#pragma once

#include <string>
#include <vector>

#include "mscclpp/kernels/plan/chunk_program.hpp"
#include "mscclpp/plan/plan.hpp"

namespace mscclpp::plan {

struct LibraryArguments {
  int ranks = 0;
  int ranksPerNode = 0;  ///< 0: all ranks are of one node. Algorithms of nodes need it; others use ports between nodes.
  int instances = 1;
  msccl::Protocol protocol = msccl::Protocol::Simple;
  bool inPlace = false;
};

struct LibraryPlan {
  const char* name;
  const char* description;
  CollectiveKind collective;
  /// refuses() for arguments that are possible.
  std::string (*suits)(const LibraryArguments&);
  NamedPlan (*make)(const LibraryArguments&);

  /// Why it cannot be made with these arguments; empty: it can.
  std::string refuses(const LibraryArguments& arguments) const;
};

const std::vector<LibraryPlan>& libraryPlans();

/// The plan, not yet proven: plan::verified(). Throws Error(InvalidUsage) if there is none of the name, or if it cannot
/// be made with these arguments.
NamedPlan makeLibraryPlan(const std::string& name, const LibraryArguments& arguments);

}  // namespace mscclpp::plan
