// The cause of a failed completion, for messages.
#pragma once

#include <string>

#include "host/transport/verbs/ibv_symbols.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail::ib {

/// RemoteError if the peer or the route to it failed, SystemError otherwise.
inline ErrorCode codeOf(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_ABORT_ERR:
      return ErrorCode::RemoteError;
    default:
      return ErrorCode::SystemError;
  }
}

/// The status as text and as a number, and its usual cause.
inline std::string describe(const ibv_wc& completion) {
  std::string text = std::string(ibvSymbols().wcStatusStr(completion.status)) + " (status " +
                     std::to_string(completion.status) + ", vendor error " + std::to_string(completion.vendor_err) +
                     ")";
  switch (completion.status) {
    case IBV_WC_RETRY_EXC_ERR:
      text += ": the peer does not answer; its process may have ended or not called connect yet, or a link is down";
      break;
    case IBV_WC_REM_ACCESS_ERR:
      text +=
          ": the peer does not offer that memory (any more); it must keep its RegisteredMemory, or its process has "
          "ended";
      break;
    case IBV_WC_LOC_PROT_ERR:
      text += ": the source is not registered (any more); keep its RegisteredMemory until a flush";
      break;
    default:
      break;
  }
  return text;
}

}  // namespace mscclpp::detail::ib
