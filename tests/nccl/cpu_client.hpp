// CPU ranks for the client of NCCL's C API: memory of the host, no streams.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/nccl/client_cases.hpp"

namespace mscclpp::test {

struct CpuClient {
  class Memory {
   public:
    explicit Memory(const Bytes& bytes) : words_(bytes.size() / sizeof(std::uint64_t) + 1), bytes_(bytes.size()) {
      std::copy(bytes.begin(), bytes.end(), data());
    }
    unsigned char* data() { return reinterpret_cast<unsigned char*>(words_.data()); }
    Bytes read() const { return readFrom(words_.data(), bytes_); }
    static Bytes readFrom(const void* data, std::size_t bytes) {
      const auto* first = static_cast<const unsigned char*>(data);
      return {first, first + bytes};
    }

   private:
    std::vector<std::uint64_t> words_;  // aligned for every element
    std::size_t bytes_;
  };
  struct Stream {
    cudaStream_t get() const { return nullptr; }
    void synchronize() const {}
  };
  static void setDevice(int) {}
};

}  // namespace mscclpp::test
