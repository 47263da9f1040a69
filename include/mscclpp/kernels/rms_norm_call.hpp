// A call of the compiled all-reduce with residual and RMSNorm as a run-time value.
#pragma once

#include <cstddef>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/fusion/quantise.hpp"

struct CUstream_st;

namespace mscclpp {

/// What a call of Collectives::allReduceRmsNorm() does, in the steps of AllReduceRmsNorm
/// (fusion/all_reduce_rms_norm.hpp). All ranks pass the same rows, hidden, type, epsilon, residual and weights. Arrays
/// are at addresses that are multiples of 16, and rows follow each other without gaps.
struct RmsNormCall {
  const void* input = nullptr;     ///< rows x hidden: this rank's contribution
  const void* residual = nullptr;  ///< rows x hidden; null: none
  const void* weight = nullptr;    ///< hidden
  void* newResidual = nullptr;     ///< rows x hidden: the sum and the residual; may be `residual`; null: not written
  void* normalised = nullptr;      ///< rows x hidden; may be `input`; null: not written

  Quantisation quantisation = Quantisation::None;  ///< of the normalised rows; others than None: not of FLOAT32
  void* quantised = nullptr;                       ///< rows x hidden values of one byte; not null with a quantisation
  float* scales = nullptr;       ///< per row: rows; per group: rows x scalesOfRow(); not null with either
  const float* scale = nullptr;  ///< Fp8Static: one, in memory of the device

  std::size_t rows = 0;
  std::size_t hidden = 0;             ///< a multiple of 16 bytes, of at most mostRmsNormElements elements
  DataType type = DataType::FLOAT32;  ///< FLOAT32, FLOAT16 or BFLOAT16
  float epsilon = 1e-6f;
  CUstream_st* stream = nullptr;  ///< to enqueue on, on GPUs

  /// The scales that a row gets: 0 without a quantisation, and with one scale for all.
  std::size_t scalesOfRow() const { return mscclpp::scalesOfRow(hidden, quantisation); }
};

/// The longest row of a RmsNormCall, in elements.
inline constexpr std::size_t mostRmsNormElements = 16384;

}  // namespace mscclpp
