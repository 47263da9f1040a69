// What the controller of random kills and its ranks say to each other: whole structures, over a socket pair.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>

#include "mscclpp/host/bootstrap.hpp"

namespace mscclpp::faults {

enum class Word : std::uint32_t {
  MakeId,    ///< to a rank: a token, please
  Start,     ///< to a rank: meet the others, and call collectives until one throws
  Id,        ///< from a rank: the token
  Calling,   ///< from a rank: everybody has met, the calls begin
  Failed,    ///< from a rank: a call has thrown
  Clean,     ///< from a rank: everything is destroyed; what the process still holds
  Surprise,  ///< from a rank: what must not happen
};

/// Plain data. What a word does not need stays zero.
struct Note {
  Word word = Word::Surprise;
  std::int32_t rank = 0;
  std::int32_t ranks = 0;
  std::uint32_t seed = 0;
  std::int32_t code = 0;       ///< Failed: an ErrorCode
  std::uint32_t calls = 0;     ///< Failed: those that had succeeded
  std::int32_t holds[3] = {};  ///< Clean: descriptors, threads, mappings of shared memory
  UniqueId id{};
  char text[512] = {};
};

inline void setText(Note& note, const char* text) {
  std::snprintf(note.text, sizeof(note.text), "%s", text);
}

/// False: the other side is gone.
inline bool say(int socket, const Note& note) {
  return ::send(socket, &note, sizeof(note), MSG_NOSIGNAL) == sizeof(note);
}

enum class Heard { Note, Nothing, Gone };

/// The next note; Nothing if none has come by then.
inline Heard hear(int socket, Note& note, std::chrono::steady_clock::time_point until) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    pollfd entry{socket, POLLIN, 0};
    const int ready = ::poll(&entry, 1, left > 0 ? static_cast<int>(left) : 0);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return Heard::Nothing;
    return ::recv(socket, &note, sizeof(note), 0) == sizeof(note) ? Heard::Note : Heard::Gone;
  }
}

}  // namespace mscclpp::faults
