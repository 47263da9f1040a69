// The arguments of a collective that stores results straight into its peers' outputs.
#pragma once

#include "mscclpp/collective/config.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/sync/window.hpp"

namespace mscclpp {

/// Arguments with the outputs of all ranks, as this rank has mapped them: outputs.at(r) is element 0 of the output of
/// rank r (RegisteredBuffer), aligned to 16 bytes where all elements of a pack are stored together. This rank's own is
/// what its sink writes.
template <class Base, int Ranks>
struct OutputArgs : Base {
  Window<Ranks> outputs;
};

namespace detail {

template <class Base, Link link, int Ranks>
struct ArgsWithOutputsOf {
  using Type = Base;
};
template <class Base, int Ranks>
struct ArgsWithOutputsOf<Base, Link::Outputs, Ranks> {
  using Type = OutputArgs<Base, Ranks>;
};

}  // namespace detail

/// The arguments of a collective with this link: Base itself, or Base and a member `outputs`.
template <class Base, Link link, int Ranks>
using ArgsWithOutputs = typename detail::ArgsWithOutputsOf<Base, link, Ranks>::Type;

}  // namespace mscclpp
