// A collective epilogue of CUTLASS's builder with other callbacks.
#pragma once

#include <cutlass/epilogue/collective/collective_epilogue.hpp>

namespace mscclpp::detail {

/// The collective epilogue `Stock` with Callbacks::Of<its fusion callbacks> in their place.
template <class Stock, class Callbacks>
struct WithCallbacks {
  static_assert(sizeof(Stock) == 0,
                "the epilogue must be one of cutlass::epilogue::collective::CollectiveBuilder for Sm90 with the "
                "schedule TmaWarpSpecialized or TmaWarpSpecializedCooperative");
};
template <class Policy, class Tile, class EpilogueTile, class ElementC, class StrideC, class ElementD, class StrideD,
          class Fusion, class... Rest, class Callbacks>
struct WithCallbacks<cutlass::epilogue::collective::CollectiveEpilogue<Policy, Tile, EpilogueTile, ElementC, StrideC,
                                                                       ElementD, StrideD, Fusion, Rest...>,
                     Callbacks> {
  using Type =
      cutlass::epilogue::collective::CollectiveEpilogue<Policy, Tile, EpilogueTile, ElementC, StrideC, ElementD,
                                                        StrideD, typename Callbacks::template Of<Fusion>, Rest...>;
};

}  // namespace mscclpp::detail
