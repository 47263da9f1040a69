// A collective epilogue of CUTLASS's builder with other callbacks, or with a source as well.
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

/// The same with a source C that has the elements and the layout of D, for a Stock without. As CUTLASS's builder makes
/// an epilogue whose source has elements as large as those of its output: a subtile of D takes the shared memory of
/// that of C, of which there are a few.
template <class Stock, class Callbacks>
struct WithSource : WithCallbacks<Stock, Callbacks> {};
template <int StagesC, int StagesD, int FragmentSize, bool reusesSharedC, bool delaysStores, class Tile,
          class EpilogueTile, class StrideC, class ElementD, class StrideD, class Fusion, class... Rest,
          class Callbacks>
struct WithSource<
    cutlass::epilogue::collective::CollectiveEpilogue<
        cutlass::epilogue::Sm90TmaWarpSpecialized<StagesC, StagesD, FragmentSize, reusesSharedC, delaysStores>, Tile,
        EpilogueTile, void, StrideC, ElementD, StrideD, Fusion, Rest...>,
    Callbacks> {
  using Type = cutlass::epilogue::collective::CollectiveEpilogue<
      cutlass::epilogue::Sm90TmaWarpSpecialized<(StagesC > StagesD ? StagesC : StagesD + 1), StagesD, FragmentSize,
                                                true, false>,
      Tile, EpilogueTile, ElementD, StrideD, ElementD, StrideD, typename Callbacks::template Of<Fusion>, Rest...>;
};

}  // namespace mscclpp::detail
