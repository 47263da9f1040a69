// Loads NCCL with dlopen, and the functions of its C API that a measurement needs.
#include "nccl.hpp"

#include <dlfcn.h>

#include <vector>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::perf {

namespace {

struct NcclUniqueId {
  char internal[128];
};
using NcclComm = void*;
using NcclWindow = void*;
constexpr int symmetricWindow = 1;

/// A function of the library. Functions return 0 for success.
template <class... Arguments>
struct Function {
  Function(void* library, const char* functionName, bool required = true)
      : name(functionName), pointer(reinterpret_cast<int (*)(Arguments...)>(::dlsym(library, functionName))) {
    if (pointer == nullptr && required) {
      throw Error(std::string("this NCCL has no ") + name, ErrorCode::InvalidUsage);
    }
  }
  explicit operator bool() const { return pointer != nullptr; }

  const char* name;
  int (*pointer)(Arguments...);
};
constexpr bool optional = false;

/// NCCL's enumerator of a data type.
int ncclType(DataType type) {
  switch (type) {
    case DataType::INT8:
      return 0;
    case DataType::UINT8:
      return 1;
    case DataType::INT32:
      return 2;
    case DataType::UINT32:
      return 3;
    case DataType::INT64:
      return 4;
    case DataType::UINT64:
      return 5;
    case DataType::FLOAT16:
      return 6;
    case DataType::FLOAT32:
      return 7;
    case DataType::FLOAT64:
      return 8;
    case DataType::BFLOAT16:
      return 9;
    case DataType::FLOAT8_E4M3FN:
      return 10;
    case DataType::FLOAT8_E5M2:
      return 11;
    default:
      throw Error(std::string("NCCL has no data type ") + nameOf(type) + ": choose another one, or leave out --nccl",
                  ErrorCode::InvalidUsage);
  }
}

/// A type of NCCL's with elements of the same size, for collectives that only move them.
int movedType(DataType type) {
  const bool isMissing = type == DataType::INT16 || type == DataType::UINT16;
  return ncclType(isMissing ? DataType::FLOAT16 : type);
}

void* openLibrary(const std::string& path) {
  void* handle = ::dlopen(path.empty() ? "libnccl.so.2" : path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  throw Error(std::string("cannot open NCCL: ") + ::dlerror() + "; set its path with --nccl-library",
              ErrorCode::InvalidUsage);
}

}  // namespace

struct Nccl::Library {
  using Count = std::size_t;
  using Stream = CUstream_st*;
  using ErrorString = const char* (*)(int);

  explicit Library(const std::string& path) : handle(openLibrary(path)) {}

  /// Throws Error if the call fails.
  template <class... Parameters, class... Arguments>
  void call(const Function<Parameters...>& function, Arguments... arguments) const {
    const int result = function.pointer(arguments...);
    if (result == 0) return;
    const auto errorString = reinterpret_cast<ErrorString>(::dlsym(handle, "ncclGetErrorString"));
    const std::string reason = errorString == nullptr ? "error " + std::to_string(result) : errorString(result);
    throw Error(std::string(function.name) + ": " + reason, ErrorCode::SystemError);
  }

  void* handle;  // never closed: NCCL may leave threads running
  Function<int*> getVersion{handle, "ncclGetVersion"};
  Function<NcclUniqueId*> getUniqueId{handle, "ncclGetUniqueId"};
  Function<NcclComm*, int, NcclUniqueId, int> commInitRank{handle, "ncclCommInitRank"};
  Function<NcclComm> commDestroy{handle, "ncclCommDestroy"};
  Function<void**, Count> memAlloc{handle, "ncclMemAlloc", optional};
  Function<void*> memFree{handle, "ncclMemFree", optional};
  Function<NcclComm, void*, Count, NcclWindow*, int> windowRegister{handle, "ncclCommWindowRegister", optional};
  Function<NcclComm, NcclWindow> windowDeregister{handle, "ncclCommWindowDeregister", optional};
  Function<> groupStart{handle, "ncclGroupStart"};
  Function<> groupEnd{handle, "ncclGroupEnd"};

