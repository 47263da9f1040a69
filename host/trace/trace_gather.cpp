#include "host/trace/trace_gather.hpp"

#include <exception>
#include <string>
#include <vector>

#include "host/base/printable_text.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

namespace {

// Rank 0 asks one peer after another for the next chunk, so that no peer is more than a chunk ahead of the file. With
// each request it sends a keep-alive to all other peers: they wait for it with the timeout of their bootstrap, which
// then only needs to cover one chunk, not the whole file. They wait twice, since rank 0 may itself wait for a chunk
// that long.
//
// The outcome travels in these messages, not by a GroupAgreement, which the ranks enter once each has done its part: a
// peer that fails stops while rank 0 waits for its chunk, and the waits of an agreement have no keep-alive messages.
enum class MessageType : char {
  KeepAlive,  ///< rank 0 to a peer
  Next,       ///< rank 0 to a peer, which responds with one of the last three
  Done,       ///< rank 0 to a peer, followed by an error message, empty for success
  Events,     ///< followed by a chunk of events; there may be more
  Summary,    ///< followed by the summary, after the last events
  Failed,     ///< followed by an error message
};

void sendMessage(Bootstrap& bootstrap, int peer, MessageType type) {
  bootstrap.send(&type, sizeof(type), peer, Bootstrap::TraceTag);
}

void sendMessage(Bootstrap& bootstrap, int peer, MessageType type, const JsonChunk& payload) {
  sendMessage(bootstrap, peer, type);
  bootstrap.send(payload, peer, Bootstrap::TraceTag);
}

MessageType receiveMessage(Bootstrap& bootstrap, int peer) {
  MessageType type{};
  bootstrap.recv(&type, sizeof(type), peer, Bootstrap::TraceTag);
  return type;
}

MessageType receiveMessageWithRetry(Bootstrap& bootstrap, int peer) {
  try {
    return receiveMessage(bootstrap, peer);
  } catch (const Error& error) {
    if (error.getErrorCode() != ErrorCode::Timeout) throw;
  }
  return receiveMessage(bootstrap, peer);
}

JsonChunk receivePayload(Bootstrap& bootstrap, int peer) {
  JsonChunk payload;
  bootstrap.recv(payload, peer, Bootstrap::TraceTag);
  return payload;
}

JsonChunk chunkOf(const std::string& text) {
  return {text.begin(), text.end()};
}
/// A peer's text, for an error.
std::string textOf(const JsonChunk& chunk) {
  return printableText({chunk.begin(), chunk.end()});
}

/// A peer's wait for Next or Done.
void waitForMessage(Bootstrap& bootstrap, MessageType expected) {
  MessageType type = MessageType::KeepAlive;
  while (type == MessageType::KeepAlive) type = receiveMessageWithRetry(bootstrap, 0);
  if (type == MessageType::Done) {
    const std::string failure = textOf(receivePayload(bootstrap, 0));
    if (!failure.empty()) throw Error("rank 0 could not write the trace: " + failure, ErrorCode::RemoteError);
  }
  if (type != expected) {
    throw Error("writeTrace: rank 0 sent message type " + std::to_string(static_cast<int>(type)) + " in place of " +
                    std::to_string(static_cast<int>(expected)),
                ErrorCode::InternalError);
  }
}

void receiveAll(TraceFile& file, const TraceJson& own, Bootstrap& bootstrap) {
  constexpr int noPeer = 0;
  const auto request = [&](int from) {
    for (int peer = 1; peer < bootstrap.getNranks(); ++peer) {
      sendMessage(bootstrap, peer, peer == from ? MessageType::Next : MessageType::KeepAlive);
    }
  };
  own.forEachChunk([&](const JsonChunk& events) {
    file.add(events);
    request(noPeer);
  });
  std::vector<std::string> summaries{own.summary()};
  for (int peer = 1; peer < bootstrap.getNranks(); ++peer) {
    for (MessageType type = MessageType::Events; type == MessageType::Events;) {
      request(peer);
      type = receiveMessage(bootstrap, peer);
      const JsonChunk payload = receivePayload(bootstrap, peer);
      if (type == MessageType::Failed) {
        throw Error("rank " + std::to_string(peer) + " failed: " + textOf(payload), ErrorCode::RemoteError);
      }
      if (type == MessageType::Events) {
        file.add(payload);
      } else {
        summaries.emplace_back(payload.begin(), payload.end());
      }
    }
  }
  file.close(summaries);
}

/// Sent to every peer, even if another one cannot be reached. Returns the first failure.
std::exception_ptr sendDone(Bootstrap& bootstrap, const std::string& failure) {
  std::exception_ptr first;
  for (int peer = 1; peer < bootstrap.getNranks(); ++peer) {
    try {
      sendMessage(bootstrap, peer, MessageType::Done, chunkOf(failure));
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  return first;
}

}  // namespace

void receiveTraces(TraceFile& file, const TraceJson& own, Bootstrap& bootstrap) {
  try {
    receiveAll(file, own, bootstrap);
  } catch (const std::exception& error) {
    sendDone(bootstrap, error.what());  // a peer that cannot be reached has failed already
    throw;
  }
  if (const std::exception_ptr failure = sendDone(bootstrap, {})) std::rethrow_exception(failure);
}

void sendTrace(const TraceJson& own, Bootstrap& bootstrap) {
  bool isSending = false;
  const auto respond = [&](MessageType type, const JsonChunk& payload) {
    isSending = true;
    waitForMessage(bootstrap, MessageType::Next);
    sendMessage(bootstrap, 0, type, payload);
    isSending = false;
  };
  try {
    own.forEachChunk([&](const JsonChunk& events) { respond(MessageType::Events, events); });
    respond(MessageType::Summary, chunkOf(own.summary()));
  } catch (const std::exception& error) {
    if (isSending) throw;  // rank 0 cannot be reached, or has failed
    respond(MessageType::Failed, chunkOf(error.what()));
    try {
      waitForMessage(bootstrap, MessageType::Done);
    } catch (const std::exception&) {
      // A consequence of the failure here, which is thrown below.
    }
    throw;
  }
  waitForMessage(bootstrap, MessageType::Done);
}

}  // namespace mscclpp::detail
