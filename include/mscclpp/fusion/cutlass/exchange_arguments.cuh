// Where the arguments of a row exchange are among the arguments, or the parameters, of an epilogue of CUTLASS.
#pragma once

#include <cute/tensor.hpp>

#include "mscclpp/collective/collective.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp::detail {

/// Finds the struct with the members `exchange` and `result`: the arguments of the epilogue themselves, or those of a
/// node of its visitor tree, which CUTLASS keeps in structs with members op_0, op_1, ... or in tuples.
struct ExchangeArguments {
  template <class Tree>
  static MSCCLPP_HOST_DEVICE constexpr auto& in(Tree& tree) {
    if constexpr (requires { tree.exchange, tree.result; }) {
      return tree;
    } else if constexpr (requires { tree.thread; }) {
      return in(tree.thread);
    } else if constexpr (requires { tree.op_3; }) {
      return inOneOf(tree.op_0, tree.op_1, tree.op_2, tree.op_3);
    } else if constexpr (requires { tree.op_2; }) {
      return inOneOf(tree.op_0, tree.op_1, tree.op_2);
    } else if constexpr (requires { tree.op_1; }) {
      return inOneOf(tree.op_0, tree.op_1);
    } else if constexpr (requires { tree.op_0; }) {
      return in(tree.op_0);
    } else if constexpr (cute::is_tuple<cute::remove_cv_t<Tree>>::value) {
      return inElements(tree, cute::make_index_sequence<cute::tuple_size<cute::remove_cv_t<Tree>>::value>{});
    } else {
      return notFound;
    }
  }

 private:
  /// Members of other types, so that ExchangeTypes can say what is missing.
  struct NotFound {
    int exchange, result;
  };
  static constexpr NotFound notFound{};
  template <class Tree>
  static constexpr bool areIn = !cute::is_same_v<decltype(in(*static_cast<Tree*>(nullptr))), const NotFound&>;

  /// Elements without data, which cute::get returns by value, are among them.
  template <class First, class... Others>
  static MSCCLPP_HOST_DEVICE constexpr auto& inOneOf(First&& first, Others&&... others) {
    if constexpr (areIn<cute::remove_reference_t<First>>) {
      return in(first);
    } else if constexpr (sizeof...(Others) > 0) {
      return inOneOf(others...);
    } else {
      return notFound;
    }
  }
  template <class Tree, std::size_t... index>
  static MSCCLPP_HOST_DEVICE constexpr auto& inElements(Tree& tree, cute::index_sequence<index...> /*indices*/) {
    if constexpr (sizeof...(index) > 0) {
      return inOneOf(cute::get<index>(tree)...);
    } else {
      return notFound;
    }
  }
};

/// What the type of the arguments of an exchange says.
template <class Args>
struct ExchangeTypes {
  static_assert(sizeof(Args) == 0,
                "the epilogue contributes to no row exchange: its visitor tree must have a node ContributeTiles");
};
template <int ranks, class RowScratch>
struct ExchangeTypes<CollectiveArgs<ranks, RowScratch>> {
  static constexpr int Ranks = ranks;
  using Scratch = RowScratch;
};

}  // namespace mscclpp::detail
