// What becomes of the reduced rows of a GEMM whose epilogue reduces over the ranks: they are stored as they are.
#pragma once

#include "mscclpp/basic/source_sink.hpp"
#include "mscclpp/basic/vector.hpp"
#include "mscclpp/config.hpp"
#include "mscclpp/fusion/gemm/matrix.hpp"

namespace mscclpp {

/// The part of a row that a warp has.
struct RowPart {
  std::size_t row;     ///< of this rank's output
  std::size_t column;  ///< the first one
};

// A row result is a trivially copyable type with
//   wholeRows                                 whether transform() needs a whole row, as a norm does, or any part of it
//   resultBytes(columns)                      what is delivered for a part of `columns` elements: a multiple of 16
//   accepts(rows, columns)                    whether an output of this size fits
//   transform(warp, part, packs, output)      called where the part is reduced, in all lanes: writes the result by
//                                             output(byte, word), as RowExchange::reduce() says
//   store(part, byte, word)                   called on each rank that the result is delivered to, for each word
// Models: StoreRows, NormRows and AnyNormRows (fusion/gemm/norm_rows.hpp).

/// Stores the rows.
template <class T>
struct StoreRows {
  static constexpr bool wholeRows = false;

  Matrix<T> output;

  static MSCCLPP_HOST_DEVICE std::size_t resultBytes(std::size_t columns) { return columns * sizeof(T); }
  MSCCLPP_INLINE bool accepts(std::size_t rows, std::size_t columns) const {
    return output.rows >= rows && output.columns == columns;
  }
  template <class Warp, class Packs, class Output>
  MSCCLPP_INLINE void transform(const Warp& /*warp*/, const RowPart& /*part*/, Packs& packs,
                                const Output& write) const {
    packs.forEach([&](std::size_t column, Pack<T>& pack) { write(column * sizeof(T), toWord<T>(pack)); });
  }
  MSCCLPP_INLINE void store(const RowPart& part, std::size_t byte, const Word128& word) const {
    const std::size_t column = part.column + byte / sizeof(T);
    if (column >= output.columns) return;
    const std::size_t left = output.columns - column;
    ArraySink<T>(output.row(part.row))(column, fromWord<T>(word),
                                       left < packSize<T> ? static_cast<int>(left) : packSize<T>);
  }
};

}  // namespace mscclpp
