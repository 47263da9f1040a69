// The routing of few tokens, which a block computes for itself: a bit for each token and expert or rank.
#pragma once

#include "mscclpp/arch/set_bits.hpp"
#include "mscclpp/arch/warp.hpp"
#include "mscclpp/arch/word.hpp"
#include "mscclpp/basic/partition.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/moe/routing.hpp"

namespace mscclpp::moe {

/// Tokens whose bits are in one word.
inline constexpr std::uint32_t tokensPerWord = 32;

/// The memory of a BlockRouting, in words of 32 bits.
MSCCLPP_HOST_DEVICE inline std::size_t blockRoutingWords(const Dimensions& dimensions) {
  return ceilDivide(std::size_t{dimensions.maxTokens}, tokensPerWord) *
         static_cast<std::size_t>(dimensions.experts + dimensions.ranks);
}

/// Where tokens belong, without a barrier of the grid: a block sets a bit for each expert and for each rank that a
/// token is for, and then counts bits. A count takes as many steps as there are words of 32 tokens: for some hundred
/// tokens. Made by all threads of a block.
template <class GridType>
class BlockRouting {
 public:
  /// words: [blockRoutingWords(dimensions)], of this block.
  MSCCLPP_INLINE BlockRouting(const GridType& grid, const Dimensions& dimensions, std::uint32_t* words)
      : grid_(grid), dimensions_(dimensions), words_(words) {}

  /// Reads the choices. Called by all threads of the block, before the other functions.
  template <class Index>
  MSCCLPP_INLINE void make(const Routing<Index>& routing) const {
    constexpr int batch = 2;  // loads of a thread in flight together
    const auto block = grid_.block();
    const auto threads = static_cast<std::uint32_t>(block.size());
    const auto choices = static_cast<std::uint32_t>(dimensions_.topk);
    const std::uint32_t count = routing.tokens * choices;
    Index experts[batch];
    const auto load = [&](std::uint32_t first) {
      MSCCLPP_UNROLL
      for (int i = 0; i < batch; ++i) {
        const std::uint32_t at = first + static_cast<std::uint32_t>(i) * threads;
        experts[i] = at < count ? routing.experts[at] : Index{-1};
      }
    };
    std::uint32_t first = static_cast<std::uint32_t>(block.rank());
    load(first);
    const std::uint32_t used = (routing.tokens + tokensPerWord - 1) / tokensPerWord * bins();
    MSCCLPP_NO_UNROLL
    for (auto word = static_cast<std::uint32_t>(block.rank()); word < used; word += threads) words_[word] = 0;
    block.sync();
    MSCCLPP_NO_UNROLL
    for (; first < count; first += batch * threads, load(first)) {
      MSCCLPP_UNROLL
      for (int i = 0; i < batch; ++i) {
        if (experts[i] < 0 || experts[i] >= static_cast<Index>(dimensions_.experts)) continue;
        const std::uint32_t token = (first + static_cast<std::uint32_t>(i) * threads) / choices;
        const auto expert = static_cast<std::uint32_t>(experts[i]);
        std::uint32_t* const ofToken = words_ + token / tokensPerWord * bins();
        const std::uint32_t bit = 1u << token % tokensPerWord;
        arch::setBits(ofToken + expert, bit);
        arch::setBits(ofToken + rankBin(static_cast<int>(expert) / dimensions_.expertsPerRank()), bit);
      }
    }
    block.sync();
  }

  /// The number of tokens for an expert or a rank. One thread, as the following.
  MSCCLPP_INLINE std::uint32_t countOfExpert(std::uint32_t expert, std::uint32_t tokens) const {
    return countOfBin(expert, tokens);
  }
  MSCCLPP_INLINE std::uint32_t countOfRank(int rank, std::uint32_t tokens) const {
    return bitsBefore(rankBin(rank), tokens);
  }
  /// The same of a bin: experts, then ranks.
  MSCCLPP_INLINE std::uint32_t countOfBin(std::uint32_t bin, std::uint32_t tokens) const {
    return bitsBefore(bin, tokens);
  }
  /// The index of a token among those for an expert that it has chosen.
  MSCCLPP_INLINE std::uint32_t indexAtExpert(std::uint32_t token, std::uint32_t expert) const {
    return bitsBefore(expert, token);
  }
  /// The index of a token among those for a rank, -1 if the rank does not get it.
  MSCCLPP_INLINE std::int32_t indexAtRank(std::uint32_t token, int rank) const {
    const std::uint32_t bin = rankBin(rank);
    const bool isFor = (words_[token / tokensPerWord * bins() + bin] >> token % tokensPerWord & 1) != 0;
    return isFor ? static_cast<std::int32_t>(bitsBefore(bin, token)) : -1;
  }

 private:
  MSCCLPP_INLINE std::uint32_t bins() const {
    return static_cast<std::uint32_t>(dimensions_.experts + dimensions_.ranks);
  }
  MSCCLPP_INLINE std::uint32_t rankBin(int rank) const {
    return static_cast<std::uint32_t>(dimensions_.experts + rank);
  }
  MSCCLPP_INLINE std::uint32_t bitsBefore(std::uint32_t bin, std::uint32_t token) const {
    const std::uint32_t* word = words_ + bin;
    std::uint32_t sum = 0;
    MSCCLPP_NO_UNROLL
    for (std::uint32_t left = token; left > 0; word += bins()) {
      const std::uint32_t used = left < tokensPerWord ? left : tokensPerWord;
      sum += static_cast<std::uint32_t>(arch::countBits(*word & (0xffffffffu >> (tokensPerWord - used))));
      left -= used;
    }
    return sum;
  }

  const GridType& grid_;
  const Dimensions& dimensions_;
  std::uint32_t* words_;
};

}  // namespace mscclpp::moe
