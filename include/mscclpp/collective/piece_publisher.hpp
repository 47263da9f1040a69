// Who publishes the pieces of rows that the warps of a block send: each warp its own, or one warp those of all.
#pragma once

#include "mscclpp/arch/shared_word.hpp"
#include "mscclpp/arch/sleep.hpp"
#include "mscclpp/config.hpp"

namespace mscclpp {

/// A piece of a row, or of a block of rows, for a rank.
struct RowPiece {
  int to = -1;  ///< -1: none
  std::uint32_t row = 0, piece = 0;
};

/// In shared memory: what the warps that send tell the one that publishes. clear() comes first.
struct PublisherWords {
  static constexpr int maxSenders = 32;
  static constexpr std::uint32_t ringSize = 4;  ///< pieces of a warp that are given and not published, at most
  static_assert((ringSize & (ringSize - 1)) == 0, "counts wrap around");
  static constexpr std::uint32_t isOver = std::uint32_t{1} << 31;

  std::uint32_t given[maxSenders];  ///< pieces of each warp; isOver: there are no more
  std::uint32_t published[maxSenders];
  RowPiece pieces[maxSenders][ringSize];

  /// Called by all threads of the block, before a sync.
  template <class Block>
  MSCCLPP_INLINE void clear(const Block& block) {
    MSCCLPP_NO_UNROLL
    for (int warp = block.rank(); warp < maxSenders; warp += block.size()) given[warp] = published[warp] = 0;
  }
};

/// A warp's view. A release waits until the stores to the link have arrived. With a warp that only publishes, the
/// others need not wait, and one release is for pieces of all of them. Session: has warp() and its `width`;
/// publish(piece), by which all lanes of the calling warp publish a piece that it has sent; and publishEach(piece), by
/// which each lane publishes a piece that others have sent, or none, with one release for all lanes.
template <class Session>
class PiecePublisher {
 public:
  /// words: of the block; null: each warp publishes its own pieces. warp: the number of the calling one among `warps`
  /// that send or publish.
  MSCCLPP_INLINE PiecePublisher(const Session& session, PublisherWords* words, int warp, int warps)
      : session_(session), words_(words), warp_(warp), senders_(warps) {
    constexpr int most = Session::width < PublisherWords::maxSenders ? Session::width : PublisherWords::maxSenders;
    if (words != nullptr && warps > 1 && warps - 1 <= most) {
      senders_ = warps - 1;
    } else {
      words_ = nullptr;
    }
  }
  /// Whether this warp, the last one, publishes and does not send: it calls run().
  MSCCLPP_INLINE bool isPublisher() const { return warp_ == senders_; }

  /// Publishes a piece of which this warp has sent all packs, or gives it to the warp that will. Called by all lanes.
  MSCCLPP_INLINE void publish(const RowPiece& piece) {
    if (words_ == nullptr) return session_.publish(piece);
    session_.warp().sync();
    if (session_.warp().rank() == 0) {
      while (count_ - arch::loadSharedAcquire(&words_->published[warp_]) >= PublisherWords::ringSize) pause();
      words_->pieces[warp_][count_ % PublisherWords::ringSize] = piece;
      arch::storeSharedRelease(&words_->given[warp_], count_ + 1);
    }
    ++count_;
  }
  /// After this warp's last piece, or instead of any. Called by all lanes.
  MSCCLPP_INLINE void end() const {
    if (words_ == nullptr || session_.warp().rank() != 0) return;
    arch::storeSharedRelease(&words_->given[warp_], count_ | PublisherWords::isOver);
  }

  /// Publishes the pieces of the others, lane l those of warp l, until all have called end(). Called by all lanes of
  /// the publisher. Without a time limit: the others wait for it, and for other ranks with one.
  MSCCLPP_INLINE void run() const {
    const auto& warp = session_.warp();
    const int lane = warp.rank();
    std::uint32_t published = 0;
    MSCCLPP_NO_UNROLL
    while (true) {
      const std::uint32_t given =
          lane < senders_ ? arch::loadSharedAcquire(&words_->given[lane]) : PublisherWords::isOver;
      const bool hasPiece = (given & ~PublisherWords::isOver) > published;
      if (warp.any(hasPiece)) {
        RowPiece piece = {};
        if (hasPiece) piece = words_->pieces[lane][published % PublisherWords::ringSize];
        session_.publishEach(piece);
        if (hasPiece) arch::storeSharedRelease(&words_->published[lane], ++published);
      } else if (warp.any((given & PublisherWords::isOver) == 0)) {
        pause();
      } else {
        return;
      }
    }
  }

 private:
  static MSCCLPP_INLINE void pause() {
    constexpr unsigned nanoseconds = 100;
    arch::sleepFor(nanoseconds);
  }

  const Session& session_;
  PublisherWords* words_;
  const int warp_;
  int senders_;
  std::uint32_t count_ = 0;  ///< of pieces given
};

}  // namespace mscclpp
