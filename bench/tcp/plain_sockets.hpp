// The baseline: a plain TCP socket between two threads.
#pragma once

#include <cstddef>

namespace mscclpp::perf {

/// Two connected sockets on the loopback interface.
class PlainSockets {
 public:
  PlainSockets();
  ~PlainSockets();
  PlainSockets(const PlainSockets&) = delete;
  PlainSockets& operator=(const PlainSockets&) = delete;

  void send(int end, const char* data, std::size_t size) const { transfer(end, const_cast<char*>(data), size, true); }
  void receive(int end, char* data, std::size_t size) const { transfer(end, data, size, false); }

 private:
  void transfer(int end, char* data, std::size_t size, bool out) const;

  int ends_[2] = {-1, -1};
};

}  // namespace mscclpp::perf