  // Input, output, count, type; operator; root or peer.
  Function<const void*, void*, Count, int, int, NcclComm, Stream> allReduce{handle, "ncclAllReduce"};
  Function<const void*, void*, Count, int, int, NcclComm, Stream> reduceScatter{handle, "ncclReduceScatter"};
  Function<const void*, void*, Count, int, int, int, NcclComm, Stream> reduce{handle, "ncclReduce"};
  Function<const void*, void*, Count, int, NcclComm, Stream> allGather{handle, "ncclAllGather"};
  Function<const void*, void*, Count, int, NcclComm, Stream> allToAll{handle, "ncclAlltoAll", optional};
  Function<const void*, void*, Count, int, int, NcclComm, Stream> broadcast{handle, "ncclBroadcast"};
  Function<const void*, void*, Count, int, int, NcclComm, Stream> gather{handle, "ncclGather", optional};
  Function<const void*, void*, Count, int, int, NcclComm, Stream> scatter{handle, "ncclScatter", optional};
  Function<const void*, Count, int, int, NcclComm, Stream> send{handle, "ncclSend"};
  Function<void*, Count, int, int, NcclComm, Stream> receive{handle, "ncclRecv"};
};

Nccl::Nccl(const std::string& library, Bootstrap& bootstrap)
    : library_(std::make_shared<Library>(library)), rank_(bootstrap.getRank()), ranks_(bootstrap.getNranks()) {
  std::vector<NcclUniqueId> ids(static_cast<std::size_t>(ranks_));
  if (rank_ == 0) library_->call(library_->getUniqueId, &ids[0]);
  bootstrap.allGather(ids.data(), sizeof(NcclUniqueId));
  NcclComm communicator = nullptr;
  library_->call(library_->commInitRank, &communicator, ranks_, ids[0], rank_);
  communicator_ = {communicator, [keep = library_](void* c) { keep->commDestroy.pointer(c); }};
}
Nccl::~Nccl() = default;

std::string Nccl::version() const {
  int number = 0;
  library_->call(library_->getVersion, &number);
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." + std::to_string(number % 100);
}

void Nccl::run(const CollectiveCall& c) {
  const Library& l = *library_;
  const int op = static_cast<int>(c.reduction.op);
  const int type = hasReduction(c.collective) ? ncclType(c.type) : movedType(c.type);
  const NcclComm comm = communicator_.get();
  switch (c.collective) {
    case CollectiveType::AllReduce:
      return l.call(l.allReduce, c.input, c.output, c.count, type, op, comm, c.stream);
    case CollectiveType::ReduceScatter:
      return l.call(l.reduceScatter, c.input, c.output, c.count, type, op, comm, c.stream);
    case CollectiveType::Reduce:
      return l.call(l.reduce, c.input, c.output, c.count, type, op, c.root, comm, c.stream);
    case CollectiveType::AllGather:
      return l.call(l.allGather, c.input, c.output, c.count, type, comm, c.stream);
    case CollectiveType::Broadcast:
      return l.call(l.broadcast, c.input, c.output, c.count, type, c.root, comm, c.stream);
    case CollectiveType::AllToAll:
      if (l.allToAll) return l.call(l.allToAll, c.input, c.output, c.count, type, comm, c.stream);
      break;
    case CollectiveType::Gather:
      if (l.gather) return l.call(l.gather, c.input, c.output, c.count, type, c.root, comm, c.stream);
      break;
    case CollectiveType::Scatter:
      if (l.scatter) return l.call(l.scatter, c.input, c.output, c.count, type, c.root, comm, c.stream);
      break;
    case CollectiveType::SendReceive:
    case CollectiveType::ReduceScatterV:
      break;
  }
  runAsGroup(c);
}

void Nccl::run(std::span<const CollectiveCall> calls) {
  const Library& l = *library_;
  l.call(l.groupStart);
  for (const CollectiveCall& call : calls) run(call);
  l.call(l.groupEnd);
}

void Nccl::runAsGroup(const CollectiveCall& c) {
  const Library& l = *library_;
  const int type = movedType(c.type);
  const NcclComm comm = communicator_.get();
  const std::size_t partBytes = c.count * sizeOf(c.type);
  const auto send = [&](int peer, std::size_t part) {
    const auto* from = static_cast<const std::byte*>(c.input) + part * partBytes;
    l.call(l.send, from, c.count, type, peer, comm, c.stream);
  };
  const auto receive = [&](int peer, std::size_t part, std::size_t count) {
    auto* to = static_cast<std::byte*>(c.output) + part * partBytes;
    l.call(l.receive, to, count, type, peer, comm, c.stream);
  };
  const bool isRoot = rank_ == c.root;
  l.call(l.groupStart);
  if (c.collective == CollectiveType::SendReceive) {
    if (c.destination >= 0) send(c.destination, 0);
    if (c.origin >= 0) receive(c.origin, 0, c.receivedCount);
  } else {
    if (c.collective == CollectiveType::Gather) send(c.root, 0);
    if (c.collective == CollectiveType::Scatter) receive(c.root, 0, c.count);
    for (int peer = 0; peer < ranks_; ++peer) {
      const auto part = static_cast<std::size_t>(peer);
      const bool toAll = c.collective == CollectiveType::AllToAll;
      if (toAll || (c.collective == CollectiveType::Scatter && isRoot)) send(peer, part);
      if (toAll || (c.collective == CollectiveType::Gather && isRoot)) receive(peer, part, c.count);
    }
  }
  l.call(l.groupEnd);
}

std::shared_ptr<void> Nccl::allocateWindow(std::size_t bytes) {
  const Library& l = *library_;
  if (!l.memAlloc || !l.memFree || !l.windowRegister || !l.windowDeregister) return nullptr;
  void* memory = nullptr;
  l.call(l.memAlloc, &memory, bytes);
  NcclWindow window = nullptr;
  l.call(l.windowRegister, communicator_.get(), memory, bytes, &window, symmetricWindow);
  return {memory, [library = library_, communicator = communicator_, window](void* m) {
            if (window != nullptr) library->windowDeregister.pointer(communicator.get(), window);
            library->memFree.pointer(m);
          }};
}

}  // namespace mscclpp::perf
