// The Cublas that several objects use.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "mscclpp/basic/data_type.hpp"

namespace mscclpp::kernels {

class Cublas;

/// One Cublas, and so one workspace, for each kind of operands, for objects on one GPU whose calls do not overlap in
/// time. It is kept while one of them has it.
class SharedCublas {
 public:
  /// The arguments of Cublas. Throws what its constructor throws.
  std::shared_ptr<const Cublas> get(DataType operands, bool fastAccumulation);

 private:
  std::map<std::pair<DataType, bool>, std::weak_ptr<const Cublas>> made_;
};

}  // namespace mscclpp::kernels
